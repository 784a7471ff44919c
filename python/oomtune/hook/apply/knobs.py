"""The knobs of a rung, without what turns them: every process of a job reads them."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Iterable, Mapping


class RungKnobs:
    """The knobs of a rung. A new one is named here, and put on in `apply/rung.py`: orders, variables and the rest follow."""

    NAMES = (
        "amp",
        "checkpointing",
        "checkpointed_blocks",
        "offload",
        "offloaded_part",
        "chunked_loss",
        "activation_memory_budget",
        "optimizer_on_host",
        "optimizer_8bit",
        "bf16_weights",
    )

    def __init__(
        self,
        amp: str | None = "off",
        checkpointing: bool = False,
        checkpointed_blocks: str | None = "",
        offload: bool = False,
        offloaded_part: str | None = "",
        chunked_loss: bool = False,
        activation_memory_budget: str | None = "",
        optimizer_on_host: bool = False,
        optimizer_8bit: bool = False,
        bf16_weights: bool = False,
    ) -> None:
        self.amp = amp or "off"
        self.checkpointing = bool(checkpointing)
        #: Which of the model's blocks, such as `0-3,6/12`; empty: all.
        self.checkpointed_blocks = checkpointed_blocks or ""
        self.offload = bool(offload)
        #: How much of the activations, such as `0.3`; empty: all.
        self.offloaded_part = offloaded_part or ""
        self.chunked_loss = bool(chunked_loss)
        #: The part of its activations that a compiled model may keep, such as `0.5`; empty: what it does by itself.
        self.activation_memory_budget = activation_memory_budget or ""
        self.optimizer_on_host = bool(optimizer_on_host)
        self.optimizer_8bit = bool(optimizer_8bit)
        self.bf16_weights = bool(bf16_weights)

    @classmethod
    def from_environment(cls, environ: Mapping[str, str], among: Iterable[str]) -> RungKnobs:
        """Those `among` the names, by their variables: OOMTUNE_AMP, OOMTUNE_CHECKPOINTING, …"""
        given = {name: environ.get("OOMTUNE_" + name.upper(), "") for name in cls.NAMES if name in among}
        texts = ("amp", "checkpointed_blocks", "offloaded_part", "activation_memory_budget")
        amp, blocks, part, budget = (given.pop(name, "") for name in texts)
        switches = {name: value == "1" for name, value in given.items()}
        return cls(amp, checkpointed_blocks=blocks, offloaded_part=part, activation_memory_budget=budget, **switches)

    @property
    def any(self) -> bool:
        return any(getattr(self, name) not in ("off", "", False) for name in self.NAMES)
