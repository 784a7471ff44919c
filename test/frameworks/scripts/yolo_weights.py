"""Writes the weights that the latest `yolo train` kept as `weights.pt`."""
import glob
import os

import torch

latest = max(glob.glob("runs/detect/*/weights/last.pt"), key=os.path.getmtime)
torch.save(torch.load(latest, map_location="cpu", weights_only=False)["model"].float().state_dict(), "weights.pt")
