"""Training loops as people write them; each tells what it did.

    LOOP_BATCH=256 LOOP_DEPTH=1 python loops.py NAME WEIGHTS.pt

Prints one JSON object: rounds of the loop, optimizer steps, the learning rate at its end, a checksum of the weights. Double precision,
unless a loop is about another. A larger batch and more layers make it large enough for a budget on the CPU to be felt.
"""

import json
import os
import sys
import tempfile

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

BATCH = int(os.environ.get("LOOP_BATCH", 256))
#: Inner layers of the nets.
DEPTH = int(os.environ.get("LOOP_DEPTH", 1))
F = nn.functional


class Count:
    rounds = steps = 0


def rows(count=8 * BATCH, width=32):
    return TensorDataset(torch.randn(count, width), torch.randn(count, 4))


def net(width=32, out=4):
    return nn.Sequential(nn.Linear(width, 64), nn.Tanh(), *inner(), nn.Linear(64, out))


def inner(depth=DEPTH):
    return [layer for _ in range(depth) for layer in (nn.Linear(64, 64), nn.Tanh())]


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
    model, loader = net(), DataLoader(rows(8 * BATCH - 48), batch_size=BATCH, shuffle=True)
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


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Sequential(nn.LayerNorm(64), nn.Linear(64, 64), nn.GELU(), nn.Linear(64, 64))

    def forward(self, x):
        return x + self.inner(x)


def tower():
    return nn.Sequential(nn.Linear(32, 64), *[Block() for _ in range(DEPTH // 2)], nn.LayerNorm(64), nn.Linear(64, 32, bias=False))


def contrastive(tower=tower):
    """two towers, each sample against all others of the batch"""
    model = nn.ModuleDict({"text": tower(), "image": tower()})
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
    count = 4 * BATCH
    tokens = torch.randint(1, 100, (count, 16))
    wanted = tokens.roll(-1, 1)
    wanted[torch.rand(count, 16) < torch.rand(count, 1)] = -100
    return TensorDataset(tokens, wanted)


def speaker():
    return nn.Sequential(nn.Embedding(100, 32), nn.Linear(32, 64), nn.GELU(), *inner(DEPTH // 8), nn.Linear(64, 100))


def token_mean():
    """a mean over the tokens that are not padding"""
    model = speaker()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    for tokens, wanted in DataLoader(sentences(), batch_size=BATCH, shuffle=True):
        step(optimizer, F.cross_entropy(model(tokens).flatten(0, 1), wanted.flatten(), ignore_index=-100))
    return model, optimizer


class Speaker(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = speaker()

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
        self.layer, self.head = nn.GRU(8, 32), nn.Sequential(nn.Linear(32, 64), *inner(DEPTH - 1), nn.Linear(64, 4))

    def forward(self, x):
        return self.head(self.layer(x)[0][-1])


def time_first():
    """sequences with time first, in a recurrent model"""
    model = Recurrent()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    data = TensorDataset(torch.randn(4 * BATCH, 12, 8), torch.randn(4 * BATCH, 4))
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


def checkpoints():
    """a checkpoint every third step and `if step >= max_steps: break`, begun again from the last of them"""
    model, kept = net(), None
    loader = DataLoader(rows(), batch_size=BATCH, shuffle=True)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    while Count.steps < 11:
        for x, y in loader:
            step(optimizer, F.mse_loss(model(x), y))
            if Count.steps % 3 == 0:
                kept = {name: value.clone() for name, value in model.state_dict().items()}
            if Count.steps >= 11:
                break
    model.load_state_dict(kept)
    return model, optimizer


def language_model(dropout=0.0):
    import transformers

    config = transformers.GPT2Config(
        vocab_size=100, n_positions=16, n_embd=32, n_layer=2, n_head=2, bos_token_id=1, eos_token_id=1, resid_pdrop=dropout,
        embd_pdrop=dropout, attn_pdrop=dropout,
    )
    return transformers.GPT2LMHeadModel(config)


class Texts(torch.utils.data.Dataset):
    def __init__(self):
        self.tokens = torch.randint(1, 100, (BATCH, 16))
        self.labels = self.tokens.masked_fill(torch.rand(BATCH, 16) < torch.rand(BATCH, 1), -100)

    def __len__(self):
        return len(self.tokens)

    def __getitem__(self, row):
        return {"input_ids": self.tokens[row], "labels": self.labels[row]}


def hf_labels():
    """transformers' GPT-2 in a loop of one's own, `model(**batch).loss`"""
    model = language_model()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.0, 8)
    for _ in range(2):
        for batch in DataLoader(Texts(), batch_size=BATCH // 4, shuffle=True):
            step(optimizer, model(**batch).loss)
            schedule.step()
    return model, optimizer


def hf_accelerate():
    """the same with accelerate, its scheduler and its clipping"""
    import accelerate

    accelerator = accelerate.Accelerator(cpu=True)
    model = language_model()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.0, 8)
    loader = DataLoader(Texts(), batch_size=BATCH // 4, shuffle=True)
    model, optimizer, loader, schedule = accelerator.prepare(model, optimizer, loader, schedule)
    for _ in range(2):
        for batch in loader:
            Count.rounds += 1
            accelerator.backward(model(**batch).loss)
            accelerator.clip_grad_norm_(model.parameters(), 0.5)
            optimizer.step()
            schedule.step()
            optimizer.zero_grad()
            Count.steps += 1
    return model, optimizer


def hf_trainer():
    """transformers' Trainer, `max_steps` and a linear schedule: it accumulates by itself"""
    import transformers

    with tempfile.TemporaryDirectory() as folder:
        arguments = transformers.TrainingArguments(
            folder, max_steps=6, per_device_train_batch_size=BATCH // 4, learning_rate=1e-3, report_to=[], save_strategy="no",
            use_cpu=True, disable_tqdm=True, logging_strategy="no",
        )
        trainer = transformers.Trainer(language_model(), arguments, train_dataset=Texts())
        trainer.train()
    Count.rounds = Count.steps = trainer.state.global_step
    return trainer.model, trainer.optimizer


def lightning():
    """Lightning, OneCycleLR of `estimated_stepping_batches` and clipping: it accumulates by itself"""
    try:
        import lightning.pytorch as frame
    except ImportError:
        import pytorch_lightning as frame
    import logging
    import warnings

    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    warnings.simplefilter("ignore")

    class Module(frame.LightningModule):
        def __init__(self):
            super().__init__()
            self.net = net()

        def training_step(self, batch, number):
            return F.mse_loss(self.net(batch[0]), batch[1])

        def configure_optimizers(self):
            optimizer = torch.optim.SGD(self.parameters(), lr=0.1)
            steps = self.trainer.estimated_stepping_batches
            schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=0.2, total_steps=steps)
            return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}

    with tempfile.TemporaryDirectory() as folder:
        trainer = frame.Trainer(
            max_epochs=2, accelerator="cpu", logger=False, enable_checkpointing=False, enable_progress_bar=False, gradient_clip_val=0.5,
            enable_model_summary=False, default_root_dir=folder,
        )
        module = Module()
        trainer.fit(module, DataLoader(rows(), batch_size=BATCH, shuffle=True))
    Count.rounds = Count.steps = trainer.global_step
    return module, trainer.optimizers[0]


LOOPS = {
    made.__name__: made
    for made in (
        counter, break_at, next_in_range, one_cycle, clipped_epochs, contrastive, summed, token_mean, loss_inside, gan,
        penalty, average, lbfgs, time_first, accumulating, single, checkpoints, hf_labels, hf_accelerate, hf_trainer, lightning,
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
    print(json.dumps({"rounds": Count.rounds, "steps": Count.steps, "lr": float(optimizer.param_groups[0]["lr"]), "checksum": checksum}))


if __name__ == "__main__":
    main()
