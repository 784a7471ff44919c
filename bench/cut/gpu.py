"""Seconds a sample of a step that is cut at the model's call, beside the same step uncut; one JSON object a line.

    python bench/cut/gpu.py                     # ResNet-50 and GPT-2, full precision and bf16
    python bench/cut/gpu.py --model gpt2 --batch 64 --parts 2 4 8

Needs torch, torchvision and transformers, a CUDA device, and this repository; nothing of it has to be built.
"""

import argparse
import contextlib
import json
import os
import statistics
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "python"))

import torch  # noqa: E402

from oomtune.hook.cut import Cut  # noqa: E402
from oomtune.hook.gate import Gate  # noqa: E402
from oomtune.hook.optimizer import Optimizers  # noqa: E402


class Nobody:
    """Listens to the optimizers' steps."""

    def before_step(self, optimizer):
        pass

    def after_step(self, optimizer):
        pass


def refuse(reason):
    raise SystemExit("not cut: %s" % reason)


def resnet50(batch, device):
    import torchvision

    model = torchvision.models.resnet50().to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    pictures = torch.randn(batch, 3, 224, 224, device=device)
    labels = torch.arange(batch, device=device) % 1000
    return model, optimizer, lambda: torch.nn.functional.cross_entropy(model(pictures), labels)


def gpt2(batch, device):
    from transformers import GPT2Config, GPT2LMHeadModel

    model = GPT2LMHeadModel(GPT2Config()).to(device)
    model.train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    tokens = torch.randint(50257, (batch, 512), device=device)
    return model, optimizer, lambda: model(input_ids=tokens, labels=tokens).loss


def mlp(batch, device):
    """For a look without a GPU: --device cpu --model mlp."""
    layers = [torch.nn.Linear(512, 512), torch.nn.ReLU()] * 6
    model = torch.nn.Sequential(*layers, torch.nn.Linear(512, 10)).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    rows = torch.randn(batch, 512, device=device)
    return model, optimizer, lambda: model(rows).pow(2).mean()


MODELS = {"resnet50": (resnet50, 256), "gpt2": (gpt2, 32), "mlp": (mlp, 1024)}


def measure(step, cut, steps, device):
    """(median seconds of a step, peak bytes)"""
    synchronize = torch.cuda.synchronize if device == "cuda" else (lambda: None)
    for _ in range(3):
        step()
        if cut.engaged:
            cut.stepped()
    synchronize()
    if device == "cuda":
        torch.cuda.reset_peak_memory_stats()
    seconds = []
    for _ in range(steps):
        synchronize()
        start = time.perf_counter()
        step()
        synchronize()
        seconds.append(time.perf_counter() - start)
    peak = torch.cuda.max_memory_allocated() if device == "cuda" else None
    return statistics.median(seconds), peak


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", choices=sorted(MODELS), nargs="*", default=["resnet50", "gpt2"])
    parser.add_argument("--amp", choices=("off", "bf16"), nargs="*", default=["off", "bf16"])
    parser.add_argument("--batch", type=int, help="samples of the uncut step")
    parser.add_argument("--parts", type=int, nargs="*", default=[2, 4, 8])
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--device", default="cuda")
    arguments = parser.parse_args()

    optimizers = Optimizers(torch, Gate(), Nobody())
    optimizers.install()
    backward = torch.autograd.backward
    running = []

    def watched(tensors, grad_tensors=None, *args, **kwargs):
        # As the hook's own watcher does: what runs inside of a plain backward() gathers in place.
        running.append(True)
        try:
            return backward(tensors, grad_tensors, *args, **kwargs)
        finally:
            running.pop()

    cut = Cut(torch, optimizers, refuse, lambda code, message: None, lambda: bool(running))
    cut.install()
    torch.autograd.backward = watched
    for name in arguments.model:
        make, batch = MODELS[name]
        batch = arguments.batch or batch
        for amp in arguments.amp:
            torch.manual_seed(0)
            model, optimizer, loss_of = make(batch, arguments.device)

            def step():
                autocast = torch.autocast(arguments.device, dtype=torch.bfloat16) if amp == "bf16" else contextlib.nullcontext()
                with autocast:
                    loss = loss_of()
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()

            alone = None
            for parts in [1] + arguments.parts:
                cut.release()
                if parts > 1:
                    cut.engage(-(-batch // parts), batch)
                seconds, peak = measure(step, cut, arguments.steps, arguments.device)
                alone = alone or seconds
                line = {
                    "model": name, "amp": amp, "batch": batch, "parts": parts, "step_s": round(seconds, 5),
                    "sample_ms": round(1000 * seconds / batch, 4), "times": round(seconds / alone, 3), "peak_bytes": peak,
                    "calls_cut": cut.count if parts > 1 else 0, "torch": torch.__version__,
                    "device": torch.cuda.get_device_name() if arguments.device == "cuda" else "cpu",
                }
                print(json.dumps(line), flush=True)
            cut.release()
            del model, optimizer, loss_of, step


if __name__ == "__main__":
    main()
