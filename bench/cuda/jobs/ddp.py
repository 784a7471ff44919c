"""Data-parallel training over two devices with NCCL, started by torchrun: rank 1 takes memory until it is refused, lets
go, and both train on."""

import json
import os
import sys
import time

import torch
import torch.distributed as dist
from torch import nn

rank = int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(rank)
dist.init_process_group("nccl")
torch.manual_seed(0)
model = nn.parallel.DistributedDataParallel(nn.Sequential(*[nn.Linear(4096, 4096) for _ in range(4)]).cuda(rank))
optimizer = torch.optim.AdamW(model.parameters())


def step():
    optimizer.zero_grad(set_to_none=True)
    loss = model(torch.randn(512, 4096, device="cuda")).square().mean()
    loss.backward()
    optimizer.step()
    return loss


for _ in range(10):
    step()
gathered = [torch.empty(1, device="cuda") for _ in range(2)]
dist.all_gather(gathered, torch.full((1,), float(rank), device="cuda"))
report = {"rank": rank, "gathered": [t.item() for t in gathered], "nccl": list(torch.cuda.nccl.version())}
if rank == 1:
    hoard = []
    try:
        for _ in range(4096):
            hoard.append(torch.empty(64 * 2**20, dtype=torch.uint8, device="cuda"))
    except torch.cuda.OutOfMemoryError as error:
        report["is_torch_oom"] = True
        report["text"] = str(error).splitlines()[0][:300]
    time.sleep(1)  # so that whoever samples from outside sees the peak
    report["hoarded"] = len(hoard) * 64 * 2**20
    del hoard
    torch.cuda.empty_cache()
dist.barrier()
for _ in range(5):
    loss = step()
torch.cuda.synchronize()
report["recovered"] = bool(torch.isfinite(loss).item())
report["reserved_peak"] = torch.cuda.max_memory_reserved()
report["allocations"] = torch.cuda.memory_stats().get("num_device_alloc", 0)
dist.barrier()
sys.stdout.write(json.dumps(report) + "\n")
sys.stdout.flush()
dist.destroy_process_group()
