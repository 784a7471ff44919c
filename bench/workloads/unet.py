"""A U-Net with transposed convolutions on random pictures of 3 x 256 x 256, 64 base channels, AdamW. WORKLOAD_AMP=bf16."""

import contextlib
import os

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Pictures(Dataset):
    def __init__(self, count=4096):
        self.pictures = torch.randn(64, 3, 256, 256)
        self.masks = torch.randint(2, (64, 1, 256, 256)).float()
        self.count = count

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        return self.pictures[index % 64], self.masks[index % 64]


def block(inputs, outputs):
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, 3, padding=1, bias=False),
        nn.BatchNorm2d(outputs),
        nn.ReLU(inplace=True),
        nn.Conv2d(outputs, outputs, 3, padding=1, bias=False),
        nn.BatchNorm2d(outputs),
        nn.ReLU(inplace=True),
    )


class UNet(nn.Module):
    def __init__(self, width=64, depth=4):
        super().__init__()
        widths = [width * 2**level for level in range(depth + 1)]
        self.down = nn.ModuleList(block(a, b) for a, b in zip([3] + widths[:-2], widths[:-1]))
        self.bottom = block(widths[-2], widths[-1])
        self.up = nn.ModuleList(nn.ConvTranspose2d(b, a, 2, stride=2) for a, b in zip(widths[-2::-1], widths[:0:-1]))
        self.join = nn.ModuleList(block(2 * a, a) for a in widths[-2::-1])
        self.pool = nn.MaxPool2d(2)
        self.out = nn.Conv2d(width, 1, 1)

    def forward(self, x):
        sides = []
        for level in self.down:
            x = level(x)
            sides.append(x)
            x = self.pool(x)
        x = self.bottom(x)
        for up, join, side in zip(self.up, self.join, reversed(sides)):
            x = join(torch.cat([up(x), side], dim=1))
        return self.out(x)


def precision():
    if os.environ.get("WORKLOAD_AMP") == "bf16":
        return torch.autocast("cuda", dtype=torch.bfloat16)
    return contextlib.nullcontext()


def main():
    torch.manual_seed(0)
    loader = DataLoader(Pictures(), batch_size=8, shuffle=True, num_workers=2, pin_memory=True, drop_last=True)
    model = UNet().cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    criterion = nn.BCEWithLogitsLoss()
    for pictures, masks in loader:
        pictures, masks = pictures.cuda(non_blocking=True), masks.cuda(non_blocking=True)
        with precision():
            loss = criterion(model(pictures), masks)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"loss {loss.item():.3f}")


if __name__ == "__main__":
    main()
