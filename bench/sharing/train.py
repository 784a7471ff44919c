"""Ten kinds of training, each a plain PyTorch loop with a DataLoader: `train.py KIND`. Without a GPU everything is tiny.

REPLAY_STEPS: optimizer steps to make; without it REPLAY_SECONDS of steps (6) are made, to tell how fast the kind is.
REPLAY_LOG: a line of JSON is appended at the end: when the process began, when its first step was done, when its last.
"""

import contextlib
import json
import os
import sys
import time

BEGUN = time.time()

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset

CUDA = torch.cuda.is_available()
DEVICE = torch.device("cuda" if CUDA else "cpu")


class Rows(Dataset):
    """Tables and texts that are in memory: a sample is read, not made."""

    def __init__(self, inputs, targets, batch):
        self.inputs, self.targets = inputs, targets
        self.count = 2000 * batch

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        at = index % len(self.inputs)
        return self.inputs[at], self.targets[at]


class Pictures(Dataset):
    """Pictures of bytes, cropped and turned on the processor as in a usual pipeline; `noise`: with noise, to be taken off again."""

    def __init__(self, side, batch, classes=None, noise=False):
        self.side, self.classes, self.noise = side, classes, noise
        self.pictures = torch.randint(256, (32, 3, side + side // 7, side + side // 7), dtype=torch.uint8)
        self.count = 2000 * batch

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        top, left = torch.randint(self.side // 7, (2,)).tolist()
        picture = self.pictures[index % 32, :, top : top + self.side, left : left + self.side]
        if index % 2:
            picture = picture.flip(2)
        picture = picture.contiguous()
        if self.noise:
            return (picture + 20 * torch.randn(picture.shape)).clamp(0, 255).to(torch.uint8), picture
        if self.classes is not None:
            light = 0.6 + 0.8 * torch.rand(3, 1, 1)
            return (picture * light).clamp(0, 255).to(torch.uint8), index % self.classes
        return picture, (picture[:1] > 127).float()


class Graphs(Dataset):
    """Neighbours are drawn on the processor for each graph."""

    def __init__(self, nodes, neighbours, width, batch):
        self.nodes, self.neighbours, self.width = nodes, neighbours, width
        self.features = torch.randn(64, nodes, width)
        self.count = 2000 * batch

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        links = torch.randint(self.nodes, (self.nodes, self.neighbours))
        return (self.features[index % 64], links), index % 10


class Clicks(Dataset):
    def __init__(self, rows, batch):
        self.rows = rows
        self.count = 2000 * batch

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        return torch.randint(self.rows, (26,)), torch.tensor(float(index % 2))


class Block(nn.Module):
    def __init__(self, width, causal):
        super().__init__()
        self.heads, self.causal = max(1, width // 64), causal
        self.norms = nn.ModuleList([nn.LayerNorm(width), nn.LayerNorm(width)])
        self.enter, self.leave = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.wide = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x):
        batch, length, width = x.shape
        parts = self.enter(self.norms[0](x)).view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        seen = attention(*parts, self.causal).transpose(1, 2).reshape(batch, length, width)
        x = x + self.leave(seen)
        return x + self.wide(self.norms[1](x))


def attention(query, key, value, causal):
    if hasattr(F, "scaled_dot_product_attention"):
        return F.scaled_dot_product_attention(query, key, value, is_causal=causal)
    scores = query @ key.transpose(2, 3) / query.shape[-1] ** 0.5  # torch before 2.0
    if causal:
        scores = scores.masked_fill(torch.ones_like(scores, dtype=torch.bool).triu(1), float("-inf"))
    return scores.softmax(-1) @ value


class Transformer(nn.Module):
    """For texts (causal or not) and, in patches, for pictures."""

    def __init__(self, width, depth, length, outputs, words=None, patch=None, causal=False):
        super().__init__()
        self.causal, self.words = causal, words
        self.enter = nn.Embedding(words, width) if words else nn.Conv2d(3, width, patch, stride=patch)
        self.place = nn.Parameter(torch.zeros(1, length, width))
        self.blocks = nn.Sequential(*(Block(width, causal) for _ in range(depth)))
        self.leave = nn.Linear(width, outputs)

    def forward(self, x):
        x = self.enter(x) if self.words else self.enter(x.float() / 255).flatten(2).transpose(1, 2)
        x = self.blocks(x + self.place)
        return self.leave(x if self.causal else x.mean(1))


class Bottleneck(nn.Module):
    def __init__(self, inputs, width, stride):
        super().__init__()
        outputs = 4 * width
        self.body = nn.Sequential(
            nn.Conv2d(inputs, width, 1, bias=False),
            nn.BatchNorm2d(width),
            nn.ReLU(inplace=True),
            nn.Conv2d(width, width, 3, stride, 1, bias=False),
            nn.BatchNorm2d(width),
            nn.ReLU(inplace=True),
            nn.Conv2d(width, outputs, 1, bias=False),
            nn.BatchNorm2d(outputs),
        )
        same = stride == 1 and inputs == outputs
        self.side = nn.Identity() if same else nn.Conv2d(inputs, outputs, 1, stride, bias=False)

    def forward(self, x):
        return F.relu(self.body(x) + self.side(x))


class ResNet(nn.Module):
    def __init__(self, width, depths, classes):
        super().__init__()
        layers = [
            nn.Conv2d(3, width, 7, 2, 3, bias=False),
            nn.BatchNorm2d(width),
            nn.ReLU(inplace=True),
            nn.MaxPool2d(3, 2, 1),
        ]
        inputs = width
        for level, depth in enumerate(depths):
            for at in range(depth):
                layers.append(Bottleneck(inputs, width * 2**level, 2 if at == 0 and level > 0 else 1))
                inputs = 4 * width * 2**level
        self.body = nn.Sequential(*layers)
        self.leave = nn.Linear(inputs, classes)

    def forward(self, x):
        return self.leave(self.body(x.float() / 255).mean((2, 3)))


def conv(inputs, outputs):
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, 3, padding=1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU(inplace=True)
    )


class UNet(nn.Module):
    def __init__(self, width, depth):
        super().__init__()
        widths = [width * 2**level for level in range(depth + 1)]
        self.down = nn.ModuleList(nn.Sequential(conv(a, b), conv(b, b)) for a, b in zip([3] + widths[:-1], widths))
        self.up = nn.ModuleList(nn.ConvTranspose2d(2 * a, a, 2, stride=2) for a in widths[-2::-1])
        self.join = nn.ModuleList(nn.Sequential(conv(2 * a, a), conv(a, a)) for a in widths[-2::-1])
        self.leave = nn.Conv2d(width, 1, 1)

    def forward(self, x):
        x, sides = x.float() / 255, []
        for at, level in enumerate(self.down):
            x = level(F.max_pool2d(x, 2) if at else x)
            sides.append(x)
        sides.pop()
        for up, join in zip(self.up, self.join):
            x = join(torch.cat([up(x), sides.pop()], 1))
        return self.leave(x)


class Autoencoder(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.body = nn.Sequential(
            conv(3, width),
            nn.Conv2d(width, 2 * width, 4, 2, 1),
            nn.ReLU(inplace=True),
            nn.Conv2d(2 * width, 4 * width, 4, 2, 1),
            nn.ReLU(inplace=True),
            nn.ConvTranspose2d(4 * width, 2 * width, 4, 2, 1),
            nn.ReLU(inplace=True),
            nn.ConvTranspose2d(2 * width, width, 4, 2, 1),
            nn.BatchNorm2d(width),
            nn.ReLU(inplace=True),
            nn.Conv2d(width, 3, 3, padding=1),
        )

    def forward(self, x):
        return self.body(x.float() / 255)


class Recurrent(nn.Module):
    def __init__(self, words, width):
        super().__init__()
        self.enter = nn.Embedding(words, width)
        self.body = nn.LSTM(width, width, 2, batch_first=True)
        self.leave = nn.Linear(width, words)

    def forward(self, x):
        return self.leave(self.body(self.enter(x))[0])


class GraphNet(nn.Module):
    def __init__(self, width, depth):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(2 * width, width) for _ in range(depth))
        self.leave = nn.Linear(width, 10)

    def forward(self, inputs):
        x, links = inputs
        rows = torch.arange(len(x), device=x.device)[:, None, None]
        for layer in self.layers:
            x = F.relu(layer(torch.cat([x, x[rows, links].mean(2)], 2)))
        return self.leave(x.mean(1))


class Recommender(nn.Module):
    def __init__(self, rows, width):
        super().__init__()
        self.table = nn.EmbeddingBag(rows, width, sparse=True, mode="mean")
        self.body = nn.Sequential(nn.Linear(width, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 1))

    def forward(self, x):
        return self.body(self.table(x)).squeeze(1)


def perceptron(width, depth):
    layers = [layer for _ in range(depth) for layer in (nn.Linear(width, width), nn.LayerNorm(width), nn.GELU())]
    return nn.Sequential(*layers, nn.Linear(width, 10))


def texts(words, length, classes=None):
    tokens = torch.randint(words, (512, length + 1))
    return tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous() if classes is None else torch.arange(512) % classes


def classes(outputs, targets):
    return F.cross_entropy(outputs, targets)


def words(outputs, targets):
    return F.cross_entropy(outputs.flatten(0, 1), targets.flatten())


def picture(outputs, targets):
    return F.mse_loss(outputs, targets.float() / 255)


def big(large, small):
    return large if CUDA else small


def kinds():
    """Each: how its model is made, batch size, samples, loss, processes that make samples, whether in bfloat16."""
    width, depth = big(768, 32), big(12, 2)
    return {
        "mlp": (lambda: perceptron(big(2048, 64), 8),
                big(8192, 64), lambda b: Rows(torch.randn(4096, big(2048, 64)), torch.arange(4096) % 10, b), classes, 0, False),
        "recurrent": (lambda: Recurrent(big(30000, 500), big(1024, 32)),
                      big(128, 8), lambda b: Rows(*texts(big(30000, 500), big(64, 16)), b), words, 0, False),
        "graph": (lambda: GraphNet(big(256, 16), 4),
                  big(64, 4), lambda b: Graphs(big(1024, 32), 16, big(256, 16), b), classes, 2, False),
        "recommender": (lambda: Recommender(big(20_000_000, 5000), 64),
                        big(2048, 64), lambda b: Clicks(big(20_000_000, 5000), b), F.binary_cross_entropy_with_logits, 2, False),
        "resnet": (lambda: ResNet(big(64, 8), big([3, 4, 6, 3], [1, 1]), 1000),
                   big(128, 4), lambda b: Pictures(big(224, 28), b, 1000), classes, 2, True),
        "bert": (lambda: Transformer(width, depth, big(256, 16), 2, words=big(30522, 500)),
                 big(64, 4), lambda b: Rows(*texts(big(30522, 500), big(256, 16), 2), b), classes, 0, True),
        "unet": (lambda: UNet(big(64, 4), big(4, 2)),
                 big(64, 2), lambda b: Pictures(big(256, 28), b), F.binary_cross_entropy_with_logits, 2, True),
        "vit": (lambda: Transformer(width, depth, big(196, 4), 1000, patch=big(16, 14)),
                big(256, 4), lambda b: Pictures(big(224, 28), b, 1000), classes, 2, True),
        "gpt": (lambda: Transformer(width, depth, big(1024, 16), big(50304, 500), words=big(50304, 500), causal=True),
                big(24, 2), lambda b: Rows(*texts(big(50304, 500), big(1024, 16)), b), words, 0, True),
        "denoiser": (lambda: Autoencoder(big(64, 8)),
                     big(96, 2), lambda b: Pictures(big(512, 28), b, noise=True), picture, 2, True),
    }  # fmt: skip


def moved(batch):
    if isinstance(batch, torch.Tensor):
        return batch.to(DEVICE, non_blocking=True)
    return [moved(part) for part in batch]


def main():
    kind = sys.argv[1]
    steps = int(os.environ.get("REPLAY_STEPS", "0"))
    seconds = float(os.environ.get("REPLAY_SECONDS", "6"))
    torch.manual_seed(0)
    torch.set_num_threads(2)
    make, size, samples, criterion, workers, half = kinds()[kind]
    with DEVICE if CUDA else contextlib.nullcontext():  # weights are made where they are used: much faster
        model = make()
    loader = DataLoader(samples(size), size, shuffle=True, num_workers=workers, pin_memory=CUDA, drop_last=True)
    sparse = kind == "recommender"
    optimizer = torch.optim.SGD(model.parameters(), 1e-3) if sparse else torch.optim.AdamW(model.parameters(), 1e-4)
    precision = torch.autocast(DEVICE.type, torch.bfloat16, enabled=half and CUDA)
    done, first, warm = 0, None, None
    while True:
        for inputs, targets in loader:
            inputs, targets = moved(inputs), moved(targets)
            with precision:
                loss = criterion(model(inputs), targets)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            done += 1
            if done == 1 or done % 5 == 0:  # as often as a loss is printed
                loss.item()
                first = first or time.time()
            if done == 5:
                warm = time.time()
            if done == steps or (steps == 0 and done > 5 and done % 5 == 0 and time.time() > first + seconds):
                break
        else:
            continue
        break
    print(f"{kind}: loss {loss.item():.3f} after {done} steps", flush=True)
    note(
        kind,
        first=first,
        ended=time.time(),
        steps=done,
        steps_per_s=(done - 5) / (time.time() - warm) if done > 5 else None,
        torch_peak_bytes=torch.cuda.max_memory_allocated() if CUDA else None,
    )


def note(kind, **figures):
    log = os.environ.get("REPLAY_LOG")
    if log:
        line = {"kind": kind, "job": os.environ.get("OOMTUNE_JOB_ID"), "begun": BEGUN, **figures}
        with open(log, "a") as file:
            file.write(json.dumps(line) + "\n")


if __name__ == "__main__":
    try:
        main()
    except RuntimeError as error:
        if "out of memory" in str(error):
            note(sys.argv[1], oom=str(error)[:500])
        raise
