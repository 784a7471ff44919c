"""Starts an unmodified training script at one batch size and ends it after a few optimizer steps.

The benchmark's own yardstick, apart from oomtune's hook: every batch is a real one, made by the script's own loader from its
own data set (repeated where it is smaller than one batch). Asked for by BENCH_STEPS; BENCH_BATCH changes the loader's batch size,
BENCH_ACCUMULATION says how many batches the script takes for one optimizer step. Writes BENCH_RESULT and exits 0.
"""

import os

STEPS = os.environ.get("BENCH_STEPS")
SIZE = int(os.environ.get("BENCH_BATCH") or 0)
BATCHES = int(STEPS or 0) * int(os.environ.get("BENCH_ACCUMULATION") or 1)


def install():
    import time

    from torch.utils import data

    class Repeated(data.Dataset):
        def __init__(self, dataset, length):
            self.dataset, self.length = dataset, length

        def __len__(self):
            return self.length

        def __getitem__(self, index):
            return self.dataset[index % len(self.dataset)]

    class Limited:
        """Ends the process when one batch more than the steps need is asked for: by then the last step is complete."""

        def __init__(self, loader):
            self.loader, self.batches, self.given, self.times = loader, iterate(loader), 0, []

        def __iter__(self):
            return self

        def __next__(self):
            self.times.append(time.monotonic())
            if self.given == BATCHES:
                finish(self.times)
            self.given += 1
            try:
                return next(self.batches)
            except StopIteration:  # another epoch, so that the data set can stay as long as it is
                self.batches = None
                self.batches = iterate(self.loader)
                return next(self.batches)

    def finish(times):
        import torch

        if torch.cuda.is_available() and torch.cuda.is_initialized():
            torch.cuda.synchronize()
            times[-1] = time.monotonic()
        seconds = [after - before for before, after in zip(times, times[1:])]
        with open(os.environ["BENCH_RESULT"], "w") as file:
            file.write(" ".join(f"{second:.6f}" for second in seconds))
        os._exit(0)

    begin, iterate = data.DataLoader.__init__, data.DataLoader.__iter__

    def __init__(self, dataset, batch_size=1, *args, **kwargs):
        if SIZE and batch_size is not None:
            batch_size = SIZE
            if len(dataset) < SIZE:
                dataset = Repeated(dataset, SIZE)
        begin(self, dataset, batch_size, *args, **kwargs)

    data.DataLoader.__init__ = __init__
    data.DataLoader.__iter__ = lambda self: Limited(self)


if STEPS:
    install()
