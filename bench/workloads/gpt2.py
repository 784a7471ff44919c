"""Hugging Face's GPT-2 (default configuration, random weights) on random text, 512 tokens, AdamW. WORKLOAD_AMP=bf16."""

import contextlib
import os

import torch
from torch.utils.data import DataLoader, Dataset
from transformers import GPT2Config, GPT2LMHeadModel


class Text(Dataset):
    def __init__(self, count=4096, length=512):
        self.tokens = torch.randint(50257, (count, length))

    def __len__(self):
        return len(self.tokens)

    def __getitem__(self, index):
        return self.tokens[index]


def precision():
    if os.environ.get("WORKLOAD_AMP") == "bf16":
        return torch.autocast("cuda", dtype=torch.bfloat16)
    return contextlib.nullcontext()


def main():
    torch.manual_seed(0)
    loader = DataLoader(Text(), batch_size=8, shuffle=True, drop_last=True)
    model = GPT2LMHeadModel(GPT2Config()).cuda()
    model.train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    for tokens in loader:
        tokens = tokens.cuda()
        with precision():
            loss = model(input_ids=tokens, labels=tokens).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"loss {loss.item():.3f}")


if __name__ == "__main__":
    main()
