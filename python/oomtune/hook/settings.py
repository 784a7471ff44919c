"""What the worker asks of the hook, from the environment of the launch."""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Mapping


MODES = ("probe", "measure", "apply")
CUTS = ("auto", "model", "loader")
KNOBS = ("micro_batch", "accumulation", "amp", "checkpointing", "offload")


def _count(environ: Mapping[str, str], name: str) -> int | None:
    """None where nothing is said, and where what is said is no count."""
    text = environ.get(name, "")
    return int(text) if text.isdigit() and int(text) > 0 else None


class Settings:
    """Plain values; sizes in samples and bytes."""

    def __init__(self, mode: str, socket_path: str | None, environ: Mapping[str, str]) -> None:
        self.mode = mode
        self.socket_path = socket_path
        self.micro_batch = _count(environ, "OOMTUNE_MICRO_BATCH")
        self.accumulation = _count(environ, "OOMTUNE_ACCUMULATION") or 1
        #: Batches that the script itself makes one optimizer step of, where a search has learned it.
        self.own_accumulation = _count(environ, "OOMTUNE_OWN_ACCUMULATION") or 1
        #: The batch of the script's own loader, and the samples of its data set, where a search has seen them.
        self.own_batch = _count(environ, "OOMTUNE_OWN_BATCH")
        self.own_samples = _count(environ, "OOMTUNE_OWN_SAMPLES")
        self.amp = environ.get("OOMTUNE_AMP") or "off"
        self.checkpointing = environ.get("OOMTUNE_CHECKPOINTING") == "1"
        self.offload = environ.get("OOMTUNE_OFFLOAD") == "1"
        #: Where batches are cut: at the model's call, at the loader, or (auto) wherever it is the same for certain.
        asked = environ.get("OOMTUNE_CUT", "")
        self.cut = asked if asked in CUTS else "auto"
        self.steps = max(2, _count(environ, "OOMTUNE_STEPS") or 3)
        asked = environ.get("OOMTUNE_HOOK_KNOBS", "").replace(" ", "").split(",")
        #: Knobs that the hook has to apply by itself; argv or a preset carries the others.
        self.knobs = frozenset(knob for knob in asked if knob in KNOBS)
        #: Fresh processes are to be forks of this one, where they can be.
        self.forks = self.drives and environ.get("OOMTUNE_FORK") == "1"
        self.rank = int(environ.get("RANK") or 0)
        self.world_size = _count(environ, "WORLD_SIZE") or 1

    @classmethod
    def from_environment(cls, environ: Mapping[str, str] | None = None) -> Settings | None:
        """None where the environment asks for no hook."""
        environ = os.environ if environ is None else environ
        mode = environ.get("OOMTUNE_HOOK", "")
        if mode not in MODES:
            return None
        return cls(mode, environ.get("OOMTUNE_HOOK_SOCKET") or None, environ)

    @property
    def wanted(self) -> int:
        """Samples that a batch of the script's loader is to have, whatever parts it is run in."""
        return max(1, (self.micro_batch or 1) * self.accumulation // self.own_accumulation)

    @property
    def drives(self) -> bool:
        """Whether the worker decides on the batches while the process runs."""
        return self.mode == "probe"

    @property
    def searching(self) -> bool:
        """Whether this process is thrown away after its measurements."""
        return self.mode in ("probe", "measure")
