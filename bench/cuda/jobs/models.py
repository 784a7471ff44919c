"""The two models of the exactness and cost measurements, with random weights and data: nothing is downloaded."""

import torch
from torch import nn


def resnet50(batch: int):
    import torchvision

    model = torchvision.models.resnet50().cuda().to(memory_format=torch.channels_last)
    x = torch.randn(batch, 3, 224, 224, device="cuda").to(memory_format=torch.channels_last)
    y = torch.randint(0, 1000, (batch,), device="cuda")
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)
    return model, optimizer, lambda: nn.functional.cross_entropy(model(x), y)


def gpt2(batch: int):
    import transformers

    config = transformers.GPT2Config(n_positions=256, use_cache=False)
    model = transformers.GPT2LMHeadModel(config).cuda()
    x = torch.randint(0, config.vocab_size, (batch, 256), device="cuda")
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    return model, optimizer, lambda: model(input_ids=x, labels=x).loss


def mlp(batch: int):
    """Launch-bound: many small kernels."""
    model = nn.Sequential(*[layer for _ in range(24) for layer in (nn.Linear(128, 128), nn.ReLU())]).cuda()
    x = torch.randn(batch, 128, device="cuda")
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    return model, optimizer, lambda: model(x).square().mean()


MODELS = {"resnet50": resnet50, "gpt2": gpt2, "mlp": mlp}


class Training:
    def __init__(self, name: str, batch: int):
        self.model, self.optimizer, self.loss = MODELS[name](batch)

    def step(self) -> None:
        self.optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cuda", torch.bfloat16):
            loss = self.loss()
        loss.backward()
        self.optimizer.step()
