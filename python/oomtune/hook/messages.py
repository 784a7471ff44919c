"""What goes over the line between the hook and the worker, message by message. Only type checkers and a test read this file:
the test holds it to the worker's own definition.

Bytes, seconds, samples; None where a figure cannot be had.
"""

from __future__ import annotations

from typing import Optional, TypedDict, Union


class Hello(TypedDict):
    """A rank is there: once, first of all."""

    t: str
    v: int
    pid: int
    #: The process that this one is a fork of.
    template: int | None
    rank: int
    world_size: int
    python: str
    torch: str | None
    device: str


class Can(TypedDict):
    """What the hook can change in this process."""

    batch: bool
    accumulation: bool
    amp: bool
    fp16: bool
    checkpointing: bool
    offload: bool
    switch_rung: bool


class TrainingLoop(TypedDict):
    """The training loop asks for its first batch: what it asks for by itself, and what can be changed."""

    t: str
    own_batch: int | None
    own_accumulation: int | None
    samples: int | None
    #: Where sizes are set: `loader`, or `call` (of the model).
    place: str
    can: Can
    warnings: list[str]


class Peaks(TypedDict):
    """Highest figures of a measurement, by phase of the step."""

    total_bytes: int | None
    forward_backward_bytes: int | None
    optimizer_bytes: int | None
    reserved_bytes: int | None
    resident_bytes: int | None
    growth_bytes_per_step: int | None


class Breakdown(TypedDict):
    """What training keeps on the device from step to step."""

    parameter_bytes: int | None
    gradient_bytes: int | None
    optimizer_state_bytes: int | None


class Costs(Peaks, Breakdown):
    """What a measurement knows by itself."""

    steps: int
    step_s: list[float]
    alloc_retries: int
    quiet_steps: int | None
    creep_bytes_per_step: float | None


class _Short(TypedDict, total=False):
    #: The loop ended by itself before it had made all of the steps: these are all that there are.
    short: bool


class Measured(Costs, _Short):
    """A probe, or the steps that were asked for after it, ran: what it cost on this rank."""

    t: str
    micro_batch: int
    accumulation: int
    kept_by: str | None
    own_accumulation: int
    own_amp: bool


#: The script raised an exception that nothing caught, or ran out of memory. `class` is a keyword.
RaisedBase = TypedDict(
    "RaisedBase",
    {
        "t": str,
        "class": str,
        "message": str,
        "phase": str,
        "frame": Optional[str],
        "oom": bool,
        "kept_by": Optional[str],
        "micro_batch": Optional[int],
        "traceback": str,
    },
)


class Raised(RaisedBase, total=False):
    #: False: gradients were off where it was raised.
    gradients: bool


class Step(TypedDict):
    """While the job runs: optimizer steps so far."""

    t: str
    n: int
    samples: int
    resident_bytes: int | None
    #: The variable of the script that grows with it.
    kept_by: str | None


class _Code(TypedDict, total=False):
    code: str


class Remark(_Code):
    """The loop evaluates or saves (`eval`, `save`), or does something that is to be warned of (`warn`)."""

    t: str
    message: str


class CutPlace(TypedDict):
    """Where batches are cut into micro-batches, and why there."""

    t: str
    cut: str
    why: str


class Goodbye(TypedDict):
    """The hook takes no part, or no more: why."""

    t: str
    reason: str
    message: str


class TemplateHello(TypedDict):
    """The process waits at its first use of the device, and is forked for each life."""

    t: str
    pid: int


class LifeBegins(TypedDict):
    """Of the template: a fork goes on from there."""

    t: str
    pid: int


class LifeEnds(TypedDict):
    """Of the template: how the fork ended. One of the two is known."""

    t: str
    pid: int
    code: int | None
    signal: int | None


class PlainStart(TypedDict):
    """The process that was started trains by itself: why it is no template."""

    t: str
    message: str


#: What the hook says, by `t`.
SAID = {
    "hello": Hello,
    "template": TemplateHello,
    "life": LifeBegins,
    "died": LifeEnds,
    "plain": PlainStart,
    "loop": TrainingLoop,
    "measured": Measured,
    "exception": Raised,
    "step": Step,
    "eval": Remark,
    "save": Remark,
    "warn": Remark,
    "cut": CutPlace,
    "bye": Goodbye,
}
Said = Union[
    Hello,
    TemplateHello,
    LifeBegins,
    LifeEnds,
    PlainStart,
    TrainingLoop,
    Measured,
    Raised,
    Step,
    Remark,
    CutPlace,
    Goodbye,
]


class ProbeOrder(TypedDict):
    """Run this size for so many optimizer steps, and tell what it cost."""

    t: str
    micro_batch: int
    accumulation: int
    amp: str
    checkpointing: bool
    offload: bool
    steps: int
    batch: int | None
    vary: bool


class MoreOrder(TypedDict):
    """The probe goes on where it is, for more steps."""

    t: str
    steps: int


class PlainOrder(TypedDict):
    """`go`: the script goes on as it stands. `end`: it is to end where it is."""

    t: str


class LifeOrder(TypedDict):
    """The life that runs is to leave, and the template to be forked once more: for one with these variables."""

    t: str
    env: dict[str, str]


#: What the worker says, by `t`.
HEARD = {"life": LifeOrder, "probe": ProbeOrder, "more": MoreOrder, "go": PlainOrder, "end": PlainOrder}
