"""LBFGS, which calls the model and its loss again and again in one step."""
import os

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
loader = DataLoader(TensorDataset(torch.randn(16384, 64), torch.randn(16384, 4)), batch_size=int(os.environ.get("BATCH", 4096)))
model = nn.Sequential(nn.Linear(64, 512), nn.Tanh(), nn.Linear(512, 512), nn.Tanh(), nn.Linear(512, 4)).double()
optimizer = torch.optim.LBFGS(model.parameters(), lr=0.5, max_iter=4, history_size=4)
for inputs, targets in loader:

    def closure():
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(inputs.double()), targets.double())
        loss.backward()
        return loss

    optimizer.step(closure)
torch.save(model.state_dict(), "weights.pt")
