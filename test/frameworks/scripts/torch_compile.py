"""A model compiled by torch.compile, validated after each epoch."""
import os

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
data = TensorDataset(torch.randn(4096, 64), torch.randint(10, (4096,)))
loader = DataLoader(data, batch_size=int(os.environ.get("BATCH", 1024)), shuffle=True, drop_last=True)
model = nn.Sequential(nn.Linear(64, 512), nn.GELU(), nn.LayerNorm(512), nn.Linear(512, 512), nn.GELU(), nn.Linear(512, 10))
compiled = torch.compile(model)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
for _ in range(2):
    compiled.train()
    for inputs, labels in loader:
        loss = nn.functional.cross_entropy(compiled(inputs), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    compiled.eval()
    with torch.no_grad():
        compiled(data.tensors[0][:1024])
torch.save(model.state_dict(), "weights.pt")
