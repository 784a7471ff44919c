"""What is known of a module that is called in training, for inputs of one kind."""

import contextlib

from .buffers import Buffers, compiled
from .draws import cuda_devices
from .joins import Folded
from .refusal import Uncuttable
from .rehearsal import Rehearsal
from .shards import Shards
from .stage import Stage
from .tree import rebuilt
from .weights import disagreement


class Plan:
    def __init__(self, torch, module, cut, lengths, tensors, ranks):
        self._torch = torch
        self.module = module
        self._cut = cut
        self.modules = list(module.modules())
        self.ranks = ranks
        #: What is sharded between ranks; None: nothing.
        self._shards = Shards(torch, module) if ranks.together else None
        learns = [parameter for parameter in module.parameters() if parameter.requires_grad]
        self.devices = cuda_devices(torch, learns + tensors)
        self._never_ahead = self._shards is not None or any(parameter.dtype == torch.float16 for parameter in learns)
        #: Those whose gradients the call hands to autograd.
        self.parameters = learns if self._shards is None else [self._shards.anchor]
        self._learns = learns
        self.buffers = Buffers(torch, module)
        #: Lengths that a list with one entry a sample may have.
        self.lengths = lengths
        self.joins = self.flags = None
        self.reentrant = False
        #: Nobody else waits for gradients of the parameters: they gather where they always do, and lie there once only.
        self.alone = not cut.exchanges and not _hooked(self.parameters)
        #: The one output that the script takes the gradient of, where that is a loss that the module makes itself.
        self._loss = None
        #: Parts alike: statistics of very few samples differ more, and another size is compiled anew.
        norm = torch.nn.modules.batchnorm._NormBase
        self.even = not self.keeps() or any(isinstance(each, norm) or compiled(each) for each in self.modules)
        # What is compiled is not compiled anew for two samples.
        self._plain = getattr(module, "_orig_mod", module)

    def run(self, inputs):
        """Calls the module past the cut. `inputs`: by place and by name."""
        return self._call(self.module, inputs)

    def _call(self, module, inputs):
        args = [value for name, value in inputs.items() if isinstance(name, int)]
        kwargs = {name: value for name, value in inputs.items() if not isinstance(name, int)}
        return self._cut.past(module, args, kwargs)

    def enter(self):
        self._cut.enter()

    def leave(self):
        self._cut.leave()

    def rehearse(self, tree, leaves, layout):
        """Raises Uncuttable where the module cannot be shown to give the same."""
        self.joins, self.flags, self.reentrant = self._rehearsal(tree, leaves, layout).found()

    def settle(self, tree, leaves, layout, rules, parts):
        """Where rules for a value have held so far and now differ: which of them it is."""
        rows = [list(range(start, stop)) for start, stop in parts]
        differ = [place for place, join in enumerate(self.joins) if isinstance(join, Folded) and _differ(rules, join.names, rows)]
        if not self.ranks.any(differ):
            return
        for place, join in enumerate(self.joins):
            if self.ranks.any(place in differ):
                join.names = self._rehearsal(tree, leaves, layout).settle(place, join.names, rows)

    def _rehearsal(self, tree, leaves, layout):
        def call(replaced):
            return self._call(self._plain, rebuilt(self._torch, tree, replaced, self.lengths))

        stage = Stage(self._torch, self.module, self.devices)
        return Rehearsal(self._torch, call, leaves, layout, stage, self._learns, self.ranks, self._shards)

    def gathers(self):
        """How gradients of the parts are added up: through backward(), else by autograd.grad()."""
        if self.reentrant and not self.alone and self._cut.exchanges:
            raise Uncuttable("checkpointing of the reentrant kind in it exchanges gradients between ranks; use_reentrant=False does not")
        if self._shards is not None:
            return True
        return self.reentrant or (self.alone and not _hooked(self.parameters))

    def joins_in(self):
        """Whether the parts' gradients may be added to what is there already, as those of the backward pass that runs."""
        return self._shards is not None or (self._cut.plain() and self.alone)

    def keeps(self):
        """Whether the last part is run with its graph at once. Where modules speak with other ranks in it, all of them have to
        make the same forward passes, also where one calls the model once more before its backward pass."""
        return not self._cut.exchanges or not any(_speaks(module) for module in self.modules)

    # -- weights that are sharded between ranks

    def exchanging(self, last):
        """A part's backward pass inside exchanges gradients if it is the call's last one."""
        return contextlib.nullcontext() if self._shards is None or last else self._shards.held_back()

    def again(self):
        """Forward passes inside are made in a backward pass."""
        return contextlib.nullcontext() if self._shards is None else self._shards.again()

    def all_take_part(self):
        """Whether a part that counts for nothing is run backward all the same, as other ranks may wait for it."""
        return self._shards is not None

    def check_deeper(self, deeper):
        if deeper and self._shards is not None:
            raise RuntimeError("weights that are sharded between ranks (FSDP) have no gradients of gradients")

    # -- gradients made in the forward pass

    def loss_ahead(self, precision):
        """The number of the loss whose gradients a call may make in its forward pass; None: it is not to."""
        loss, self._loss = self._loss, None  # until a backward pass has asked for them again
        if precision.half:
            self._cut.warn("fp16")
        if self._never_ahead or precision.half or self.reentrant or not self.gathers():
            return None
        return loss

    def saw(self, wanted, deeper):
        """A backward pass wants gradients for these outputs: the number of the loss if it is for that one only."""
        places = [number for number, gradient in enumerate(wanted) if gradient is not None]
        alone = len(places) == 1 and isinstance(self.joins[places[0]], Folded) and wanted[places[0]].numel() == 1
        self._loss = places[0] if alone and not deeper else None
        return self._loss

    def never_ahead(self):
        self._never_ahead = True

    def backward(self, outputs, gradients):
        """The engine itself, for one part."""
        with self._cut.part_unwinds():
            self._cut.original_backward(outputs, gradients)

    def gradients(self, *args, **kwargs):
        with self._cut.part_unwinds():
            return self._torch.autograd.grad(*args, **kwargs)

    def second_part(self):
        if self.buffers.waiting and self.buffers.differ():
            self._cut.warn("buffers")


def _differ(rules, names, rows):
    return len(names) > 1 and disagreement(rules.named(names), rows) is not None


def _speaks(module):
    return type(module).__name__ in ("SyncBatchNorm", "DistributedDataParallel")


def _hooked(parameters):
    """Whether anything is called with the gradient of one of them."""
    return any(each._backward_hooks or getattr(each, "_post_accumulate_grad_hooks", None) for each in parameters)
