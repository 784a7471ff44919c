"""A small transformer on random text that trains on whatever device there is, alone or under torchrun, for --steps steps.

For what is to be seen end to end: it prints its losses, the precision of its first product, and how many ranks there were.
"""

import argparse
import os

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset
from torch.utils.data.distributed import DistributedSampler


class Text(Dataset):
    def __init__(self, count=8192, length=256):
        self.tokens = torch.randint(4096, (count, length + 1), generator=torch.Generator().manual_seed(0))

    def __len__(self):
        return len(self.tokens)

    def __getitem__(self, index):
        return self.tokens[index, :-1], self.tokens[index, 1:]


class Model(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.embedding = nn.Embedding(4096, width)
        self.blocks = nn.ModuleList(
            nn.TransformerEncoderLayer(width, 8, 4 * width, dropout=0.0, batch_first=True, norm_first=True) for _ in range(6)
        )
        self.head = nn.Linear(width, 4096)

    def forward(self, tokens):
        x = self.embedding(tokens)
        for block in self.blocks:
            x = block(x)
        return self.head(x)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--width", type=int, default=512)
    args = parser.parse_args()
    torch.manual_seed(0)
    ranks = int(os.environ.get("WORLD_SIZE", "1"))
    cuda = torch.cuda.is_available()
    device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0"))) if cuda else torch.device("cpu")
    if cuda:
        torch.cuda.set_device(device)
    model = Model(args.width).to(device)
    data = Text()
    sampler = None
    if "WORLD_SIZE" in os.environ:
        torch.distributed.init_process_group("nccl" if cuda else "gloo")
        model = nn.parallel.DistributedDataParallel(model, device_ids=[device.index] if cuda else None)
        sampler = DistributedSampler(data)
    loader = DataLoader(data, batch_size=8, shuffle=sampler is None, sampler=sampler, drop_last=True)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
    seen, losses = set(), []
    inner = getattr(model, "module", model)
    inner.blocks[0].linear1.register_forward_hook(lambda module, inputs, output: seen.add(str(output.dtype)))
    step = 0
    while step < args.steps:
        for tokens, targets in loader:
            logits = model(tokens.to(device))
            loss = nn.functional.cross_entropy(logits.flatten(0, 1), targets.to(device).flatten())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
            step += 1
            if step == args.steps:
                break
    print(f"trained on {ranks} ranks in {' '.join(sorted(seen))}: loss {losses[0]:.3f} to {losses[-1]:.3f}", flush=True)


if __name__ == "__main__":
    main()
