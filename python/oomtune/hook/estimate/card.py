"""Makes the script believe in a GPU: what it asks of `torch.cuda` is answered, and its tensors say that they are there."""

# What stands in for torch's functions takes any arguments.
# pyright: reportUnknownLambdaType=false, reportUnknownVariableType=false

from __future__ import annotations

import functools

from . import cuda, kernels
from .autocast import Autocast
from .ledger import CardLedger, keeps_storages

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from ..types import Tensor, Torch


class NoEstimate(RuntimeError):
    pass


def install(folder: str, torch: Torch) -> CardLedger:
    """`folder`: for the traces. Raises NoEstimate for a torch that cannot be followed."""
    if not keeps_storages(torch):
        raise NoEstimate(
            "torch %s does not tell when memory is freed that only its graph holds: oomtune estimate needs torch 2.1 or newer"
            % torch.__version__
        )
    from .dispatch import card_mode

    ledger = CardLedger(folder)
    base = torch._C._TensorBase
    device_of = base.device.__get__

    def on_card(tensor: Any) -> bool:
        return (
            isinstance(tensor, torch.Tensor) and device_of(tensor).type == "meta" and ledger.holding(tensor) is not None
        )

    cuda.install(torch, ledger)
    _patch_tensors(torch, ledger, on_card)
    kernels.install(torch, on_card)
    Autocast(torch, on_card).install()
    card_mode(torch, ledger).__enter__()
    _leave_uncompiled(torch, ledger)
    return ledger


def _patch_tensors(torch: Torch, ledger: CardLedger, on_card: Any) -> None:
    Tensor, base = torch.Tensor, torch._C._TensorBase
    there = torch.device("cuda", 0)

    def patched(name: str, value: Any) -> None:
        """A property of tensors, which is `value` for those on the card."""
        original = getattr(base, name).__get__
        setattr(Tensor, name, property(lambda self: value if not ledger.inside and on_card(self) else original(self)))

    patched("device", there)
    patched("is_cuda", True)
    patched("is_meta", False)
    to = base.to

    @functools.wraps(to)
    def moved(self: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        """With the card's number: without one torch asks the driver for it."""
        if args and (isinstance(args[0], (str, torch.device)) or type(args[0]) is int):
            args = (numbered(args[0]), *args[1:])
        elif kwargs.get("device") is not None:
            kwargs["device"] = numbered(kwargs["device"])
        return to(self, *args, **kwargs)

    def numbered(device: Any) -> Any:
        return there if type(device) is int or torch.device(device).type == "cuda" else device

    Tensor.to = moved
    Tensor.cuda = lambda self, device=None, non_blocking=False, memory_format=torch.preserve_format: to(
        self, there, non_blocking=non_blocking, memory_format=memory_format
    )
    number = base.get_device
    Tensor.get_device = lambda self: 0 if on_card(self) else number(self)
    # Parameters stay the same objects when they are moved, as on a real card: weights stay tied, optimizers keep theirs.
    torch.__future__.set_swap_module_params_on_conversion(True)
    Tensor.pin_memory = lambda self, *args, **kwargs: self
    Tensor.is_pinned = lambda self, *args, **kwargs: False
    Tensor.record_stream = lambda self, *args: None
    torch.utils.data.DataLoader.__init__ = _unpinned(torch.utils.data.DataLoader.__init__)
    for owner, names in ((torch, ("tensor", "as_tensor", "asarray")), (Tensor, ("new_tensor",))):
        for name in names:
            setattr(owner, name, _made_on_host(torch, getattr(owner, name)))


def _unpinned(original: Any) -> Any:
    @functools.wraps(original)
    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        if kwargs.get("pin_memory"):
            kwargs["pin_memory"] = False
        original(self, *args, **kwargs)

    return __init__


def _made_on_host(torch: Torch, original: Any) -> Any:
    """Of functions that read values: makes the tensor on the host and copies it to the card."""

    @functools.wraps(original)
    def make(*args: Any, **kwargs: Any) -> Tensor:
        device = kwargs.get("device")
        if device is None and original.__name__ == "new_tensor":
            device = args[0].device
        if device is None or torch.device(device).type != "cuda":
            return original(*args, **kwargs)
        if original.__name__ != "new_tensor" and args and isinstance(args[0], torch.Tensor) and args[0].is_cuda:
            kwargs.pop("device")
            return args[0].to(kwargs["dtype"]) if kwargs.get("dtype") else args[0]
        wants = kwargs.pop("requires_grad", False)
        made = original(*args, **{**kwargs, "device": "cpu"}).to(device)
        return made.requires_grad_() if wants else made

    return make


def _leave_uncompiled(torch: Torch, ledger: CardLedger) -> None:
    """Compiled models run as they are written: what a compiler would save or take is not known."""
    note = "It compiles its model; here the model runs uncompiled, which mostly takes more memory."

    def compile(model: Any = None, *args: Any, **kwargs: Any) -> Any:
        ledger.notes.add(note)
        return (lambda given: given) if model is None else model

    torch.compile = compile
    torch.nn.Module.compile = lambda self, *args, **kwargs: ledger.notes.add(note)
