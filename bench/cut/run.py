"""Runs each loop of loops.py alone, cut at the model's call and cut at the loader, and prints a table.

    python bench/cut/run.py [NAME ...] > bench/results/cut.md

The hook is told its micro-batch as `oomtune run` tells it: a quarter of the loop's batch. Nothing has to be built.
"""

import json
import os
import platform
import subprocess
import sys
import tempfile

import torch

from loops import BATCH, LOOPS

HERE = os.path.dirname(os.path.abspath(__file__))
PYTHON = os.path.join(HERE, "..", "..", "python")
PARTS = 4


def environment(cut, own):
    env = dict(os.environ, OMP_NUM_THREADS="1")
    if cut is not None:
        env.update(
            PYTHONPATH=os.pathsep.join([os.path.join(PYTHON, "inject"), PYTHON]),
            OOMTUNE_HOOK="apply",
            OOMTUNE_HOOK_KNOBS="micro_batch,accumulation",
            OOMTUNE_MICRO_BATCH=str(BATCH // PARTS),
            OOMTUNE_ACCUMULATION=str(PARTS * own),
            OOMTUNE_OWN_ACCUMULATION=str(own),
            OOMTUNE_CUT=cut,
        )
    return env


def figures(name, cut, folder):
    """(what the loop told, its weights); (the last line of its error, None) where it failed."""
    target = os.path.join(folder, "%s.%s" % (name, cut))
    env = environment(cut, 4 if name == "accumulating" else 1)
    command = [sys.executable, os.path.join(HERE, "loops.py"), name, target]
    done = subprocess.run(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, universal_newlines=True)
    if done.returncode != 0:
        return done.stderr.strip().split("\n")[-1], None
    return json.loads(done.stdout.strip().split("\n")[-1]), torch.load(target)


def difference(one, other):
    """The largest relative difference of a weight's tensor."""
    pairs = zip(one, other)
    return max(((a.double() - b.double()).norm() / a.double().norm().clamp_min(1e-30)).item() for a, b in pairs)


def row(kind, told, alone):
    said, weights = told
    if weights is None:
        return "| | %s | %s | | | | |" % (kind, said.replace("|", "/"))
    apart = "" if kind == "alone" else "%.1e" % difference(alone[1], weights)
    cells = (kind, said["rounds"], said["steps"], "%.9g" % said["lr"], "%.12g" % said["checksum"], apart)
    return "| | %s |" % " | ".join(str(cell) for cell in cells)


def main():
    names = sys.argv[1:] or list(LOOPS)
    print("| loop | | rounds | optimizer steps | learning rate at the end | checksum of the weights | relative difference |")
    print("|---|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        for name in names:
            print("| **%s** | %s | | | | | |" % (name, " ".join(LOOPS[name].__doc__.split())))
            alone = figures(name, None, folder)
            for kind, cut in (("alone", None), ("cut", "model"), ("`--cut loader`", "loader")):
                told = alone if cut is None else figures(name, cut, folder)
                print(row(kind, told, alone), flush=True)
    print()
    print("torch %s, Python %s, %s" % (torch.__version__, platform.python_version(), platform.machine()))


if __name__ == "__main__":
    main()
