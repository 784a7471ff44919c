"""torchvision's ResNet-50 on random pictures of 224 x 224, SGD. WORKLOAD_AMP=bf16 for mixed precision."""

import contextlib
import os

import torch
import torchvision
from torch.utils.data import DataLoader, Dataset


class Pictures(Dataset):
    def __init__(self, count=4096):
        self.pictures = torch.randn(64, 3, 224, 224)
        self.count = count

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        return self.pictures[index % 64], index % 1000


def precision():
    if os.environ.get("WORKLOAD_AMP") == "bf16":
        return torch.autocast("cuda", dtype=torch.bfloat16)
    return contextlib.nullcontext()


def main():
    torch.manual_seed(0)
    loader = DataLoader(Pictures(), batch_size=8, shuffle=True, num_workers=2, pin_memory=True, drop_last=True)
    model = torchvision.models.resnet50().cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    criterion = torch.nn.CrossEntropyLoss()
    for pictures, labels in loader:
        pictures, labels = pictures.cuda(non_blocking=True), labels.cuda(non_blocking=True)
        with precision():
            loss = criterion(model(pictures), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"loss {loss.item():.3f}")


if __name__ == "__main__":
    main()
