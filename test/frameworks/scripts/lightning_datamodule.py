"""Lightning with a DataModule, validation and a scheduler by step."""
import os

import lightning
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Data(lightning.LightningDataModule):
    def __init__(self, batch_size=64):
        super().__init__()
        self.batch_size = batch_size
        generator = torch.Generator().manual_seed(1)
        self.train = TensorDataset(torch.randn(400, 3, 24, 24, generator=generator), torch.randint(10, (400,), generator=generator))
        self.valid = TensorDataset(torch.randn(64, 3, 24, 24, generator=generator), torch.randint(10, (64,), generator=generator))

    def train_dataloader(self):
        return DataLoader(self.train, batch_size=self.batch_size, shuffle=True)

    def val_dataloader(self):
        return DataLoader(self.valid, batch_size=32)


class Model(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(
            nn.Conv2d(3, 32, 3), nn.GELU(), nn.Conv2d(32, 32, 3), nn.GELU(), nn.AdaptiveAvgPool2d(4), nn.Flatten(), nn.Linear(512, 10)
        )

    def training_step(self, batch, place):
        loss = nn.functional.cross_entropy(self.net(batch[0]), batch[1])
        self.log("loss", loss)
        return loss

    def validation_step(self, batch, place):
        self.log("valid", nn.functional.cross_entropy(self.net(batch[0]), batch[1]))

    def configure_optimizers(self):
        optimizer = torch.optim.SGD(self.parameters(), lr=0.05, momentum=0.9)
        schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.05, total_steps=self.trainer.estimated_stepping_batches)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}


if __name__ == "__main__":
    lightning.seed_everything(0)
    model = Model()
    trainer = lightning.Trainer(
        max_epochs=2, accelerator="cpu", enable_progress_bar=False, enable_model_summary=False, logger=False,
        enable_checkpointing="TROUBLE" in os.environ,
    )
    trainer.fit(model, Data(int(os.environ.get("BATCH", 192))))
    torch.save(model.state_dict(), "weights.pt")
