"""Losses that compare the samples of their batch with one another: of a micro-batch they would be others."""

from __future__ import annotations

from .batch_dims import candidates
from .call_looks import CallLooks
from .composition import has_one_model
from .key_value_cache import without_cache
from .plan import Plan
from .pytree import tree_leaves
from .ranks import OneRank
from .refusal import INSTEAD, NOWHERE, Uncuttable
from .training_step import divides, training_step

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, NoReturn

    from ..types import Call, Leaves, Module, Torch, Tree
    from .cut_context import CutContext


class ComparedSamples:
    """Looks at the losses of a process, up to its first step, whose micro-batches others make and a framework adds up.
    `refuse(reason)` does not return."""

    def __init__(self, torch: Torch, context: CutContext, refuse: Callable[[str], NoReturn]) -> None:
        self._torch = torch
        self._context = context
        self._refuse = refuse
        #: Modules whose losses have been looked at, by id(); None: nothing is looked at.
        self._seen: set[int] | None = None
        self._looked = False

    def look(self, rows: int) -> None:
        """For micro-batches of `rows` samples: refuses if a module makes a loss that compares them."""
        calls = self._context.calls
        if not self._looked and (self.looks or calls.take is None) and rows > 1 and not self._context.exchanges:
            self._context.sizes, self._seen = [rows], self._seen or set()
            calls.take = self._take

    def look_at_step(self, model: Module, step: Call, args: tuple[Any, ...], quiet: tuple[str, ...] = ()) -> None:
        """While look() is on, before a framework's step: refuses as that does if the step makes such a loss of the model's outputs.
        `quiet`: see training_step()."""
        if self._seen is None or id(model) in self._seen:
            return
        self._seen.add(id(model))
        if self._compares(training_step(self._torch, model, step, quiet), args, {}):
            name = "%s.%s" % (
                type(getattr(step, "__self__", model)).__name__,
                getattr(step, "__name__", "training_step"),
            )
            self._refuse_comparing(name, INSTEAD)

    def look_at_division(self, model: Module, loss: Call, inputs: dict[str, Any], items: Any) -> None:
        """Refuses if `loss(model, inputs, num_items_in_batch)` is not divided by the number of the whole batch's items,
        `items`, as it is to be where a framework adds up what micro-batches make (None: it cannot be)."""
        if items is None or not divides(self._torch, self._context.calls, model, loss, inputs, items):
            self._refuse(
                "%s returns a loss that is not divided by the items of the whole batch, as the framework takes it to be%s"
                % (type(model).__name__, INSTEAD)
            )

    @property
    def looks(self) -> bool:
        """Whether look() is on."""
        return self._seen is not None

    def stepped(self) -> None:
        """The first step has shown what there is to see."""
        if self._seen:
            self._looked = True
            self.end()
            self._context.calls.take = None

    def end(self) -> None:
        self._seen = None

    def in_loss_of(self, module: Module, tree: Tree, leaves: Leaves) -> bool | None:
        """Whether the module makes a loss that compares the samples; None: nothing can be seen, so that the framework's own way holds."""
        sizes = self._context.sizes
        for dims in candidates(self._torch, leaves, sizes):
            if dims.count < 2:
                continue
            try:
                plan = Plan(self._torch, module, self._context, tuple(sizes), leaves, OneRank())
                return CallLooks(self._torch, plan, tree, leaves, dims).compares_samples()
            except Uncuttable:
                continue
        return None

    def _take(self, module: Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tree:
        if self._seen is not None and id(module) not in self._seen and self._compares(module, args, kwargs):
            self._refuse_comparing(type(module).__name__, INSTEAD if has_one_model(module) else NOWHERE)
        return self._context.calls.uncut(module, args, kwargs)

    def _refuse_comparing(self, name: str, but: str) -> NoReturn:
        self._refuse(
            "%s computes a loss that compares the samples of its batch, and would compare those of a micro-batch%s"
            % (name, but)
        )

    def _compares(self, module: Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
        tree: dict[int | str, Any] = {**dict(enumerate(args)), **without_cache(module, kwargs)}
        compares = self.in_loss_of(module, tree, tree_leaves(self._torch, tree, tuple(self._context.sizes)))
        if compares is not None and self._seen is not None:
            self._seen.add(id(module))
        return compares is True
