"""Whether what waits on the host trains the same on a GPU, bit by bit, and what it leaves on the device: each kind of optimizer with its state there, and
activations that stream. `python bench/rungs/equal.py [cuda:0] [steps] [optimizer,…]`: a line for each, and status 1 if one differs. Each run is a process of its own with
the hook as `oomtune run` starts it; the plain one runs twice, which shows whether the device itself computes the same each time."""

import json
import os
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
OPTIMIZERS = [
    ("AdamW", {}),
    ("AdamW", {"fused": True}),
    ("AdamW", {"foreach": False, "amsgrad": True}),
    ("SGD", {"lr": 0.01, "momentum": 0.9}),
    ("RMSprop", {"momentum": 0.9}),
    ("Adagrad", {}),
    ("NAdam", {}),
]
ACTIVATIONS = {
    "offload of 0.3": {"offload": "1", "offloaded_part": "0.3"},
    "offload of 0.6": {"offload": "1", "offloaded_part": "0.6"},
    "offload": {"offload": "1"},
    "checkpointing + offload": {"checkpointing": "1", "offload": "1"},
}


def train(device, steps, kind, options, file):
    import torch
    from torch import nn
    from torch.utils.data import DataLoader, TensorDataset

    torch.use_deterministic_algorithms(True)
    torch.manual_seed(0)
    blocks = [nn.Sequential(nn.Linear(1024, 1024), nn.LayerNorm(1024), nn.GELU()) for _ in range(16)]
    model = nn.Sequential(*blocks, nn.Linear(1024, 16)).to(device)
    optimizer = getattr(torch.optim, kind)(model.parameters(), **options)
    rows = 4096 if device != "cpu" else 64
    losses = []
    data = TensorDataset(torch.randn(rows * steps, 1024), torch.randint(16, (rows * steps,)))
    for x, y in DataLoader(data, batch_size=rows):
        optimizer.zero_grad(set_to_none=True)
        loss = nn.functional.cross_entropy(model(x.to(device)), y.to(device))
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    peak = torch.cuda.max_memory_allocated() if device != "cpu" else 0
    saved = {"losses": losses, "weights": model.state_dict(), "optimizer": optimizer.state_dict(), "peak": peak}
    torch.save(saved, file)


def ran(folder, device, steps, kind, options, knobs):
    file = os.path.join(folder, "saved.pt")
    env = dict(os.environ, CUBLAS_WORKSPACE_CONFIG=":4096:8", OOMTUNE_HOOK="apply", OOMTUNE_HOOK_KNOBS=",".join(knobs))
    env["PYTHONPATH"] = os.pathsep.join([os.path.join(ROOT, "python", "inject"), os.path.join(ROOT, "python")])
    env.update({"OOMTUNE_" + name.upper(): value for name, value in knobs.items()})
    command = [sys.executable, os.path.abspath(__file__), "--train", device, str(steps), kind, json.dumps(options), file]
    subprocess.run(command, env=env, check=True)
    import torch

    return torch.load(file, map_location="cpu")


def same(one, other):
    import torch

    if isinstance(one, torch.Tensor):
        return torch.equal(one, other)
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    return len(one) == len(other) and all(map(same, one, other)) if isinstance(one, list) else one == other


def main(device="cuda:0", steps="12", only=""):
    differs = False
    wanted_kinds = only.split(",") if only else [kind for kind, _ in OPTIMIZERS]
    with tempfile.TemporaryDirectory() as folder:
        for kind, options in [each for each in OPTIMIZERS if each[0] in wanted_kinds]:
            plain, again = (ran(folder, device, steps, kind, options, {}) for _ in range(2))
            wanted = {"again": {}, "optimizer on host": {"optimizer_on_host": "1"}}
            wanted.update(ACTIVATIONS if (kind, options) == OPTIMIZERS[0] else {})
            for name, knobs in wanted.items():
                found = ran(folder, device, steps, kind, options, knobs) if knobs else again
                equal = all(same(plain[part], found[part]) for part in ("losses", "weights", "optimizer"))
                differs = differs or not equal
                peaks = [round(each["peak"] / 2**20) for each in (plain, found)]
                told = [kind, json.dumps(options), name, "equal" if equal else "DIFFERS", "peak %d -> %d MiB" % tuple(peaks)]
                print("  ".join(told), flush=True)
    return int(differs)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--train"]:
        device, steps, kind, options, file = sys.argv[2:]
        train(device, int(steps), kind, json.loads(options), file)
    else:
        sys.exit(main(*sys.argv[1:]))
