"""Runs each loop of loops.py alone, under a budget that forces `oomtune run` to cut its batch, and cut at the loader; prints a table.

    python bench/cut/run.py [NAME ...]

The budget is a part of the peak that the loop has alone, as `oomtune run --no-tune` measures it; memory is the CPU's. oomtune has to be
built, and keeps what it records in a folder of this run's own.
"""

import json
import os
import platform
import subprocess
import sys
import tempfile

import torch

from loops import LOOPS

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.join(HERE, "..", "..")
OOMTUNE = ["node", os.path.join(ROOT, "bin", "oomtune.js")]
BATCH, DEPTH = 2048, 24
#: Parts of the peak of the uncut loop that are tried as a budget, until the batch is cut.
BUDGETS = (0.6, 0.75, 0.5, 0.9)
MIB = 2**20


class Bench:
    def __init__(self, folder):
        self._folder = folder
        self._env = dict(os.environ, OMP_NUM_THREADS="1", OOMTUNE_HOME=os.path.join(folder, "home"), HF_HUB_OFFLINE="1", LOOP_BATCH=str(BATCH), LOOP_DEPTH=str(DEPTH))
        self._count = 0

    def loop(self, name, before=(), **env):
        """(what the loop told, its weights, its standard error); (None, None, …) where it failed."""
        self._count += 1
        target = os.path.join(self._folder, "weights.%d" % self._count)
        command = [*before, sys.executable, os.path.join(HERE, "loops.py"), name, target]
        done = subprocess.run(
            command, env=dict(self._env, **env), cwd=self._folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, universal_newlines=True
        )
        if done.returncode != 0:
            return None, None, done.stderr
        return json.loads(done.stdout.strip().split("\n")[-1]), torch.load(target), done.stderr

    def run(self, name, budget, *options):
        """The loop under `oomtune run`: (as loop() has it, the report)."""
        report = os.path.join(self._folder, "report.json")
        about = ["run", "--device", "cpu", "--budget", "%dKiB" % (budget // 1024), "--report", report, *options, "--"]
        told = self.loop(name, OOMTUNE + about)
        with open(report) as file:
            return told, json.load(file)

    def budgeted(self, name):
        """The loop under the first budget that makes oomtune cut its batch: (told, report, bytes)."""
        _, alone = self.run(name, 8 * 2**30, "--no-tune")
        peak = alone["devices"][0]["peak_bytes"]
        for part in BUDGETS:
            budget = int(part * peak)
            told, report = self.run(name, budget, "--amp", "off", "--checkpointing", "off")
            if told[0] is not None and report["cut"] is not None:
                return told, report, budget, peak
        raise SystemExit("%s: no budget of %d bytes or less made it cut: %s" % (name, peak, told[2][-2000:]))

    def at_loader(self, name, micro, accumulation):
        own = 4 if name == "accumulating" else 1
        python = os.path.join(ROOT, "python")
        return self.loop(
            name,
            PYTHONPATH=os.pathsep.join([os.path.join(python, "inject"), python]),
            OOMTUNE_HOOK="apply",
            OOMTUNE_HOOK_KNOBS="micro_batch,accumulation",
            OOMTUNE_MICRO_BATCH=str(micro),
            OOMTUNE_ACCUMULATION=str(accumulation),
            OOMTUNE_OWN_ACCUMULATION=str(own),
            OOMTUNE_CUT="loader",
        )

    def close(self):
        subprocess.run(OOMTUNE + ["redis", "stop"], env=self._env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def difference(one, other):
    """The largest relative difference of a weight's tensor; those that are nothing but rounding do not count."""
    pairs = zip(one, other)
    return max(((a.double() - b.double()).norm() / a.double().norm().clamp_min(1e-6)).item() for a, b in pairs)


def row(kind, size, told, alone):
    said, weights, errors = told
    if said is None:
        return "| | %s | %s | %s | | | | |" % (kind, size, errors.strip().split("\n")[-1].replace("|", "/"))
    apart = "" if kind == "alone" else "%.1e" % difference(alone[1], weights)
    cells = (kind, size, said["rounds"], said["steps"], "%.9g" % said["lr"], "%.12g" % said["checksum"], apart)
    return "| | %s |" % " | ".join(str(cell) for cell in cells)


def main():
    names = sys.argv[1:] or list(LOOPS)
    print("| loop | | micro-batches | rounds | optimizer steps | learning rate at the end | checksum of the weights | relative difference |")
    print("|---|---|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(folder)
        try:
            for name in names:
                alone = bench.loop(name)
                print("| **%s** | %s | | | | | | |" % (name, " ".join(LOOPS[name].__doc__.split())))
                print(row("alone", "", alone, None), flush=True)
                told, report, budget, peak = bench.budgeted(name)
                config, cut = report["config"], report["cut"]["cut"]
                size = "%d x %d" % (config["micro_batch"], config["accumulation"])
                kind = "budget %.0f of %.0f MiB, cut at the %s" % (budget / MIB, peak / MIB, cut)
                print(row(kind, size, told, alone), flush=True)
                if cut == "model":
                    at_loader = bench.at_loader(name, config["micro_batch"], config["accumulation"])
                    print(row("`--cut loader`", size, at_loader, alone), flush=True)
        finally:
            bench.close()
    print("\ntorch %s, Python %s, %s" % (torch.__version__, platform.python_version(), platform.machine()))


if __name__ == "__main__":
    main()
