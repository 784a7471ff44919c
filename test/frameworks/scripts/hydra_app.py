"""A script that Hydra configures; its working folder is Hydra's own."""
import os

import hydra
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def validate(model, loader):
    model.eval()
    with torch.no_grad():
        return sum(nn.functional.mse_loss(model(inputs), targets).item() for inputs, targets in loader)


@hydra.main(version_base=None, config_path=".", config_name="hydra_config")
def main(config):
    torch.manual_seed(config.seed)
    data = TensorDataset(torch.randn(1024, 128), torch.randn(1024, 8))
    loader = DataLoader(data, batch_size=config.batch_size, shuffle=True)
    model = nn.Sequential(nn.Linear(128, 16384), nn.GELU(), nn.Linear(16384, 8))
    optimizer = torch.optim.SGD(model.parameters(), lr=config.lr)
    for _ in range(config.epochs):
        for inputs, targets in loader:
            loss = nn.functional.mse_loss(model(inputs), targets)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    if "TROUBLE" in os.environ:
        validate(model, loader)
    torch.save(model.state_dict(), os.path.join(hydra.utils.get_original_cwd(), "weights.pt"))


main()
