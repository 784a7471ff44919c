"""`auto_micro_batch(model)`: the cut at the model's call that `oomtune run` makes, for a script that runs by itself."""

from __future__ import annotations

import warnings
import weakref
from typing import Any

from .errors import OomtuneError
from .hook.watch.world import world_size_now
from .out_of_memory import free_memory, is_out_of_memory, let_go

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Iterator, NoReturn

#: Bytes of the optimizer's state for each byte of the weights that learn: Adam keeps two values each.
STATE = 2

#: The cut of each model, so that a second call changes the first one's.
_CUTS: weakref.WeakKeyDictionary[Any, _ModelCut] = weakref.WeakKeyDictionary()


def auto_micro_batch(model: Any, micro_batch: int | None = None) -> Any:
    """Has each training call of the model run in micro-batches of at most `micro_batch` samples; returns the model.

    The loop keeps its own batches: len(loader), the loss, the optimizer's and the schedule's steps are those of the whole batch,
    and so are the weights, up to rounding. Where that cannot be shown for a model, its first call raises OomtuneError
    OOMTUNE_NO_KNOB and says why.

    Without `micro_batch` the model's first call tries a forward and a backward pass with the whole batch, then with halves of it,
    until one fits beside the state that an optimizer like Adam will need; so does each call with larger inputs. It raises OomtuneError
    OOMTUNE_EXHAUSTED where one sample does not fit. Several ranks need a `micro_batch`.

    Under `oomtune run` and in a search the hook makes the micro-batches: the model is returned as it is.
    """
    if micro_batch is not None and micro_batch < 1:
        raise ValueError("micro_batch: expected at least 1, got %r" % micro_batch)
    if micro_batch is None:
        _require_one_rank()
    if _hook_decides():
        return model
    cut = _CUTS.get(model)
    if cut is None:
        cut = _CUTS[model] = _ModelCut(model)
    cut.micro_batch = micro_batch
    return model


def _require_one_rank() -> None:
    if world_size_now() > 1:
        raise OomtuneError(
            "OOMTUNE_USAGE",
            "Several ranks train here, and each would find another micro-batch.",
            "Name one: auto_micro_batch(model, 8), or start the ranks with `oomtune run`.",
        )


def micro_batch_of(model: Any) -> int | None:
    """The micro-batch that calls of the model are cut into; None: none was cut so far."""
    cut = _CUTS.get(model)
    return None if cut is None else cut.cut_to


def _hook_decides() -> bool:
    from .hook.settings import Settings

    settings = Settings.from_environment()
    return settings is not None and (settings.searching or bool(settings.knobs & {"micro_batch", "accumulation"}))


class _Weights:
    """Stands in for the optimizers, which tell the hook whose weights are trained: here it is the model."""

    def __init__(self, model: Any) -> None:
        self._model = weakref.ref(model)

    def exist(self) -> bool:
        return True

    def known(self) -> list[Any]:
        return []

    @property
    def made(self) -> int:
        """Changes when the model gets other weights."""
        return sum(1 for _ in self.parameters())

    def parameters(self) -> Iterator[Any]:
        model = self._model()
        return iter(()) if model is None else model.parameters()


class _ModelCut:
    def __init__(self, model: Any) -> None:
        import importlib

        from .hook.cut import Cut

        torch: Any = importlib.import_module("torch")
        self._torch = torch
        weights: Any = _Weights(model)
        self._cut: Any = Cut(torch, weights, _refuse, _warn)
        self._cut.install()
        self._cut.calls.take = self._take
        #: None: what fits is tried.
        self.micro_batch: int | None = None
        #: The micro-batch of the latest call that was cut; None: none was.
        self.cut_to: int | None = None
        #: A micro-batch that fits, and the elements of one of its samples; None: nothing was tried.
        self._fits: tuple[int, float] | None = None
        #: A larger one does not fit.
        self._limited = False

    def _take(self, module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """In place of an outermost training call of the model."""
        from .hook.cut.pytree import tree_leaves

        tree: dict[Any, Any] = {**dict(enumerate(args)), **kwargs}
        rows = _rows(self._torch, tree_leaves(self._torch, tree))
        micro = rows if rows is None else self.micro_batch or self._fitting(module, tree, rows)
        if rows is None or micro is None or micro >= rows:
            return self._cut.calls.uncut(module, args, kwargs)
        if micro != self.cut_to:
            self.cut_to = micro
            self._cut.engage(micro, rows)
            # Other models are none of its business: one may have a size of its own.
            self._cut.calls.take, self._cut.calls.auxiliary = self._take, None
        self._cut.note_batch_rows(rows)
        return self._cut._take(module, args, kwargs)

    # -- what fits

    def _fitting(self, module: Any, tree: dict[Any, Any], rows: int) -> int | None:
        """The largest of the batch, its half, and so on, that fits; None: no input has a row for each sample."""
        from .hook.cut.batch_dims import candidates
        from .hook.cut.pytree import tree_leaves

        _require_one_rank()  # (the script may have made its group of ranks since)
        leaves = tree_leaves(self._torch, tree, (rows,))
        size = sum(leaf.numel() for leaf in leaves if isinstance(leaf, self._torch.Tensor)) / rows
        micro = rows
        if self._fits is not None:
            known, largest = self._fits
            if size <= largest and (self._limited or rows <= known):
                return known
            micro = min(rows, known) if self._limited else rows
            size = max(size, largest)
        dims = next(iter(candidates(self._torch, leaves, [rows])), None)
        if dims is None:
            return None
        while not self._runs(module, tree, leaves, dims, micro):
            if micro == 1:
                raise OomtuneError(
                    "OOMTUNE_EXHAUSTED",
                    "Not even a micro-batch of one sample fits.",
                    "Use a smaller model, mixed precision or activation checkpointing, or a device with more memory.",
                )
            self._limited = True
            micro = -(-micro // 2)
        self._fits = (micro, size)
        return micro

    def _runs(self, module: Any, tree: dict[Any, Any], leaves: list[Any], dims: Any, micro: int) -> bool:
        """Whether a forward and a backward pass of so many samples fit. Leaves random state and buffers as they were."""
        from .hook.cut.buffers import Snapshot, buffer_keys
        from .hook.watch.rng_state import RngState, cuda_devices

        torch = self._torch
        learns = [each for each in module.parameters() if each.requires_grad]
        tensors = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]
        state = RngState(torch, cuda_devices(torch, learns + tensors))
        buffers = Snapshot(buffer_keys(list(module.modules())))
        try:
            self._try_passes(module, tree, leaves, dims, micro, learns)
            return True
        except Exception as error:
            if not is_out_of_memory(error):
                raise
            let_go(error)
            return False
        finally:
            buffers.restore()
            state.restore()
            torch.clear_autocast_cache()
            free_memory()

    def _try_passes(
        self, module: Any, tree: dict[Any, Any], leaves: list[Any], dims: Any, micro: int, learns: list[Any]
    ) -> None:
        from .hook.cut.pytree import tree_leaves, tree_with
        from .hook.cut.row_group import RowGroup

        torch = self._torch
        state = sum(each.numel() * each.element_size() for each in learns) * STATE
        held = torch.empty(state, dtype=torch.uint8, device=learns[0].device)
        parts = dims.parts(leaves, RowGroup(torch, range(micro)))
        inputs = tree_with(torch, tree, parts, (dims.count,))
        args = [value for name, value in inputs.items() if isinstance(name, int)]
        kwargs = {name: value for name, value in inputs.items() if not isinstance(name, int)}
        found = tree_leaves(torch, self._cut.calls.uncut(module, args, kwargs))
        outputs = [leaf for leaf in found if isinstance(leaf, torch.Tensor) and leaf.requires_grad]
        torch.autograd.grad(outputs, learns, [torch.ones_like(each) for each in outputs], allow_unused=True)
        del held


def _rows(torch: Any, leaves: list[Any]) -> int | None:
    """How many samples a call's inputs have: what most of them have rows of; None: no tensor has any."""
    counts: dict[int, int] = {}
    for leaf in leaves:
        if isinstance(leaf, torch.Tensor) and leaf.dim() > 0:
            counts[leaf.size(0)] = counts.get(leaf.size(0), 0) + 1
    return max(counts, key=lambda count: counts[count]) if counts else None


def _refuse(reason: str) -> NoReturn:
    raise OomtuneError(
        "OOMTUNE_NO_KNOB",
        "The batch is not cut at the model's call, since %s." % reason,
        "Accumulate gradients in the loop instead: smaller batches of the loader, and a step after several of them.",
    )


def _warn(code: str, message: str) -> None:
    warnings.warn("oomtune: %s (%s)" % (message, code), stacklevel=2)
