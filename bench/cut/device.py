"""What only a CUDA device can show of the cut: its random numbers, loss scaling in fp16, several devices in one process.

    python bench/cut/device.py

A line for each point; ends with status 1 where one does not hold. Needs torch and a CUDA device, nothing that has to be built. With two
devices torch.nn.DataParallel is tried, too.
"""

import copy
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "python"))

import torch  # noqa: E402
from torch import nn  # noqa: E402

from cost import Bench  # noqa: E402

failed = []


def holds(what, difference, most):
    print("%s %s (relative difference %.1e, at most %.0e)" % ("ok  " if difference <= most else "FAIL", what, difference, most))
    if not difference <= most:
        failed.append(what)


def apart(one, other):
    return max(((a - b).norm() / a.norm().clamp_min(1e-6)).item() for a, b in zip(one, other))


def net(drop=0.0):
    layers = [nn.Linear(32, 128), nn.GELU(), nn.Dropout(drop), nn.Linear(128, 128), nn.GELU(), nn.Dropout(drop), nn.Linear(128, 8)]
    return nn.Sequential(*layers).cuda()


def dropout(cut):
    """The draws of a micro-batch's forward pass and of its recomputation are the same, and the generator ends where it would."""
    torch.manual_seed(0)
    model = net(0.3).double()
    kept = torch.optim.SGD(model.parameters(), lr=0.1)
    x = torch.randn(256, 32, device="cuda", dtype=torch.float64)
    cut.engage(64, 256)
    torch.cuda.manual_seed(5)
    model(x).pow(2).mean().backward()
    state = torch.cuda.get_rng_state()
    cut.release()
    found = [parameter.grad.clone() for parameter in model.parameters()]
    kept.zero_grad()
    torch.cuda.manual_seed(5)
    torch.cat([model(part) for part in x.split(64)]).pow(2).mean().backward()
    holds("dropout draws the same again", apart([parameter.grad for parameter in model.parameters()], found), 1e-12)
    holds("the generator ends in the same state", float((state != torch.cuda.get_rng_state()).sum()), 0)


def trained(cut, model, micro, half=False, steps=8):
    model = copy.deepcopy(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    scaler = torch.amp.GradScaler("cuda", enabled=half, init_scale=1024.0)
    if micro:
        cut.engage(micro, 256)
    for step in range(steps):
        torch.manual_seed(step)
        x = torch.randn(256, 32, device="cuda")
        optimizer.zero_grad()
        with torch.autocast("cuda", dtype=torch.float16, enabled=half):
            loss = (model(x).float() - x[:, :8]).pow(2).mean()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
    cut.release()
    return [parameter.detach().clone() for parameter in model.parameters()], scaler.get_scale()


def main():
    cut = Bench("cuda", 1).cut
    dropout(cut)
    torch.manual_seed(1)
    model = net()
    (alone, _), (parts, _) = trained(cut, model, None), trained(cut, model, 64)
    holds("weights in single precision", apart(alone, parts), 1e-5)
    (alone, one), (parts, other) = trained(cut, model, None, True), trained(cut, model, 64, True)
    holds("weights in fp16 with a loss scaler", apart(alone, parts), 1e-2)
    holds("the scale at the end", abs(one - other) / one, 0)
    if torch.cuda.device_count() > 1:
        wrapped = nn.DataParallel(model)
        (alone, _), (parts, _) = trained(cut, wrapped, None), trained(cut, wrapped, 64)
        holds("weights with DataParallel on %d devices" % torch.cuda.device_count(), apart(alone, parts), 1e-5)
    else:
        print("--   DataParallel: one device only")
    print("torch %s, %s" % (torch.__version__, torch.cuda.get_device_name()))
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
