"""Two ranks of a linear layer in DistributedDataParallel over NCCL; from step 6 on rank 1 needs eight times the memory. Rank 0 saves there, to CHECKPOINT,
and both go on from it where OOMTUNE_RESUME is 1. Each line begins with the time."""

import os
import time

import torch
from torch import distributed, nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset

rank, path = int(os.environ["RANK"]), os.environ["CHECKPOINT"]
torch.cuda.set_device(rank)
distributed.init_process_group("nccl")
torch.manual_seed(0)
model = nn.Linear(1024, 16384).cuda()
first = 0
if os.environ.get("OOMTUNE_RESUME") == "1" and os.path.exists(path):
    state = torch.load(path, map_location="cuda")
    model.load_state_dict(state["model"])
    first = state["step"]
print("%.2f rank %d from step %d" % (time.time(), rank, first), flush=True)
model = DistributedDataParallel(model, device_ids=[rank])
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for step, (rows,) in enumerate(DataLoader(TensorDataset(torch.randn(640, 1024)), batch_size=32)):
    if step < first:
        continue
    if step == 6 and rank == 0:
        torch.save({"model": model.module.state_dict(), "step": step}, path)
    times = 640 if step >= 6 and rank == 1 else 80
    try:
        loss = torch.tanh(model(rows.cuda().repeat(times, 1))).mean()
        loss.backward()
    except torch.OutOfMemoryError:
        print("%.2f rank %d out of memory at step %d" % (time.time(), rank, step), flush=True)
        raise
    optimizer.step()
    optimizer.zero_grad()
print("%.2f rank %d trained" % (time.time(), rank), flush=True)
