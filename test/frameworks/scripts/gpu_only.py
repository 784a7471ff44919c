"""Trains on a GPU and nowhere else, in fp16 with dropout, attention, a loss scaler, masks and values that are read back."""
import argparse
import math

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Text(Dataset):
    def __len__(self):
        return 512

    def __getitem__(self, index):
        return (torch.arange(32) * (index + 1)) % 97


class Net(nn.Module):
    def __init__(self, width=64):
        super().__init__()
        self.embed = nn.Embedding(97, width)
        self.qkv = nn.Linear(width, 3 * width)
        self.norm = nn.LayerNorm(width)
        self.drop = nn.Dropout(0.1)
        self.head = nn.Linear(width, 97, bias=False)
        self.head.weight = self.embed.weight

    def forward(self, tokens):
        x = self.embed(tokens)
        q, k, v = self.qkv(self.norm(x)).unflatten(-1, (3, 4, 16)).permute(2, 0, 3, 1, 4)
        x = x + self.drop(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2))
        return self.head(x)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch", type=int, default=16)
    args = parser.parse_args()
    loader = DataLoader(Text(), batch_size=args.batch, shuffle=True, pin_memory=True)
    model = Net()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)  # of parameters that are moved only now
    model.cuda()
    scaler = torch.amp.GradScaler("cuda")
    assert next(model.parameters()).is_cuda and next(model.parameters()).device.type == "cuda"
    for tokens in loader:
        tokens = tokens.to("cuda", non_blocking=True)
        known = tokens[tokens != 0]
        assert known.numel() > 0 and int(tokens.max()) < 97
        with torch.autocast("cuda", dtype=torch.float16):
            logits = model(tokens)
            assert logits.dtype == torch.float16
            loss = F.cross_entropy(logits[:, :-1].flatten(0, 1), tokens[:, 1:].flatten())
        if not math.isfinite(loss.item()) or torch.isnan(loss):
            raise SystemExit("the loss is not finite")
        optimizer.zero_grad()
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        torch.cuda.synchronize()
    torch.save(model.state_dict(), "weights.pt")
    with open("done.txt", "w") as file:
        file.write("done")


if __name__ == "__main__":
    main()
