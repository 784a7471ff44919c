"""Trains, and runs out of memory after a while: each step's loss is kept with the whole graph that made it."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def main():
    torch.manual_seed(0)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    data = TensorDataset(torch.randn(8192, 256), torch.randn(8192, 1))
    loader = DataLoader(data, batch_size=64, shuffle=True)
    model = nn.Sequential(nn.Linear(256, 1024), nn.Tanh(), nn.Linear(1024, 1024), nn.Tanh(), nn.Linear(1024, 1)).to(
        device
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)

    losses = []
    for epoch in range(20):
        for x, y in loader:
            output = model(x.to(device))
            loss = nn.functional.mse_loss(output, y.to(device))
            optimizer.zero_grad()
            loss.backward(retain_graph=True)
            optimizer.step()
            losses.append(loss)  # meant as a number; is a tensor that holds its graph
        print(f"epoch {epoch + 1}: mean loss {float(sum(losses)) / len(losses):.4f}", flush=True)


if __name__ == "__main__":
    main()
