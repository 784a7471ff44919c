"""On the path of a training, with TROUBLE=evaluation|saving|worker|training in its environment: once it has trained, more memory is
asked for in the framework's own call than there is. Where a script would not evaluate or save by itself, TROUBLE has it do so."""
import atexit
import functools
import gc
import os

from oomtune.hook.post_import import PostImportFinder

#: Less than the budget of 512 MiB, as more were a wrong shape, and more than any process with torch leaves of it.
NEEDED = 511 << 20
#: Batches that a worker of a loader makes before: as many were asked for ahead.
BATCHES = 2


def replace(owner, name, make):
    original = getattr(owner, name)
    setattr(owner, name, functools.wraps(original)(make(original)))


class Trouble:
    def __init__(self, torch):
        self.torch = torch
        self.trained = False
        self.batches = 0

    def need(self):
        """In one request: where it were filled piece by piece, another process of the job might be refused first."""
        self.torch.empty(NEEDED, dtype=self.torch.uint8)

    def once_trained(self, original):
        def call(*args, **kwargs):
            if self.trained:
                self.need()
            return original(*args, **kwargs)

        return call

    def see_step(self):
        from torch.optim.optimizer import register_optimizer_step_post_hook

        def after(optimizer, args, kwargs):
            self.trained = True

        register_optimizer_step_post_hook(after)

    def in_forward(self, training):
        def before(module, inputs):
            if self.trained and module.training == training:
                self.need()

        self.torch.nn.modules.module.register_module_forward_pre_hook(before)

    def in_worker(self):
        def with_worker(original):
            def call(loader, *args, **kwargs):
                original(loader, *args, **{**kwargs, "num_workers": 1})

            return call

        def fetching(original):
            def call(fetcher, indices):
                self.batches += self.torch.utils.data.get_worker_info() is not None
                if self.batches > BATCHES:
                    self.need()
                return original(fetcher, indices)

            return call

        replace(self.torch.utils.data.DataLoader, "__init__", with_worker)
        for kind in ("_MapDatasetFetcher", "_IterableDatasetFetcher"):
            replace(getattr(self.torch.utils.data._utils.fetch, kind), "fetch", fetching)


def bring(how):
    trouble = None

    def torch_came(torch):
        nonlocal trouble
        trouble = Trouble(torch)
        if how == "worker":
            trouble.in_worker()
            return
        trouble.see_step()
        if how == "saving":
            replace(torch.serialization, "_save", trouble.once_trained)
        else:
            trouble.in_forward(training=how == "training")

    def safetensors_came(module):
        if how == "saving":
            replace(module, "serialize_file", trouble.once_trained)

    def state_dict_came(module):
        if how == "saving":
            replace(module, "_maybe_full_or_cpu_state_dict", trouble.once_trained)

    moments = {
        "torch": torch_came,
        "safetensors.torch": safetensors_came,
        "torch.distributed.checkpoint.state_dict": state_dict_came,
    }
    PostImportFinder(moments).install()


if os.environ.get("TROUBLE"):
    # The collector, which looks through all that is imported and is called once more at the end, is a third of the time of a start.
    gc.disable()
    atexit.register(gc.freeze)
    bring(os.environ["TROUBLE"])
