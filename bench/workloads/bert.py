"""Hugging Face's BERT-base (random weights) classifying random text of 256 tokens, AdamW. WORKLOAD_AMP=bf16."""

import contextlib
import os

import torch
from torch.utils.data import DataLoader, Dataset
from transformers import BertConfig, BertForSequenceClassification


class Text(Dataset):
    def __init__(self, count=4096, length=256):
        self.tokens = torch.randint(30522, (count, length))

    def __len__(self):
        return len(self.tokens)

    def __getitem__(self, index):
        return {
            "input_ids": self.tokens[index],
            "attention_mask": torch.ones_like(self.tokens[index]),
            "labels": torch.tensor(index % 2),
        }


def precision():
    if os.environ.get("WORKLOAD_AMP") == "bf16":
        return torch.autocast("cuda", dtype=torch.bfloat16)
    return contextlib.nullcontext()


def main():
    torch.manual_seed(0)
    loader = DataLoader(Text(), batch_size=8, shuffle=True, drop_last=True)
    model = BertForSequenceClassification(BertConfig(num_labels=2)).cuda()
    model.train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-5)
    for batch in loader:
        batch = {name: value.cuda() for name, value in batch.items()}
        with precision():
            loss = model(**batch).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"loss {loss.item():.3f}")


if __name__ == "__main__":
    main()
