"""Trains a classifier on synthetic data. Everything is written into the script: batch size, width, epochs."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

BATCH_SIZE = 256
EPOCHS = 2


def make_data(samples=8192, features=256, classes=10):
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(samples, features, generator=generator)
    y = (x @ torch.randn(features, classes, generator=generator)).argmax(dim=1)
    return TensorDataset(x, y)


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.body = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, width), nn.GELU(), nn.Dropout(0.1))

    def forward(self, x):
        return x + self.body(x)


def make_model(features=256, width=256, depth=12, classes=10):
    return nn.Sequential(nn.Linear(features, width), *[Block(width) for _ in range(depth)], nn.Linear(width, classes))


def main():
    torch.manual_seed(0)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    loader = DataLoader(make_data(), batch_size=BATCH_SIZE, shuffle=True)
    model = make_model().to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    criterion = nn.CrossEntropyLoss()

    for epoch in range(EPOCHS):
        right = total = 0
        for x, y in loader:
            x, y = x.to(device), y.to(device)
            optimizer.zero_grad()
            output = model(x)
            loss = criterion(output, y)
            loss.backward()
            optimizer.step()
            right += (output.argmax(dim=1) == y).sum().item()
            total += len(y)
        print(f"epoch {epoch + 1}: loss {loss.item():.3f}, accuracy {right / total:.3f}", flush=True)


if __name__ == "__main__":
    main()
