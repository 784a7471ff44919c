"""Makes the training's loader yield the batches that were asked for as soon as it is made: a schedule is made of
`len(loader)` before the loop begins."""

import functools
import weakref

from . import samples
from .batches import rebatch


class Early:
    """The loader is known by what a search has seen of it: its batch, and the samples of its data set."""

    def __init__(self, hook):
        self._hook = hook
        self._own = weakref.WeakKeyDictionary()

    def install(self, kind):
        settings = self._hook.settings
        if "micro_batch" not in settings.knobs or None in (
            settings.micro_batch,
            settings.own_batch,
            settings.own_samples,
        ):
            return
        original = kind.__init__
        made = self._made

        @functools.wraps(original)
        def __init__(self, *args, **kwargs):
            original(self, *args, **kwargs)
            made(self)

        kind.__init__ = __init__

    def own_batch(self, loader):
        """What the script asked it for."""
        return self._own.get(loader) or samples.own_batch(loader)

    def _made(self, loader):
        settings = self._hook.settings
        if "micro_batch" in self._hook.native or loader.batch_sampler is None:
            return
        if samples.own_batch(loader) != settings.own_batch or samples.sample_count(loader) != settings.own_samples:
            return
        wanted = settings.wanted
        if wanted != settings.own_batch:
            self._own[loader] = settings.own_batch
            rebatch(self._hook.torch, loader, wanted)
