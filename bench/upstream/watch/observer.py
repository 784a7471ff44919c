import atexit
import json
import os
import random
import time

STEPS = int(os.environ.get("UPSTREAM_STEPS") or 0)
TIMED = 3


class Observer:
    def __init__(self, torch):
        self.torch = torch
        self.optimizers = {}  # in the order of their first steps
        self.counts = {}
        self.third = None
        self.early = 0
        self.pid = os.getpid()

    def stepped(self, optimizer, args, kwargs):
        if os.getpid() != self.pid:
            return
        self.optimizers[id(optimizer)] = optimizer
        count = self.counts[id(optimizer)] = self.counts.get(id(optimizer), 0) + 1
        if count == 1 and os.environ.get("UPSTREAM_NUDGED"):
            self.nudge(optimizer)
        if count == TIMED and self.third is None:
            self.settle()
            self.third = time.time() - float(os.environ["UPSTREAM_STARTED"])
            self.early = self.figure("num_alloc_retries")
        if STEPS and count == STEPS:
            self.settle()
            self.write(True)
            if os.environ.get("UPSTREAM_WEIGHTS"):
                raise SystemExit(0)  # as a program ends, so that what others have to do at its end is done
            os._exit(0)

    def nudge(self, optimizer):
        with self.torch.no_grad():
            for p in (p for group in optimizer.param_groups for p in group["params"] if p.is_floating_point()):
                p.mul_(1 + self.torch.finfo(p.dtype).eps)

    def settle(self):
        if self.torch.cuda.is_available() and self.torch.cuda.is_initialized():
            self.torch.cuda.synchronize()

    def figure(self, name):
        cuda = self.torch.cuda
        return cuda.memory_stats().get(name, 0) if cuda.is_available() and cuda.is_initialized() else 0

    def write(self, ended):
        if os.getpid() != self.pid or not self.counts:
            return
        atexit.unregister(self.at_end)
        if os.environ.get("RANK", "0") != "0":
            return
        if os.environ.get("UPSTREAM_WEIGHTS"):
            groups = (group for optimizer in self.optimizers.values() for group in optimizer.param_groups)
            tensors = (getattr(p, "to_local", lambda p=p: p)() for group in groups for p in group["params"])
            self.torch.save([p.detach().cpu().clone() for p in tensors], os.environ["UPSTREAM_WEIGHTS"])
        with open(os.environ["UPSTREAM_RESULT"], "w") as file:
            # How often the allocator gave back its cache to go on, after the first three steps.
            retries = self.figure("num_alloc_retries") - self.early
            steps = max(self.counts.values())
            step_s = None
            if self.third is not None and steps > TIMED:
                step_s = (time.time() - float(os.environ["UPSTREAM_STARTED"]) - self.third) / (steps - TIMED)
            told = {"steps": steps, "third_s": self.third, "step_s": step_s, "ended": ended, "retries": retries}
            # Allocations that were refused, which a library (cuDNN, with less workspace) got over.
            file.write(json.dumps({**told, "refused": self.figure("num_ooms")}) + "\n")

    def at_end(self):
        self.write(False)


def without_dropout(torch):
    # What is drawn for a batch differs from what is drawn for its parts: sums can be compared only where nothing is drawn.
    def still(input, *args, **kwargs):
        return input

    for name in ("dropout", "dropout1d", "dropout2d", "dropout3d", "alpha_dropout", "feature_alpha_dropout"):
        setattr(torch.nn.functional, name, still)
    attention = torch.nn.functional.scaled_dot_product_attention

    def plain(query, key, value, attn_mask=None, dropout_p=0.0, *args, **kwargs):
        return attention(query, key, value, attn_mask, 0.0, *args, **kwargs)

    torch.nn.functional.scaled_dot_product_attention = plain


def begin():
    import torch
    from torch.optim.optimizer import register_optimizer_step_post_hook

    seed = int(os.environ.get("UPSTREAM_SEED") or 0)
    random.seed(seed)
    torch.manual_seed(seed)
    try:
        import numpy

        numpy.random.seed(seed)
    except ImportError:
        pass
    if os.environ.get("UPSTREAM_WEIGHTS"):
        without_dropout(torch)
    observer = Observer(torch)
    register_optimizer_step_post_hook(observer.stepped)
    atexit.register(observer.at_end)
    if os.environ.get("BENCH_BATCH"):
        import loops

        size = int(os.environ["BENCH_BATCH"])
        loops.limit(lambda: size, float("inf"), lambda seconds: None)
