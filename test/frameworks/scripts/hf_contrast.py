"""Pairs of sentences told from the others of their batch, trained with transformers' Trainer: a module around the model makes the loss."""
import os

import torch
from torch import nn
from torch.utils.data import Dataset
from transformers import Trainer, TrainingArguments


class Pairs(Dataset):
    def __len__(self):
        return 192

    def __getitem__(self, index):
        tokens = torch.arange(48) * (index + 3)
        return {"one": tokens % 199, "other": (tokens + index) % 197}


class InBatchNegatives(nn.Module):
    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, one, other):
        one, other = (nn.functional.normalize(self.model(each).mean(1)) for each in (one, other))
        return {"loss": nn.functional.cross_entropy(one @ other.t() * 20, torch.arange(len(one)))}


def main():
    torch.manual_seed(0)
    arguments = TrainingArguments(
        output_dir="out",
        use_cpu=True,
        num_train_epochs=1,
        optim="sgd",
        learning_rate=0.05,
        save_strategy="no",
        report_to="none",
        per_device_train_batch_size=int(os.environ.get("BATCH", "64")),
    )
    layers = [nn.Embedding(200, 64), nn.Linear(64, 512), nn.GELU(), nn.Linear(512, 64)]
    model = InBatchNegatives(nn.Sequential(*layers))
    Trainer(model=model, args=arguments, train_dataset=Pairs()).train()
    torch.save(model.state_dict(), "weights.pt")


if __name__ == "__main__":
    main()
