"""The optimizer's state waits in host memory between steps. The optimizer's own step runs on a few parameters at a time, with the
state of these on the device: it computes what it always does. What is saved is the state as it waits, which any run can load."""

from __future__ import annotations

import functools

from ..cut.fsdp import is_sharded
from .host_copies import CopiesByDevice
from .step_in_turns import StepInTurns, present, waiting

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from ..types import Call, Optimizer, Tensor, Torch
    from ..watch.models import Modules
    from ..watch.optimizers import Optimizers

#: Those of torch that step each parameter by itself, and keep something of its size for it.
KINDS = ["Adadelta", "Adagrad", "Adam", "AdamW", "Adamax", "ASGD", "Muon", "NAdam", "RAdam", "RMSprop", "Rprop", "SGD"]
UNSUITABLE = "no optimizer is one of torch's own that steps each parameter by itself (%s), keeps a state and is not for CUDA graphs"
SHARDED = "the weights are sharded between ranks"


class OptimizerOnHost:
    def __init__(self, torch: Torch, modules: Modules, optimizers: Optimizers) -> None:
        self._torch = torch
        self._modules = modules
        self._optimizers = optimizers
        self._copies = CopiesByDevice(torch)

    def possible(self) -> bool:
        return self._apart() and self.why_not() is None

    def _apart(self) -> bool:
        """Whether there is a device beside the host: on the CPU device the state is in host memory already."""
        return any(map(self._copies.on_device, self._optimizers.parameters()))

    def why_not(self) -> str | None:
        """None: it can be turned on, or nothing would be gained."""
        if not self._apart():
            return None
        if is_sharded(self._modules.all()):
            return SHARDED
        known = self._optimizers.known()
        return None if any(map(self._suits, known)) else UNSUITABLE % ", ".join(KINDS)

    def _suits(self, optimizer: Optimizer) -> bool:
        torch = self._torch
        if type(optimizer) not in [getattr(torch.optim, name, None) for name in KINDS]:
            return False
        if type(optimizer) is torch.optim.SGD and not any(group["momentum"] for group in optimizer.param_groups):
            return False
        return not any(
            group.get("capturable")
            or group.get("differentiable")
            or any(type(parameter) is not torch.nn.Parameter for parameter in group["params"])
            for group in optimizer.param_groups
        )

    def switch(self, wanted: bool) -> None:
        for optimizer in self._optimizers.known():
            if wanted:
                self.adopt(optimizer)
            elif isinstance(self._optimizers.steps_instead.get(optimizer), StepInTurns):
                self._release(optimizer)

    def adopt(self, optimizer: Optimizer) -> None:
        """From now on its state waits on the host; also one that has just been made, and may yet load what it is to go on from."""
        instead = self._optimizers.steps_instead
        # The models are not looked at: they are as they will be once training begins.
        if optimizer in instead or not self._suits(optimizer):
            return
        instead[optimizer] = StepInTurns(self._torch, type(optimizer), self._copies.of)
        optimizer.load_state_dict = functools.partial(self._load, optimizer.load_state_dict)
        for parameter, state in list(optimizer.state.items()):
            self.send_away(parameter, state)

    def _release(self, optimizer: Optimizer) -> None:
        del self._optimizers.steps_instead[optimizer]
        del optimizer.load_state_dict
        for parameter, state in optimizer.state.items():
            copies = self._copies.of(parameter)
            if copies is not None:
                names = [name for name, _ in waiting(copies, state)]
                here, _ = copies.bring([state[name] for name in names])
                copies.rest()
                state.update(zip(names, here))

    def send_away(self, parameter: Tensor, state: dict[str, Any]) -> None:
        """At once, with nothing beside."""
        copies = self._copies.of(parameter)
        if copies is not None:
            pairs = {name: (copies.host_like(each), each) for name, each in present(copies, state)}
            copies.send(pairs.values())
            copies.rest()
            state.update({name: host for name, (host, _) in pairs.items()})

    def _load(self, original: Call, *args: Any, **kwargs: Any) -> Any:
        """Each tensor goes on to the host before the next one comes: where the whole state is to wait there, it may not fit the device."""
        kind = self._torch.optim.Optimizer
        place: Any = getattr(kind, "_process_value_according_to_param_policy", None)
        if place is None:  # before torch 2.0: all of them at once
            return original(*args, **kwargs)

        def sent_on(parameter: Any, value: Any, *rest: Any, **named: Any) -> Any:
            state = {"": place(parameter, value, *rest, **named)}
            self.send_away(parameter, state)
            return state[""]

        kind._process_value_according_to_param_policy = staticmethod(sent_on)
        try:
            return original(*args, **kwargs)
        finally:
            kind._process_value_according_to_param_policy = staticmethod(place)
