"""A classifier trained with transformers' Trainer on a loader of the script: no argument sets its batches, and the model's loss is a mean
whatever number of items Trainer gives it."""
import os

import torch
from torch.utils.data import DataLoader, Dataset
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments


class Reviews(Dataset):
    def __len__(self):
        return 160

    def __getitem__(self, index):
        tokens = (torch.arange(64) * (index + 3)) % 199
        return {"input_ids": tokens, "labels": index % 2}


class InOrder(Trainer):
    def get_train_dataloader(self):
        return DataLoader(self.train_dataset, batch_size=int(os.environ.get("BATCH", 32)))


torch.manual_seed(0)
config = BertConfig(
    vocab_size=200, hidden_size=64, num_hidden_layers=2, num_attention_heads=2, intermediate_size=256,
    hidden_dropout_prob=0, attention_probs_dropout_prob=0,
)
arguments = TrainingArguments(
    "out", use_cpu=True, max_steps=6, optim="sgd", learning_rate=0.05, save_strategy="no", report_to="none"
)
model = BertForSequenceClassification(config)
for name, value in model.named_parameters():
    if name.endswith("bias"):  # zeros that only rounding would move (those of keys) are no weights to compare
        torch.nn.init.normal_(value, std=0.02)
trainer = InOrder(model=model, args=arguments, train_dataset=Reviews())
trainer.train()
if trainer.is_world_process_zero():
    torch.save(trainer.model.state_dict(), "weights.pt")
