"""Adam's moments in 8 bits, by bitsandbytes where the script's environment has it. The script's optimizer stays what it was: its groups, its
schedulers and its state_dict(), which has the moments in single precision, as the optimizer itself would load them."""

# Objects of bitsandbytes, which the type checker does not know.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false

from __future__ import annotations

import functools
import importlib
import importlib.util

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, NoReturn

    from ..types import Call, Optimizer, Tensor, Torch
    from ..watch.optimizers import Optimizers

MISSING = "no bitsandbytes is installed: pip install bitsandbytes"
UNSUITABLE = "no optimizer is a plain torch.optim.AdamW, or an Adam without weight decay"
#: Numbers that share a scale.
BLOCK = 256
MOMENTS = {"exp_avg": 1, "exp_avg_sq": 2}


class Optimizer8bit:
    """`refuse(why)`: it is asked for and cannot be had, which would be another training in more memory; does not return."""

    def __init__(self, torch: Torch, optimizers: Optimizers, refuse: Callable[[str], NoReturn]) -> None:
        self._torch = torch
        self._optimizers = optimizers
        self._refuse = refuse
        self._on: list[_Narrow] = []

    def why_not(self) -> str | None:
        """None: it can be turned on."""
        if not self._suitable():
            return UNSUITABLE
        return None if importlib.util.find_spec("bitsandbytes") else MISSING

    def _suitable(self) -> list[Any]:
        return [each for each in self._optimizers.known() if _is_suitable(self._torch, each)]

    def switch(self, wanted: bool) -> None:
        for narrow in self._on:
            narrow.end()
        self._on = []
        if wanted:
            library = self._library()
            self._on = [_Narrow(self._torch, self._optimizers, each, library) for each in self._suitable()]

    def _library(self) -> Any:
        if importlib.util.find_spec("bitsandbytes") is None:
            self._refuse(MISSING)
        try:
            return importlib.import_module("bitsandbytes")
        except Exception as error:  # its own libraries may be those of another driver or torch
            self._refuse(
                "bitsandbytes cannot be imported (%s)" % (str(error).splitlines() or [type(error).__name__])[0]
            )


def _is_suitable(torch: Torch, optimizer: Any) -> bool:
    if type(optimizer) not in (torch.optim.Adam, torch.optim.AdamW):
        return False
    for group in optimizer.param_groups:
        if any(group.get(name) for name in ("amsgrad", "maximize", "capturable", "differentiable")):
            return False
        # In Adam the decay is part of the gradient, and bitsandbytes has that of AdamW only.
        if type(optimizer) is torch.optim.Adam and group["weight_decay"] and not group.get("decoupled_weight_decay"):
            return False
        if isinstance(group["lr"], torch.Tensor) or any(type(p) is not torch.nn.Parameter for p in group["params"]):
            return False
    return True


class _Narrow:
    """One optimizer whose step is that of bitsandbytes. Both have the same groups and the same state."""

    def __init__(self, torch: Torch, optimizers: Optimizers, optimizer: Any, library: Any) -> None:
        self._torch = torch
        self._optimizers = optimizers
        self._optimizer = optimizer
        self._functional = library.functional
        groups = [{"params": group["params"]} for group in optimizer.param_groups]
        self._inner: Any = library.optim.AdamW8bit(groups)
        optimizers.forget(self._inner)
        self._inner.param_groups = optimizer.param_groups
        self._narrow_state()
        self._originals: dict[str, Call] = {
            name: getattr(optimizer, name) for name in ("state_dict", "load_state_dict")
        }
        optimizer.state_dict = functools.partial(self._state_dict, self._originals["state_dict"])
        optimizer.load_state_dict = functools.partial(self._load_state_dict, self._originals["load_state_dict"])
        optimizers.steps_instead[optimizer] = self._step

    def end(self) -> None:
        """In a search, where state is made again for each size."""
        self._optimizers.steps_instead.pop(self._optimizer, None)
        for name in self._originals:
            del self._optimizer.__dict__[name]
        self._optimizer.state.clear()

    def _step(self, _optimizer: Optimizer, *args: Any, **kwargs: Any) -> Any:
        # Loading, and whoever clears it, may have put another in its place.
        self._inner.state = self._optimizer.state
        return self._inner.step(*args, **kwargs)

    def _state_dict(self, original: Call) -> Any:
        optimizer, narrow = self._optimizer, self._optimizer.state
        try:
            optimizer.state = {parameter: self._wide(state) for parameter, state in narrow.items()}
            return original()
        finally:
            optimizer.state = narrow

    def _load_state_dict(self, original: Call, *args: Any, **kwargs: Any) -> None:
        original(*args, **kwargs)
        self._inner.param_groups = self._optimizer.param_groups
        self._narrow_state()

    def _wide(self, state: Any) -> dict[str, Any]:
        """In host memory, as there may be no room on the device."""
        wide: dict[str, Any] = {"step": self._torch.tensor(float(state["step"]))}
        for name, number in MOMENTS.items():
            wide[name] = self._dequantized(state, number).to("cpu", copy=True)
        return wide

    def _dequantized(self, state: Any, number: int) -> Tensor:
        values = state["state%d" % number]
        if values.dtype != self._torch.uint8:
            return values
        scales, code = state["absmax%d" % number], state["qmap%d" % number]
        return self._functional.dequantize_blockwise(values, absmax=scales, code=code, blocksize=BLOCK)

    def _narrow_state(self) -> None:
        """What was there as single precision (the state of a checkpoint) in 8 bits, parameter by parameter."""
        optimizer, inner = self._optimizer, self._inner
        inner.state = optimizer.state
        for number, group in enumerate(optimizer.param_groups):
            for place, parameter in enumerate(group["params"]):
                wide = optimizer.state.get(parameter)
                if not wide or "exp_avg" not in wide:
                    continue
                optimizer.state[parameter] = {}
                inner.init_state(group, parameter, number, place)
                narrow = optimizer.state[parameter]
                narrow["step"] = int(wide["step"])
                for name, moment in MOMENTS.items():
                    self._fill(narrow, moment, wide[name].to(parameter.device).float())

    def _fill(self, state: Any, number: int, values: Tensor) -> None:
        if state["state%d" % number].dtype != self._torch.uint8:
            state["state%d" % number].copy_(values)
            return
        code = state["qmap%d" % number]
        narrow, found = self._functional.quantize_blockwise(values.contiguous(), code=code, blocksize=BLOCK)
        state["state%d" % number].copy_(narrow)
        state["absmax%d" % number].copy_(found.absmax)
