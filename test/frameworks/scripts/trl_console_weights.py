"""Writes the weights that `trl sft` kept as `weights.pt`."""
import torch
from safetensors.torch import load_file

torch.save(load_file("out/model.safetensors"), "weights.pt")
