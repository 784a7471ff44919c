"""Makes every DataLoader of a process give batches of one size, and calls `finish` when it has given enough of them."""

import time

import torch
from torch.utils import data


class Repeated(data.Dataset):
    def __init__(self, dataset, length):
        self.dataset, self.length = dataset, length

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        return self.dataset[index % len(self.dataset)]


def limit(size, batches, finish):
    """`size()` is asked for each new loader; 0 leaves it as it is, None leaves it alone altogether.

    `finish(seconds)` is called when one batch more than `batches` is asked for: by then the last step is complete. If it
    returns, the loop goes on with a loader of the size that is asked for then.
    """
    begin, iterate = data.DataLoader.__init__, data.DataLoader.__iter__

    class Limited:
        def __init__(self, loader):
            self.loader, self.batches, self.given, self.times = loader, iterate(loader), 0, []

        def __iter__(self):
            return self

        def __next__(self):
            if torch.cuda.is_available() and torch.cuda.is_initialized():
                torch.cuda.synchronize()
            self.times.append(time.monotonic())
            if self.given == batches:
                self.batches = None
                finish([after - before for before, after in zip(self.times, self.times[1:])])
                self.again()
            self.given += 1
            try:
                return next(self.batches)
            except StopIteration:  # another epoch, so that the data set can stay as long as it is
                self.batches = None
                self.batches = iterate(self.loader)
                return next(self.batches)

        def again(self):
            """From here on with another size."""
            dataset, args, kwargs = self.loader.__dict__["_made"]
            self.loader = data.DataLoader(dataset, 1, *args, **kwargs)
            self.batches, self.given, self.times = iterate(self.loader), 0, [time.monotonic()]
            if torch.cuda.is_available():
                torch.cuda.empty_cache()

    def __init__(self, dataset, batch_size=1, *args, **kwargs):
        wanted = size()
        self.__dict__["_limited"] = wanted is not None
        self.__dict__["_made"] = dataset, args, kwargs
        if wanted and batch_size is not None and kwargs.get("batch_sampler") is None:
            batch_size = wanted
            if 0 < len(dataset) < wanted:  # (Lightning makes a loader of nothing, too.)
                dataset = Repeated(dataset, wanted)
        begin(self, dataset, batch_size, *args, **kwargs)

    data.DataLoader.__init__ = __init__
    data.DataLoader.__iter__ = lambda self: Limited(self) if self.__dict__.get("_limited") else iterate(self)
