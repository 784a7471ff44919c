"""A DataModule and a model behind LightningCLI, which makes both of flags and files."""
import torch
from lightning.pytorch import LightningDataModule, LightningModule
from lightning.pytorch.cli import LightningCLI
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Data(LightningDataModule):
    def __init__(self, batch_size: int = 64):
        super().__init__()
        self.batch_size = batch_size

    def setup(self, stage):
        draws = torch.Generator().manual_seed(0)
        images = torch.randn(8192, 64, generator=draws)
        labels = torch.randint(10, (8192,), generator=draws)
        self.train, self.valid = TensorDataset(images, labels), TensorDataset(images[:256], labels[:256])

    def train_dataloader(self):
        return DataLoader(self.train, batch_size=self.batch_size, shuffle=True)

    def val_dataloader(self):
        return DataLoader(self.valid, batch_size=self.batch_size)


class Model(LightningModule):
    def __init__(self, width: int = 512, learning_rate: float = 0.05):
        super().__init__()
        self.save_hyperparameters()
        self.net = nn.Sequential(nn.Linear(64, width), *[nn.Sequential(nn.Tanh(), nn.Linear(width, width)) for _ in range(3)])
        self.head = nn.Linear(width, 10)

    def loss(self, batch):
        images, labels = batch
        return nn.functional.cross_entropy(self.head(self.net(images)), labels)

    def training_step(self, batch, index):
        return self.loss(batch)

    def validation_step(self, batch, index):
        self.log("valid", self.loss(batch))

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=self.hparams.learning_rate, momentum=0.9)


if __name__ == "__main__":
    cli = LightningCLI(Model, Data, seed_everything_default=1, save_config_callback=None)
    torch.save(cli.model.state_dict(), "weights.pt")
