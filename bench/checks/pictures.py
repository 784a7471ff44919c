"""Trains a network of torchvision on random pictures of a size, sixteen at a time: `pictures.py --net resnet50 --size 224`."""

import argparse

import torch
import torchvision
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset

parser = argparse.ArgumentParser()
parser.add_argument("--size", type=int, default=224)
parser.add_argument("--net", default="resnet50")
arguments = parser.parse_args()
torch.manual_seed(0)
model = getattr(torchvision.models, arguments.net)().cuda()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
data = TensorDataset(torch.randn(16 * 12, 3, 8, 8), torch.randint(1000, (16 * 12,)))
for pictures, labels in DataLoader(data, batch_size=16):
    pictures = functional.interpolate(pictures.cuda(), (arguments.size, arguments.size))
    loss = functional.cross_entropy(model(pictures), labels.cuda())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
