"""An optimizer's own step, on a few parameters at a time, whose state comes to the device for it and goes back to the host."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Iterator

    from ..types import Call, Optimizer, Tensor, Torch
    from .host_copies import HostCopies

#: Numbers in a tensor from which it is worth its way.
LARGE = 2**14
#: Bytes of the parameters that are stepped together; a larger one is stepped by itself.
TOGETHER = 2**24


def present(copies: HostCopies, state: dict[str, Any]) -> list[tuple[str, Tensor]]:
    """What of a parameter's state is worth its way to the host."""
    return [(name, each) for name, each in _large(state) if copies.on_device(each)]


def waiting(copies: HostCopies, state: dict[str, Any]) -> list[tuple[str, Tensor]]:
    return [(name, each) for name, each in _large(state) if not copies.on_device(each)]


def _large(state: dict[str, Any]) -> Iterator[tuple[str, Tensor]]:
    for name, each in state.items():
        if hasattr(each, "numel") and each.numel() >= LARGE:
            yield name, each


class StepInTurns:
    """The step of one kind of optimizer, on a few parameters after the other. While these are stepped, the state of the next comes, and
    that of the last goes. `copies(parameter)`: None where it is on no device beside the host."""

    def __init__(self, torch: Torch, kind: Any, copies: Callable[[Tensor], HostCopies | None]) -> None:
        self._torch = torch
        self._copies = copies
        self._own = _bare_step(kind)
        # The hooks of a step, which a script may have set, and its place in a profile: once, around all.
        around = getattr(kind, "profile_hook_step", None)
        self._whole: Call = self._in_turns if around is None else around(self._in_turns)

    def __call__(self, optimizer: Optimizer, *args: Any, **kwargs: Any) -> Any:
        return self._whole(optimizer, *args, **kwargs)

    def _in_turns(self, optimizer: Optimizer, closure: Any = None) -> Any:
        loss = None
        if closure is not None:
            with self._torch.enable_grad():
                loss = closure()
        groups = optimizer.param_groups
        try:
            self._step(optimizer, groups)
        finally:
            optimizer.param_groups = groups
        return loss

    def _step(self, optimizer: Optimizer, groups: list[dict[str, Any]]) -> None:
        turns = [_Turn(optimizer, *each) for each in self._turns(groups)]
        try:
            for turn in turns[:1]:
                turn.begin()
            optimizer.param_groups = list(self._staying(groups))
            self._own(optimizer)
            for at, turn in enumerate(turns):
                # No more than three are on the device: one comes, one is stepped, one goes.
                if at > 1:
                    turns[at - 2].end()
                if at + 1 < len(turns):
                    turns[at + 1].begin()
                turn.run(self._own)
        finally:
            # Whoever reads the state, or saves it, finds it whole, and no copy is left in memory that another tensor gets.
            for copies in {id(turn.copies): turn.copies for turn in turns}.values():
                copies.rest()

    def _staying(self, groups: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
        for group in groups:
            some = [each for each in group["params"] if not self._travels(each)]
            if some:
                yield {**group, "params": some}

    def _travels(self, parameter: Tensor) -> bool:
        large = parameter.grad is not None and parameter.numel() >= LARGE
        return large and self._copies(parameter) is not None

    def _turns(self, groups: list[dict[str, Any]]) -> Iterator[tuple[HostCopies, dict[str, Any]]]:
        """Parameters of a group and a device that are stepped together."""
        for group in groups:
            some: list[Tensor] = []
            size = 0
            for parameter in filter(self._travels, group["params"]):
                more = parameter.numel() * parameter.element_size()
                if some and (size + more > TOGETHER or parameter.device != some[0].device):
                    yield self._turn(group, some)
                    some, size = [], 0
                some.append(parameter)
                size += more
            if some:
                yield self._turn(group, some)

    def _turn(self, group: dict[str, Any], some: list[Tensor]) -> tuple[HostCopies, dict[str, Any]]:
        copies = self._copies(some[0])
        assert copies is not None
        return copies, {**group, "params": some}


class _Turn:
    """A few parameters whose state comes to the device, is used, and goes."""

    def __init__(self, optimizer: Optimizer, copies: HostCopies, group: dict[str, Any]) -> None:
        self.copies = copies
        self._optimizer = optimizer
        self._group = group
        #: What waits on the host, by parameter and name, while it is used on the device.
        self._homes: dict[tuple[Tensor, str], Tensor] = {}
        self._here: list[Tensor] = []
        self._copied: Any = None

    def _states(self) -> Iterator[tuple[Tensor, dict[str, Any]]]:
        states = self._optimizer.state
        return ((each, states[each]) for each in self._group["params"] if each in states)

    def begin(self) -> None:
        self._homes = {
            (each, name): tensor for each, state in self._states() for name, tensor in waiting(self.copies, state)
        }
        self._here, self._copied = self.copies.bring(list(self._homes.values()))

    def run(self, step: Call) -> None:
        self.copies.wait(self._copied)
        for (parameter, name), tensor in zip(self._homes, self._here):
            self._optimizer.state[parameter][name] = tensor
        self._optimizer.param_groups = [self._group]
        step(self._optimizer)
        pairs: list[tuple[Tensor, Tensor]] = []
        for parameter, state in self._states():
            for name, tensor in present(self.copies, state):
                state[name] = self._home(parameter, name, tensor)
                pairs.append((state[name], tensor))
        self._here = [tensor for _, tensor in pairs]
        self._copied = self.copies.send(pairs)

    def _home(self, parameter: Tensor, name: str, tensor: Tensor) -> Tensor:
        home = self._homes.get((parameter, name))
        known = home is not None and (home.dtype, home.shape, home.stride()) == (
            tensor.dtype,
            tensor.shape,
            tensor.stride(),
        )
        return home if known else self.copies.host_like(tensor)

    def end(self) -> None:
        self.copies.wait(self._copied)
        self._homes, self._here = {}, []


def _bare_step(kind: Any) -> Call:
    """The step that the class itself defines, without what torch and the hook have put around it."""
    step = kind.step
    while getattr(step, "hooked", False) and hasattr(step, "__wrapped__"):
        step = step.__wrapped__
    return step
