#!/usr/bin/env python3
"""Runs the batch size finders of accelerate and Lightning on an unmodified training script, in one process as they do.

    python3 bench/search/finders.py accelerate|power|binsearch SCRIPT

Each attempt runs the script's whole main() anew at the finder's size, to the third optimizer step. Prints one line of JSON.
accelerate starts at 1024, Lightning at 2; all else is as they come.
"""

import gc
import json
import runpy
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "driver"))

import loops  # noqa: E402

STEPS = 3


class Enough(Exception):
    """The attempt has made its steps."""


class Script:
    def __init__(self, path):
        self.path, self.size, self.sizes = path, None, []

    def install(self):
        def finish(seconds):
            raise Enough

        loops.limit(lambda: self.size, STEPS, finish)

    def attempt(self, size):
        """Lets the script's own out-of-memory error pass through."""
        self.sizes.append(size)
        self.size = size
        try:
            runpy.run_path(self.path, run_name="__main__")
        except Enough as enough:
            enough.__traceback__ = None  # it holds the script's frames, and they its model
        finally:
            self.size = None
        gc.collect()


def accelerate(script):
    from accelerate.utils import find_executable_batch_size

    found = []

    @find_executable_batch_size(starting_batch_size=1024)
    def run(batch_size):
        script.attempt(batch_size)
        found.append(batch_size)

    run()
    return found[-1]


def lightning(script, mode):
    import torch

    try:
        import lightning.pytorch as pl
        from lightning.pytorch.plugins.environments import LightningEnvironment
        from lightning.pytorch.tuner import Tuner
    except ImportError:
        import pytorch_lightning as pl
        from pytorch_lightning.plugins.environments import LightningEnvironment
        from pytorch_lightning.tuner import Tuner

    class Module(pl.LightningModule):
        """One training step of it is one attempt."""

        def __init__(self):
            super().__init__()
            self.batch_size = 2
            self.unused = torch.nn.Parameter(torch.zeros(1))

        def training_step(self, batch, index):
            script.attempt(self.batch_size)
            return self.unused.sum()  # a step of Lightning's own, or it would never count one

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=0.1)

        def train_dataloader(self):
            return torch.utils.data.DataLoader(torch.zeros(1 << 20, dtype=torch.uint8), batch_size=self.batch_size)

    # Named, or an installed mpi4py makes Lightning take this for a cluster's job.
    trainer = pl.Trainer(accelerator="auto", devices=1, plugins=[LightningEnvironment()], logger=False, enable_checkpointing=False,
                         enable_progress_bar=False, enable_model_summary=False)
    return Tuner(trainer).scale_batch_size(Module(), mode=mode, steps_per_trial=1, init_val=2)


def main():
    finder, path = sys.argv[1:]
    script = Script(path)
    script.install()
    started = time.monotonic()
    found = accelerate(script) if finder == "accelerate" else lightning(script, finder)
    print(json.dumps({"finder": finder, "found": found, "attempts": len(script.sizes), "sizes": script.sizes,
                      "seconds": round(time.monotonic() - started, 2)}))


if __name__ == "__main__":
    main()
