"""The hook's settings, which the worker passes in the environment of the launch."""

from __future__ import annotations

import os

from .apply.knobs import RungKnobs

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Iterable, Mapping


MODES = ("probe", "measure", "apply")
#: `whole`: as auto, but micro-batches that a framework would add up were seen to be another training than the whole batch (their
#: loss compares samples, or the loader makes larger ones).
CUTS = ("auto", "model", "loader", "whole")
KNOBS = ("micro_batch", "accumulation", *RungKnobs.NAMES)


def _count(environ: Mapping[str, str], name: str) -> int | None:
    """None if the variable is missing or no positive whole number."""
    text = environ.get(name, "")
    return int(text) if text.isdigit() and int(text) > 0 else None


class Settings:
    """Plain values; sizes in samples and bytes."""

    def __init__(self, mode: str, socket_path: str | None, environ: Mapping[str, str]) -> None:
        self.mode = mode
        self.socket_path = socket_path
        self.micro_batch = _count(environ, "OOMTUNE_MICRO_BATCH")
        self.accumulation = _count(environ, "OOMTUNE_ACCUMULATION") or 1
        #: A value of a knob of the command's own is tried: its batches are its own.
        self.own_batches = any(name.startswith("OOMTUNE_KNOB_") for name in environ)
        #: The script's own batches per optimizer step, if a search has seen them.
        self.own_accumulation = _count(environ, "OOMTUNE_OWN_ACCUMULATION") or 1
        #: The own batch of the script's loader and the samples of its data set, if a search has seen them.
        self.own_batch = _count(environ, "OOMTUNE_OWN_BATCH")
        #: Its batches have no one size that is known, and nobody has asked for others.
        self.keeps_unknown = self.mode == "apply" and environ.get("OOMTUNE_OWN_BATCH") == "unknown"
        self.own_samples = _count(environ, "OOMTUNE_OWN_SAMPLES")
        #: As the whole command has it, whoever brings it.
        self.rung = RungKnobs.from_environment(environ, RungKnobs.NAMES)
        self._environ = environ
        #: Where batches are cut: at the model's call, at the loader, or (auto) where the result is certainly the same.
        asked = environ.get("OOMTUNE_CUT", "")
        self.cut = asked if asked in CUTS else "auto"
        #: Micro-batches are counted in tokens: at most so many in each; None: a search finds how many, or samples are counted.
        self.counts_tokens = bool(environ.get("OOMTUNE_MICRO_BATCH_TOKENS"))
        self.micro_batch_tokens = _count(environ, "OOMTUNE_MICRO_BATCH_TOKENS")
        self.steps = max(2, _count(environ, "OOMTUNE_STEPS") or 3)
        asked = environ.get("OOMTUNE_HOOK_KNOBS", "").replace(" ", "").split(",")
        #: Knobs that the hook must apply; argv or a preset carries the others.
        self.knobs = frozenset(knob for knob in asked if knob in KNOBS)
        #: Fresh processes shall be forks of this one, if possible.
        self.forks = self.searching and environ.get("OOMTUNE_FORK") == "1"
        #: A loop begins with its first batch, before its optimizer is made; without a loader with its first call of the model,
        #: whatever the script's files mention.
        self.at_call = self.probing and environ.get("OOMTUNE_AT_CALL") == "1"
        #: So many loops over loaders, the first ones, train nothing: a script looks at a batch before its training.
        self.skipped_loops = _count(environ, "OOMTUNE_SKIP_LOOPS") or 0
        #: With a loader's batch size the script's variables are set that hold it.
        self.sets_variables = self.probing and environ.get("OOMTUNE_SET_VARIABLES") == "1"
        #: The size that the command's own words have only foretells the limit.
        self.foretells = environ.get("OOMTUNE_FORETELLS") == "1"
        #: The first steps of this job, which runs as it stands, are measured.
        self.watched = self.mode == "apply" and environ.get("OOMTUNE_WATCH") == "1"
        #: This job leaves a fork of itself to a search, for the case that it runs out of memory in its first steps.
        self.spares = self.watched and environ.get("OOMTUNE_FORK") == "1"
        #: The job is cut short, to see what its evaluation, generation and saving take.
        self.rehearses = self.mode == "apply" and environ.get("OOMTUNE_REHEARSE") == "1"
        #: All bytes that it may hold on one device; None: unknown.
        self.budget = _count(environ, "OOMTUNE_BUDGET_BYTES")
        #: The folder for traces of what a step allocates, on a card that is not there; None: the script trains on what is there.
        self.estimate = environ.get("OOMTUNE_ESTIMATE") or None

    @classmethod
    def from_environment(cls, environ: Mapping[str, str] | None = None) -> Settings | None:
        """None if the environment asks for no hook."""
        environ = os.environ if environ is None else environ
        mode = environ.get("OOMTUNE_HOOK", "")
        if mode not in MODES:
            return None
        return cls(mode, environ.get("OOMTUNE_HOOK_SOCKET") or None, environ)

    def rung_of(self, knobs: Iterable[str]) -> RungKnobs:
        """Only these knobs of the rung."""
        return RungKnobs.from_environment(self._environ, knobs)

    def begin_search(self) -> None:
        """In the spare of a job that runs as it stands: from now on the worker chooses the batches."""
        self.mode, self.forks = "probe", True
        self.watched = self.spares = False

    def read_again(self, environ: Mapping[str, str]) -> None:
        """In a fork that goes on as a start with other variables would."""
        self.__init__(self.mode, self.socket_path, environ)

    @property
    def wanted(self) -> int:
        """Samples that a batch of the script's loader shall have, before it is cut."""
        return max(1, (self.micro_batch or 1) * self.accumulation // self.own_accumulation)

    @property
    def keeps_batches(self) -> bool:
        """The optimizer sees the script's own batches, however many samples each loader's have: nobody has asked for others."""
        return self.keeps_unknown or self.own_batch == self.wanted

    @property
    def probing(self) -> bool:
        """Whether the worker chooses the batch sizes while the process runs."""
        return self.mode == "probe"

    @property
    def searching(self) -> bool:
        """Whether this process is measured in sizes that the worker chooses, and then thrown away."""
        return self.mode in ("probe", "measure")

    @property
    def thrown_away(self) -> bool:
        """Whether nothing that this process makes is kept."""
        return self.searching or self.rehearses
