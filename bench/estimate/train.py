"""Trains a model of the list, as scripts for GPUs do: python train.py KIND NAME --batch N [--amp bf16] [--optimizer sgd] [--steps 4].

Random weights and random data: nothing is downloaded.
"""

import argparse
import contextlib
import json

import torch
from torch.utils.data import DataLoader, Dataset

LENGTH = 256


class Data(Dataset):
    def __init__(self, make, count=1 << 16):
        self.samples = [make() for _ in range(8)]
        self.count = count

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        return self.samples[index % len(self.samples)]


def picture(size):
    return lambda: {"x": torch.randn(3, size, size), "y": torch.randint(1000, ())}


def image_model(name, build):
    side = 299 if "inception" in name else 224
    criterion = torch.nn.CrossEntropyLoss()

    def loss(model, batch):
        out = model(batch["x"])
        return criterion(getattr(out, "logits", out), batch["y"])

    return build(), picture(side), loss


def text_model(name, settings):
    from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForMaskedLM, AutoModelForSeq2SeqLM

    settings = dict(settings)
    head = settings.pop("head")
    length = settings.pop("length", LENGTH)
    config = AutoConfig.for_model(settings.pop("type"), **settings)
    kind = {"causal": AutoModelForCausalLM, "masked": AutoModelForMaskedLM, "seq2seq": AutoModelForSeq2SeqLM}[head]
    model = kind.from_config(config)
    top = min(config.vocab_size, 1000)

    def sample():
        tokens = torch.randint(3, top, (length,))
        return {"input_ids": tokens, "attention_mask": torch.ones_like(tokens), "labels": tokens}

    return model, sample, lambda model, batch: model(**batch).loss


def build(kind, name):
    if kind == "torchvision":
        import torchvision

        return image_model(name, lambda: torchvision.models.get_model(name, weights=None))
    if kind == "timm":
        import timm

        return image_model(name, lambda: timm.create_model(name, pretrained=False))
    with open(__file__.replace("train.py", "models.json")) as file:
        return text_model(name, json.load(file)["transformers"][name])


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("kind")
    parser.add_argument("name")
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--amp", default="off")
    parser.add_argument("--optimizer", default="adamw")
    parser.add_argument("--steps", type=int, default=4)
    args = parser.parse_args()
    torch.manual_seed(0)
    model, sample, loss_of = build(args.kind, args.name)
    model.cuda().train()
    loader = DataLoader(Data(sample), batch_size=args.batch, drop_last=True)
    optimizer = (
        torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
        if args.optimizer == "sgd"
        else torch.optim.AdamW(model.parameters(), lr=1e-4)
    )
    for step, batch in enumerate(loader):
        if step == args.steps:
            break
        batch = {name: value.cuda(non_blocking=True) for name, value in batch.items()}
        optimizer.zero_grad()
        with torch.autocast("cuda", dtype=torch.bfloat16) if args.amp == "bf16" else contextlib.nullcontext():
            loss = loss_of(model, batch)
        loss.backward()
        optimizer.step()
    reserved, allocated = torch.cuda.max_memory_reserved(), torch.cuda.max_memory_allocated()
    print("PEAK", json.dumps({"reserved": reserved, "allocated": allocated, "loss": loss.item()}))


if __name__ == "__main__":
    main()
