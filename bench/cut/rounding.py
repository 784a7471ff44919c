"""How far rounding alone reaches: contrastive loops of loops.py beside themselves with each batch's samples in another order, and cut.

    python bench/cut/rounding.py

Nothing is cut in the first: sums over the batch are only added up in another order. Double precision, on the CPU, for towers with residual
connections, and for 24 layers of tanh, whose outputs differ by millionths: what they learn from is the difference of nearly equal numbers.
"""

import os

os.environ.update(LOOP_BATCH="2048", LOOP_DEPTH="24")

import torch  # noqa: E402

import loops  # noqa: E402
from cost import Bench  # noqa: E402


def trained(cut, tower, micro=None, another_order=False):
    """(weights, how much the first tower's outputs differ from one another, by their size)"""
    torch.manual_seed(0)
    loader = loops.DataLoader

    def collate(samples):
        order = torch.randperm(len(samples), generator=torch.Generator().manual_seed(1)) if another_order else range(len(samples))
        return torch.utils.data.default_collate([samples[row] for row in order])

    loops.DataLoader = lambda *args, **options: loader(*args, collate_fn=collate, **options)
    if micro:
        cut.engage(micro, loops.BATCH)
    try:
        model, _ = loops.contrastive(tower)
    finally:
        loops.DataLoader = loader
        cut.release()
    with torch.no_grad():
        outputs = model["text"](torch.randn(512, 32))
    return [weight.detach() for weight in model.parameters()], float(outputs.std(0).norm() / outputs.norm(dim=1).mean())


def apart(one, other):
    """The largest relative difference of a weight's tensor."""
    return max(((a - b).norm() / a.norm().clamp_min(1e-6)).item() for a, b in zip(one, other))


def main():
    torch.set_default_dtype(torch.float64)
    cut = Bench("cpu", 1).cut
    print("| towers | outputs differ by | weights: samples in another order | cut, 256 x 8 |")
    print("|---|---|---|---|")
    for name, tower in (("residual", loops.tower), ("24 x tanh", loops.net)):
        alone, differ = trained(cut, tower)
        ordered, parts = trained(cut, tower, another_order=True)[0], trained(cut, tower, 256)[0]
        print("| %s | %.0e | %.1e | %.1e |" % (name, differ, apart(alone, ordered), apart(alone, parts)), flush=True)


if __name__ == "__main__":
    main()
