"""The loss of a language model in chunks: the head (its last linear layer) returns logits that are computed only where something else
than cross-entropy asks for them."""

# The functions that this shows tensors to belong to the script.
# pyright: reportUnknownVariableType=false

from __future__ import annotations

import contextlib
import functools
import sys

from ..watch.world import world_size
from .head_call import Head, Source, autocast_dtype
from .lazy_logits import lazy, real, source_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Generator, NoReturn

    from ..types import Call, Module, Tensor, Torch
    from ..watch.models import Modules
    from .forward_wrappers import ForwardWrappers

#: A head of fewer classes has small logits.
LEAST_CLASSES = 4096
#: Libraries that compute this loss in chunks of their own.
OTHERS = ("liger_kernel.transformers", "cut_cross_entropy")


class ChunkedLoss:
    """`refuse(why)`: the training cannot go on as it would have without this knob; does not return."""

    def __init__(
        self, torch: Torch, modules: Modules, forwards: ForwardWrappers, refuse: Callable[[str], NoReturn]
    ) -> None:
        self._torch = torch
        self._modules = modules
        self._forwards = forwards
        self._refuse = refuse
        self._head: Module | None = None
        self._wrapped = False
        self._on = False
        #: A micro-batch of a cut call runs: True, even without gradients; its model is only checked: False; None: no cut.
        self._inside: bool | None = None
        self._chunked = 0
        self._used: str | None = None

    def possible(self) -> bool:
        return self._find() is not None

    def unchunked(self) -> str | None:
        """Why a loss was computed from whole logits since the last switch; None: none was, or the knob is off."""
        if not self._on:
            return None
        if self._used is not None:
            return "the logits are used by something else than cross-entropy (%s)" % self._used
        return None if self._chunked else "no cross-entropy of the logits was seen"

    def switch(self, wanted: bool) -> None:
        head = self._find() if wanted else None
        self._on = head is not None
        self._chunked, self._used = 0, None
        if head is not None and not self._wrapped:
            self._wrapped = True
            self._forwards.wrap(head, self._around, innermost=True)
            _show_to_functions(self._torch)

    def why_not(self) -> str | None:
        """Why it cannot be, of a model with a head that is large enough; None: it can be, or there is no such head."""
        found = self._large()
        return self._obstacle(*found) if found is not None and self._head is None else None

    def _find(self) -> Module | None:
        """The head: a plain linear layer with more outputs than any other, which no other takes."""
        if self._head is None:
            found = self._large()
            if found is not None and self._obstacle(*found) is None:
                self._head = found[0][0]
        return self._head

    def _large(self) -> tuple[list[Module], list[Module]] | None:
        """(the linear layers with the most outputs, all linear layers); None: none has enough of them."""
        layers: list[Module] = [module for module in self._modules.all() if isinstance(module, self._torch.nn.Linear)]
        most = max((layer.out_features for layer in layers), default=0)
        if most < LEAST_CLASSES:
            return None
        return list({id(layer): layer for layer in layers if layer.out_features == most}.values()), layers

    def _obstacle(self, largest: list[Module], layers: list[Module]) -> str | None:
        torch = self._torch
        other = next((name.partition(".")[0] for name in OTHERS if name in sys.modules), None)
        if other is not None:
            return "%s is imported, which computes it in chunks of its own" % other
        if self._modules.compiled():
            return "the model is compiled"
        if len(largest) != 1:
            return "%d layers have as many outputs as the last one" % len(largest)
        (head,) = largest
        if any(layer.in_features == head.out_features for layer in layers):
            return "another layer takes the output of the one with the most"
        among_ranks = self._among_ranks(head) if world_size(self._torch) > 1 else None
        if among_ranks is not None:
            return among_ranks
        kinds = (torch.nn.Linear, getattr(torch.nn.modules.linear, "NonDynamicallyQuantizableLinear", torch.nn.Linear))
        plain = type(head) in kinds and "forward" not in head.__dict__ and _plain(torch, head)
        return None if plain else "the last layer is no plain torch.nn.Linear (%s)" % type(head).__name__

    def _among_ranks(self, head: Module) -> str | None:
        """Why what ranks exchange may depend on the logits. A plain DistributedDataParallel waits at each weight for its gradient,
        whoever has made it: held with gloo on the CPU and with NCCL on two GPUs."""
        kind = getattr(self._torch.nn.parallel, "DistributedDataParallel", None)
        replicas = [each for each in self._modules.all() if type(each) is kind]
        mine = next((each for each in replicas if any(part is head for part in each.modules())), None)
        if mine is None:
            return "several ranks train the model without a DistributedDataParallel"
        for name in ("find_unused_parameters", "static_graph", "mixed_precision"):
            if getattr(mine, name, None):
                return "several ranks train the model in a DistributedDataParallel with %s" % name
        return None

    def _around(self, call: Call, hidden: Tensor) -> Any:
        torch, head = self._torch, self._head
        if not self._on or head is None or not head.training or self._inside is False:
            return call(hidden)
        grad = torch.is_grad_enabled()
        if not (grad or self._inside) or type(hidden) is not torch.Tensor or hidden.dim() < 2 or hidden.numel() == 0:
            return call(hidden)
        autocast = autocast_dtype(torch, hidden.device.type)
        dtype = hidden.dtype if autocast is None or hidden.dtype == torch.float64 else autocast
        if (autocast is None and dtype != head.weight.dtype) or hidden.device != head.weight.device:
            return call(hidden)
        flows = grad and (hidden.requires_grad or head.weight.requires_grad)
        if grad and not flows:
            return call(hidden)
        seen = Head(torch, head, dtype, self._note_use, self._note_chunks, self._refuse)
        return lazy(torch, Source(seen, hidden, dtype, flows))

    @contextlib.contextmanager
    def within_cut(self, allowed: bool) -> Generator[None, None, None]:
        before, self._inside = self._inside, allowed
        try:
            yield
        finally:
            self._inside = before

    def made_of(self, leaf: Any) -> tuple[Tensor, Call] | None:
        """(the head's input, a function that makes logits of it)."""
        source, torch = source_of(leaf), self._torch
        if source is None or source.known() or source.moved:
            return None
        head, dtype, changes = source.head, source.dtype, source.changes

        def logits_of(hidden: Tensor) -> Any:
            flows = torch.is_grad_enabled() and (hidden.requires_grad or head.weight.requires_grad)
            return lazy(torch, Source(head, hidden, dtype, flows, changes=changes))

        return source.hidden, logits_of

    def _note_use(self, name: str) -> None:
        if self._used is None:
            self._used = name or "unknown"

    def _note_chunks(self) -> None:
        self._chunked += 1


def _plain(torch: Torch, head: Module) -> bool:
    """Whether its weights are ordinary parameters, all here."""
    given = [each for each in (head.weight, head.bias) if each is not None]
    if any(type(each) is not torch.nn.Parameter for each in given):
        return False
    return tuple(head.weight.shape) == (head.out_features, head.in_features) and head.weight.is_floating_point()


def _show_to_functions(torch: Torch) -> None:
    """Custom autograd functions get their tensors unseen by torch's overrides."""
    function = torch.autograd.Function
    if getattr(function, "_oomtune", False):
        return

    def apply(cls: Any, *args: Any, **kwargs: Any) -> Any:
        if any(source_of(each) is not None for each in args):
            args = real(args, cls.__name__)
        call: Any = super(function, cls).apply if own is None else functools.partial(own, cls)
        return call(*args, **kwargs)

    own = getattr(function.__dict__.get("apply"), "__func__", None)
    function.apply = classmethod(apply)
    function._oomtune = True
