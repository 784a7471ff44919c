"""Makes the weights that the recipe starts from."""

import os

import torch
from tune_tiny import model

torch.manual_seed(0)
os.makedirs("from", exist_ok=True)
torch.save(model().state_dict(), "from/model.pt")
