"""Weights that are sharded between ranks (FSDP). Hooks of each forward pass gather them, and hooks of each backward pass
reduce their gradients. Micro-batches leave gradients where FSDP keeps them; only the last one of a call exchanges them."""

from __future__ import annotations

import contextlib
import operator

from .refusal import Uncuttable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Generator, Iterable

    from ..types import Module, Tensor, Torch

#: Methods that a module of `fully_shard` must have, and fields of its state: other versions of torch may differ.
NEEDED = ("set_requires_gradient_sync", "set_is_last_backward", "reshard", "_get_fsdp_state")
KNOWN = ("_state_ctx.is_last_backward", "_mp_policy.param_dtype", "_modules")


def _wrapped(module: Module) -> bool:
    """Whether it is wrapped by FullyShardedDataParallel; by class, as the wrapper forwards all attributes."""
    return any(kind.__name__ == "FullyShardedDataParallel" for kind in type(module).__mro__)


def _fully_sharded(module: Module) -> bool:
    """Whether it is sharded by `fully_shard`, or something like it."""
    kind: Any = type(module)  # pyright: ignore[reportUnknownVariableType]
    return hasattr(kind, "set_requires_gradient_sync")


def is_sharded(modules: Iterable[Module]) -> bool:
    return any(_wrapped(module) or _fully_sharded(module) for module in modules)


class ShardedWeights:
    """The sharded weights of a module and its submodules. Raises Uncuttable for kinds of sharding that are not known to
    work."""

    def __init__(self, torch: Torch, module: Module) -> None:
        self._torch = torch
        self._wrapped: list[Module] = [each for each in module.modules() if _wrapped(each)]
        self._sharded: list[Module] = [each for each in module.modules() if _fully_sharded(each)]
        self._roots = _outermost(module)
        if not self._whole_world():
            raise Uncuttable(
                "its weights are sharded between some of the ranks, or in a way that this version of torch keeps to itself (FSDP)"
            )
        #: Stands for the parameters in the graph: their gradients do not pass through it.
        self.anchor: Tensor = torch.zeros((), device=self._device(module), requires_grad=True)

    def _whole_world(self) -> bool:
        size = self._torch.distributed.get_world_size()
        if not all(hasattr(each, "_handle") and each.process_group.size() == size for each in self._wrapped):
            return False
        if not all(_as_known(each) for each in self._sharded):
            return False
        meshes = [
            parameter.device_mesh
            for each in self._sharded
            for parameter in each.parameters()
            if hasattr(parameter, "device_mesh")
        ]
        return all(tuple(mesh.mesh.shape) == (size,) for mesh in meshes)

    def _device(self, module: Module) -> Any:
        return next((parameter.device for parameter in module.parameters()), "cpu")

    def full(self) -> list[Tensor]:
        """The whole weights that gradients accumulate in, as the latest forward pass gathered them."""
        found: list[Tensor] = [each._handle.flat_param for each in self._wrapped if each._handle is not None]
        for group in self._groups():
            found += [shard._unsharded_param for shard in group.fsdp_params if hasattr(shard, "_unsharded_param")]
        return found

    @property
    def coarse(self) -> bool:
        """Whether they are computed in less than single precision."""
        policies = [each.mixed_precision for each in self._wrapped]
        policies += [each._get_fsdp_state()._mp_policy for each in self._sharded]
        fine = (None, self._torch.float32, self._torch.float64)
        return any(policy.param_dtype not in fine for policy in policies)

    @contextlib.contextmanager
    def no_sync(self) -> Generator[None, None, None]:
        """Backward passes inside exchange no gradients, which stay whole until a later pass does."""
        groups = [(group, group.reduce_grads, group.all_reduce_grads) for group in self._groups()]
        contexts = {id(each._get_fsdp_state()._state_ctx): each for each in self._sharded}
        lasts = [(each, each._get_fsdp_state()._state_ctx.is_last_backward) for each in contexts.values()]
        with contextlib.ExitStack() as stack:
            for each in self._roots:
                stack.enter_context(each.no_sync())
            for each in self._sharded:
                each.set_requires_gradient_sync(False, recurse=False)
                each.set_is_last_backward(False)
            try:
                yield
            finally:
                for group, reduces, all_reduces in groups:
                    group.reduce_grads, group.all_reduce_grads = reduces, all_reduces
                for each, last in lasts:
                    each.set_is_last_backward(last)

    @contextlib.contextmanager
    def resharded_after_forward(self) -> Generator[None, None, None]:
        """For forward passes inside a backward pass, where `fully_shard` keeps all weights whole after use: reshards them after
        each module, as in any forward pass."""
        handles = [
            each.register_forward_hook(_reshard, prepend=True)
            for each in self._sharded
            if len(each._get_fsdp_state()._modules) == 1
        ]
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()

    def _groups(self) -> list[Any]:
        found: list[Any] = []
        for each in self._sharded:
            state = each._get_fsdp_state()
            groups = getattr(state, "_fsdp_param_groups", None)
            for group in [state._fsdp_param_group] if groups is None else groups:
                if group is not None and group not in found:
                    found.append(group)
        return found


def _reshard(module: Module, inputs: Any, output: Any) -> None:
    module.reshard()


def _as_known(module: Module) -> bool:
    """Whether a module of `fully_shard` is of a kind that is known to work."""
    if not all(hasattr(module, name) for name in NEEDED):
        return False
    state = module._get_fsdp_state()
    try:
        for name in KNOWN:
            operator.attrgetter(name)(state)
    except AttributeError:
        return False
    return hasattr(state, "_fsdp_param_groups") or hasattr(state, "_fsdp_param_group")


def _outermost(module: Module) -> list[Module]:
    """The outermost modules wrapped by FullyShardedDataParallel."""
    if _wrapped(module):
        return [module]
    return [found for child in module.children() for found in _outermost(child)]
