"""Training loops as people write them; each tells what it did.

    python loops.py NAME WEIGHTS.pt

Prints one JSON object: rounds of the loop, optimizer steps, the learning rate at its end, a checksum of the weights. Double precision,
unless a loop is about another.
"""

import json
import sys

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

BATCH = 256
F = nn.functional


class Count:
    rounds = steps = 0


def rows(count=2048, width=32):
    return TensorDataset(torch.randn(count, width), torch.randn(count, 4))


def net(width=32, out=4):
    return nn.Sequential(nn.Linear(width, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, out))


def step(optimizer, loss):
    Count.rounds += 1
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    Count.steps += 1


def counter():
    """`while step < 20`, over an iterator that is begun again"""
    model, loader = net(), DataLoader(rows(), batch_size=BATCH, shuffle=True)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    batches = iter(loader)
    while Count.steps < 20:
        try:
            x, y = next(batches)
        except StopIteration:
            batches = iter(loader)
            x, y = next(batches)
        step(optimizer, F.mse_loss(model(x), y))
    return model, optimizer


def break_at():
    """`if i == 5: break` in each epoch"""
    model, loader = net(), DataLoader(rows(), batch_size=BATCH, shuffle=True)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for _ in range(3):
        for i, (x, y) in enumerate(loader):
            if i == 5:
                break
            step(optimizer, F.mse_loss(model(x), y))
    return model, optimizer


def next_in_range():
    """`for _ in range(7): batch = next(it)`"""
    model, batches = net(), iter(DataLoader(rows(), batch_size=BATCH, shuffle=True))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    for _ in range(7):
        x, y = next(batches)
        step(optimizer, F.mse_loss(model(x), y))
    return model, optimizer


def one_cycle():
    """OneCycleLR(steps_per_epoch=len(loader), epochs=2)"""
    model, loader = net(), DataLoader(rows(), batch_size=BATCH, shuffle=True)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=0.2, steps_per_epoch=len(loader), epochs=2)
    for _ in range(2):
        for x, y in loader:
            step(optimizer, F.mse_loss(model(x), y))
            schedule.step()
    return model, optimizer


def clipped_epochs():
    """epochs with clipping, a schedule by epoch and a shorter last batch"""
    model, loader = net(), DataLoader(rows(2000), batch_size=BATCH, shuffle=True)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 5)
    for _ in range(3):
        for x, y in loader:
            Count.rounds += 1
            optimizer.zero_grad()
            F.mse_loss(model(x), y).backward()
            nn.utils.clip_grad_norm_(model.parameters(), 0.1)
            optimizer.step()
            Count.steps += 1
        schedule.step()
    return model, optimizer


def contrastive():
    """two towers, each sample against all others of the batch"""
    model = nn.ModuleDict({"text": net(), "image": net()})
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for x, _ in DataLoader(rows(), batch_size=BATCH, shuffle=True):
        one, two = F.normalize(model["text"](x), dim=1), F.normalize(model["image"](x.flip(1)), dim=1)
        step(optimizer, F.cross_entropy(one @ two.t() / 0.1, torch.arange(len(x))))
    return model, optimizer


def summed():
    """a loss that sums over the batch"""
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    for x, y in DataLoader(rows(), batch_size=BATCH):
        step(optimizer, nn.MSELoss(reduction="sum")(model(x), y))
    return model, optimizer


def sentences():
    tokens = torch.randint(1, 100, (1024, 16))
    wanted = tokens.roll(-1, 1)
    wanted[torch.rand(1024, 16) < torch.rand(1024, 1)] = -100
    return TensorDataset(tokens, wanted)


def token_mean():
    """a mean over the tokens that are not padding"""
    model = nn.Sequential(nn.Embedding(100, 32), nn.Linear(32, 64), nn.GELU(), nn.Linear(64, 100))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    for tokens, wanted in DataLoader(sentences(), batch_size=BATCH, shuffle=True):
        step(optimizer, F.cross_entropy(model(tokens).flatten(0, 1), wanted.flatten(), ignore_index=-100))
    return model, optimizer


class Speaker(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Embedding(100, 32), nn.Linear(32, 64), nn.GELU(), nn.Linear(64, 100))

    def forward(self, tokens, wanted=None):
        logits = self.body(tokens)
        return logits, F.cross_entropy(logits.view(-1, 100), wanted.view(-1), ignore_index=-100)


def loss_inside():
    """the module makes the loss itself, as minGPT does"""
    model = Speaker()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    for tokens, wanted in DataLoader(sentences(), batch_size=BATCH, shuffle=True):
        _, loss = model(tokens, wanted)
        step(optimizer, loss)
    return model, optimizer


def gan():
    """a generator and its critic, an optimizer each"""
    model = nn.ModuleDict({"generator": net(out=32), "critic": net(out=1)})
    makes, judges = (torch.optim.Adam(model[name].parameters(), lr=1e-3) for name in ("generator", "critic"))
    for x, _ in DataLoader(rows(), batch_size=BATCH, shuffle=True):
        noise = torch.randn(len(x), 32)
        judges.zero_grad()
        fake = model["generator"](noise)
        (F.softplus(-model["critic"](x)).mean() + F.softplus(model["critic"](fake.detach())).mean()).backward()
        judges.step()
        step(makes, F.softplus(-model["critic"](model["generator"](noise))).mean())
    return model, makes


def penalty():
    """a penalty on the critic's slope: second derivatives"""
    model = net(out=1)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for x, _ in DataLoader(rows(), batch_size=BATCH, shuffle=True):
        x.requires_grad_()
        slope = torch.autograd.grad(model(x).sum(), x, create_graph=True)[0]
        step(optimizer, model(x).mean() + (slope.norm(dim=1) - 1).pow(2).mean())
    return model, optimizer


def average():
    """a moving average of the weights, by hand, in every round; the average is compared"""
    model = net()
    kept = net()
    kept.load_state_dict(model.state_dict())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for x, y in DataLoader(rows(), batch_size=BATCH, shuffle=True):
        step(optimizer, F.mse_loss(model(x), y))
        with torch.no_grad():
            for old, new in zip(kept.parameters(), model.parameters()):
                old.lerp_(new, 0.1)
    return kept, optimizer


def lbfgs():
    """LBFGS with a closure"""
    model = net()
    optimizer = torch.optim.LBFGS(model.parameters(), lr=0.5, max_iter=4)
    for x, y in DataLoader(rows(), batch_size=BATCH):
        Count.rounds += 1

        def closure():
            optimizer.zero_grad()
            loss = F.mse_loss(model(x), y)
            loss.backward()
            return loss

        optimizer.step(closure)
        Count.steps += 1
    return model, optimizer


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer, self.head = nn.GRU(8, 32), nn.Linear(32, 4)

    def forward(self, x):
        return self.head(self.layer(x)[0][-1])


def time_first():
    """sequences with time first, in a recurrent model"""
    model = Recurrent()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    data = TensorDataset(torch.randn(1024, 12, 8), torch.randn(1024, 4))
    for x, y in DataLoader(data, batch_size=BATCH, shuffle=True):
        step(optimizer, F.mse_loss(model(x.transpose(0, 1)), y))
    return model, optimizer


def accumulating():
    """a loop that steps once in four batches by itself"""
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for i, (x, y) in enumerate(DataLoader(rows(), batch_size=BATCH, shuffle=True)):
        Count.rounds += 1
        (F.mse_loss(model(x), y) / 4).backward()
        if (i + 1) % 4 == 0:
            optimizer.step()
            optimizer.zero_grad()
            Count.steps += 1
    return model, optimizer


def single():
    """single precision, by epochs"""
    torch.set_default_dtype(torch.float32)
    model = net()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for _ in range(3):
        for x, y in DataLoader(rows(), batch_size=BATCH, shuffle=True):
            step(optimizer, F.mse_loss(model(x), y))
    return model, optimizer


LOOPS = {
    made.__name__: made
    for made in (
        counter, break_at, next_in_range, one_cycle, clipped_epochs, contrastive, summed, token_mean, loss_inside, gan,
        penalty, average, lbfgs, time_first, accumulating, single,
    )
}


def main():
    name, target = sys.argv[1:3]
    torch.set_default_dtype(torch.float64)
    torch.manual_seed(0)
    model, optimizer = LOOPS[name]()
    weights = [parameter.detach().clone() for parameter in model.parameters()]
    torch.save(weights, target)
    checksum = sum(weight.double().abs().sum().item() for weight in weights)
    print(json.dumps({"rounds": Count.rounds, "steps": Count.steps, "lr": optimizer.param_groups[0]["lr"], "checksum": checksum}))


if __name__ == "__main__":
    main()
