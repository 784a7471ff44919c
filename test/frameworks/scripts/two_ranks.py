"""Two ranks over gloo under torchrun: `two_ranks.py ddp|fsdp`."""
import gc
import os
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

dist.init_process_group("gloo")
torch.manual_seed(0)
data = TensorDataset(torch.randn(2048, 128), torch.randn(2048, 8))
model = nn.Sequential(nn.Linear(128, 8192), nn.GELU(), nn.Linear(8192, 8))
if sys.argv[1] == "ddp":
    model = DistributedDataParallel(model)
else:
    mesh = init_device_mesh("cpu", (2,))
    for layer in (model[0], model[2], model):
        fully_shard(layer, mesh=mesh)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
sampler = DistributedSampler(data)
loader = DataLoader(data, batch_size=int(os.environ.get("BATCH", 512)), sampler=sampler)
for epoch in range(2):
    sampler.set_epoch(epoch)
    for inputs, targets in loader:
        loss = nn.functional.mse_loss(model(inputs), targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
weights = get_model_state_dict(model, options=StateDictOptions(full_state_dict=True, cpu_offload=True))
if dist.get_rank() == 0:
    torch.save(weights, "weights.pt")
# torch 2.15 aborts now and then where gloo's groups outlive the process: a mesh holds those of its own
del model, optimizer, weights, loss
mesh = layer = None
gc.collect()
dist.destroy_process_group()
