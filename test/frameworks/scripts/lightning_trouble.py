"""LightningCLI where memory runs out beside the training: `lightning_trouble.py evaluation|saving|worker`."""
import sys

import torch
from lightning.pytorch import LightningDataModule, LightningModule
from lightning.pytorch.cli import LightningCLI
from torch import nn
from torch.utils.data import DataLoader, Dataset

how = sys.argv.pop(1)


class Rows(Dataset):
    def __init__(self, count, greedy=False):
        self.count, self.greedy = count, greedy

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        if self.greedy and index > 40:
            index = int(torch.ones(64 << 20).sum()) % self.count  # 256 MiB
        return torch.full((64,), float(index)), index % 10


class Data(LightningDataModule):
    def __init__(self, batch_size: int = 16):
        super().__init__()
        self.batch_size = batch_size

    def train_dataloader(self):
        return DataLoader(Rows(64, how == "worker"), batch_size=self.batch_size, num_workers=1 if how == "worker" else 0)

    def val_dataloader(self):
        return DataLoader(Rows(64), batch_size=16)


class Model(LightningModule):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 10))

    def training_step(self, batch, index):
        return nn.functional.cross_entropy(self.net(batch[0]), batch[1])

    def validation_step(self, batch, index):
        if how == "evaluation" and not self.trainer.sanity_checking:
            self.seen = self.net(batch[0].repeat(8192, 1))
        return self.training_step(batch, index)

    def on_save_checkpoint(self, checkpoint):
        if how == "saving":
            self.copies = [{name: tensor.double() for name, tensor in self.state_dict().items()} for _ in range(2000)]

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.01)


if __name__ == "__main__":
    trainer = {"accelerator": "cpu", "max_epochs": 2, "logger": False, "enable_progress_bar": False}
    LightningCLI(Model, Data, trainer_defaults=trainer, save_config_callback=None)
