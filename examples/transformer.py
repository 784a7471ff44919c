"""Trains a small causal transformer on synthetic text; batch, accumulation, precision and checkpointing are flags."""

import argparse
import contextlib

import torch
from torch import nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader, Dataset

VOCABULARY, LENGTH, WIDTH, HEADS, LAYERS = 512, 128, 192, 6, 4


class Text(Dataset):
    """Sequences in which each token follows from the two before it."""

    def __init__(self, samples=512):
        generator = torch.Generator().manual_seed(0)
        tokens = torch.randint(VOCABULARY, (samples, LENGTH + 1), generator=generator)
        for place in range(2, LENGTH + 1):
            tokens[:, place] = (tokens[:, place - 1] * 3 + tokens[:, place - 2]) % VOCABULARY
        self.tokens = tokens

    def __len__(self):
        return len(self.tokens)

    def __getitem__(self, index):
        return self.tokens[index, :-1], self.tokens[index, 1:]


class Transformer(nn.Module):
    def __init__(self, checkpointing=False):
        super().__init__()
        self.checkpointing = checkpointing
        self.embedding = nn.Embedding(VOCABULARY, WIDTH)
        self.position = nn.Parameter(torch.randn(LENGTH, WIDTH) * 0.02)
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(WIDTH, HEADS, 4 * WIDTH, dropout=0.0, batch_first=True, norm_first=True)
            for _ in range(LAYERS)
        )
        self.head = nn.Linear(WIDTH, VOCABULARY)
        self.register_buffer("mask", torch.triu(torch.full((LENGTH, LENGTH), float("-inf")), diagonal=1))

    def forward(self, tokens):
        x = self.embedding(tokens) + self.position
        for layer in self.layers:
            x = checkpoint(layer, x, self.mask, use_reentrant=False) if self.checkpointing else layer(x, self.mask)
        return self.head(x)


def parse():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--batch-size", type=int, default=8)
    parser.add_argument("--accumulation", type=int, default=1, help="batches per optimizer step")
    parser.add_argument("--amp", choices=["off", "bf16", "fp16"], default="off")
    parser.add_argument("--checkpointing", action="store_true")
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--lr", type=float, default=1e-3)
    return parser.parse_args()


def main():
    args = parse()
    torch.manual_seed(0)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    loader = DataLoader(Text(), batch_size=args.batch_size, shuffle=True, drop_last=True)
    model = Transformer(args.checkpointing).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr)
    dtype = {"bf16": torch.bfloat16, "fp16": torch.float16}.get(args.amp)

    for epoch in range(args.epochs):
        for batch, (tokens, targets) in enumerate(loader, start=1):
            tokens, targets = tokens.to(device), targets.to(device)
            with torch.autocast(device, dtype=dtype) if dtype else contextlib.nullcontext():
                logits = model(tokens)
                loss = functional.cross_entropy(logits.flatten(0, 1).float(), targets.flatten())
            (loss / args.accumulation).backward()
            if batch % args.accumulation == 0:
                optimizer.step()
                optimizer.zero_grad(set_to_none=True)
            if batch % 16 == 0:
                print(f"epoch {epoch + 1}, batch {batch}: loss {loss.item():.3f}", flush=True)


if __name__ == "__main__":
    main()
