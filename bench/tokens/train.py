"""Texts of many lengths: a language model, trained as people write it. Prints what its steps took; with TRAINED=FILE also there."""

import argparse
import json
import os
import random
import time

import torch
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=20)
parser.add_argument("--batch", type=int, default=64)
parser.add_argument("--accumulate", type=int, default=1)
parser.add_argument("--width", type=int, default=64)
parser.add_argument("--layers", type=int, default=2)
parser.add_argument("--vocabulary", type=int, default=512)
parser.add_argument("--shortest", type=int, default=16)
parser.add_argument("--longest", type=int, default=512)
parser.add_argument("--median", type=float, default=48)
args = parser.parse_args()

device = "cuda" if torch.cuda.is_available() else "cpu"
torch.manual_seed(0)
draws = random.Random(0)


def length():
    """Log-normal, as lengths of texts are."""
    drawn = round(args.median * draws.lognormvariate(0, 0.8))
    return min(args.longest, max(args.shortest, drawn))


texts = [torch.randint(2, args.vocabulary, (length(),)) for _ in range(4096)]
texts[0] = torch.randint(2, args.vocabulary, (args.longest,))


def collate(samples):
    ids = nn.utils.rnn.pad_sequence(samples, batch_first=True, padding_value=0)
    mask = nn.utils.rnn.pad_sequence([torch.ones_like(one) for one in samples], batch_first=True, padding_value=0)
    return {"input_ids": ids, "attention_mask": mask, "labels": ids.masked_fill(mask == 0, -100)}


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads, self.qkv, self.out = heads, nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))
        self.norm = nn.LayerNorm(width)

    def forward(self, x, bias):
        rows, tokens, width = x.shape
        q, k, v = self.qkv(self.norm(x)).view(rows, tokens, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        scores = q @ k.transpose(-1, -2) / (width // self.heads) ** 0.5 + bias
        mixed = (functional.softmax(scores, -1) @ v).transpose(1, 2).reshape(rows, tokens, width)
        x = x + self.out(mixed)
        return x + self.mlp(x)


class LanguageModel(nn.Module):
    def __init__(self, vocabulary, width, layers, longest):
        super().__init__()
        self.words, self.places = nn.Embedding(vocabulary, width), nn.Embedding(longest, width)
        self.blocks = nn.ModuleList(Block(width, 4) for _ in range(layers))
        self.head = nn.Linear(width, vocabulary)

    def forward(self, input_ids, attention_mask, labels):
        tokens = input_ids.shape[1]
        places = torch.arange(tokens, device=input_ids.device)
        hidden = (places[None, :] > places[:, None])[None, None] | (attention_mask == 0)[:, None, None]
        bias = torch.zeros(hidden.shape, device=input_ids.device).masked_fill(hidden, -1e9)
        x = self.words(input_ids) + self.places(places)
        for block in self.blocks:
            x = block(x, bias)
        logits = self.head(x)
        return functional.cross_entropy(logits[:, :-1].reshape(-1, logits.shape[-1]), labels[:, 1:].reshape(-1))


model = LanguageModel(args.vocabulary, args.width, args.layers, args.longest).to(device)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
loader = DataLoader(texts, batch_size=args.batch, shuffle=True, drop_last=True, collate_fn=collate)
model.train()

batches, seconds, cpu = 0, 0.0, 0.0
while batches < args.steps * args.accumulate:
    for batch in loader:
        if batches == args.accumulate:  # the first step shows what may be done, and is no measure of the others
            seconds, cpu = time.perf_counter(), time.process_time()
        loss = model(**{name: tensor.to(device) for name, tensor in batch.items()})
        (loss / args.accumulate).backward()
        batches += 1
        if batches % args.accumulate == 0:
            optimizer.step()
            optimizer.zero_grad()
        if batches == args.steps * args.accumulate:
            break

if device == "cuda":
    torch.cuda.synchronize()
trained = {
    "steps": args.steps,
    "samples": args.batch * (batches - args.accumulate),
    "wall_s": time.perf_counter() - seconds,
    "cpu_s": time.process_time() - cpu,
    "loss": loss.item(),
    "checksum": sum(parameter.detach().double().abs().sum().item() for parameter in model.parameters()),
}
if os.environ.get("TRAINED"):
    with open(os.environ["TRAINED"], "w") as file:
        json.dump(trained, file)
print(json.dumps(trained))
