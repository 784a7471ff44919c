"""Trains a small convolutional net with skip connections to take the noise out of synthetic pictures."""

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

BATCH_SIZE = 4
SIDE = 64


class Pictures(Dataset):
    """Smooth random pictures; the input is the picture with noise on it."""

    def __len__(self):
        return 256

    def __getitem__(self, index):
        generator = torch.Generator().manual_seed(index)
        coarse = torch.randn(1, 3, 8, 8, generator=generator)
        picture = nn.functional.interpolate(coarse, size=(SIDE, SIDE), mode="bilinear", align_corners=False)[0]
        return picture + 0.3 * torch.randn(3, SIDE, SIDE, generator=generator), picture


def block(inputs, outputs):
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, 3, padding=1),
        nn.BatchNorm2d(outputs),
        nn.ReLU(),
        nn.Conv2d(outputs, outputs, 3, padding=1),
        nn.BatchNorm2d(outputs),
        nn.ReLU(),
    )


class Net(nn.Module):
    """Down twice, up twice, and what was lost on the way down is put back from the side."""

    def __init__(self, width=16):
        super().__init__()
        self.down1, self.down2 = block(3, width), block(width, 2 * width)
        self.bottom = block(2 * width, 4 * width)
        self.up2 = nn.ConvTranspose2d(4 * width, 2 * width, 2, stride=2)
        self.join2 = block(4 * width, 2 * width)
        self.up1 = nn.ConvTranspose2d(2 * width, width, 2, stride=2)
        self.join1 = block(2 * width, width)
        self.out = nn.Conv2d(width, 3, 1)
        self.pool = nn.MaxPool2d(2)

    def forward(self, x):
        one = self.down1(x)
        two = self.down2(self.pool(one))
        x = self.bottom(self.pool(two))
        x = self.join2(torch.cat([self.up2(x), two], dim=1))
        x = self.join1(torch.cat([self.up1(x), one], dim=1))
        return self.out(x)


def main():
    torch.manual_seed(0)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    loader = DataLoader(Pictures(), batch_size=BATCH_SIZE, shuffle=True, num_workers=0)
    model = Net().to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    criterion = nn.MSELoss()

    for epoch in range(1):
        for step, (noisy, clean) in enumerate(loader, start=1):
            loss = criterion(model(noisy.to(device)), clean.to(device))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if step % 20 == 0:
                print(f"step {step}: loss {loss.item():.4f}", flush=True)


if __name__ == "__main__":
    main()
