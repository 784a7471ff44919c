"""The messages between the hook and the worker. Only type checkers and a test read this file: the test compares it with the
worker's own definition.

Sizes in bytes, times in seconds, batches in samples; None if a figure is not available.
"""

from __future__ import annotations

from typing import Optional, TypedDict, Union


class Hello(TypedDict):
    """The first message of each rank."""

    t: str
    v: int
    pid: int
    #: Pid of the fork server that this process was forked from.
    fork_server: int | None
    rank: int
    world_size: int
    python: str
    torch: str | None
    device: str


class Capabilities(TypedDict):
    """What the hook can change in this process."""

    batch: bool
    accumulation: bool
    amp: bool
    fp16: bool
    checkpointing: bool
    #: Blocks of which checkpointing can take some; 0: all or none.
    checkpointed_blocks: int
    offload: bool
    offloaded_part: bool
    chunked_loss: bool
    activation_memory_budget: bool
    optimizer_on_host: bool
    optimizer_8bit: bool
    bf16_weights: bool
    switch_rung: bool


class TrainingLoop(TypedDict):
    """The training loop requests its first batch: what the script asks for, and what can be changed."""

    t: str
    own_batch: int | None
    own_accumulation: int | None
    samples: int | None
    #: Where batch sizes are set: `loader`, `variables` (the script's that hold the loader's batch size, with that), or `call` (of the model).
    place: str
    can: Capabilities
    #: Why a knob cannot be turned on, by its name, where that is worth telling.
    why_not: dict[str, str]
    warnings: list[str]


class Peaks(TypedDict):
    """Peaks of a measurement, by phase of the step."""

    total_bytes: int | None
    forward_backward_bytes: int | None
    optimizer_bytes: int | None
    reserved_bytes: int | None
    resident_bytes: int | None
    growth_bytes_per_step: int | None
    #: By how much the peaks of the steps differ, and what later ones may take beyond the highest.
    spread_bytes: int | None
    excess_bytes: int | None


class Breakdown(TypedDict):
    """What training keeps on the device from step to step."""

    parameter_bytes: int | None
    gradient_bytes: int | None
    optimizer_state_bytes: int | None


class Costs(Peaks, Breakdown):
    """Everything that one measurement yields."""

    #: Memory grows only in steps that bring new shapes of inputs, as a library's kernels for them do: it comes to an end.
    grows_with_shapes: bool
    #: What a step needs, whatever is given back at once left out; None: not known, or the same as what it takes.
    needed_bytes: int | None
    #: The most that lay in pieces when the caching allocator had given back its cache; None: it had not, or not known.
    pieces_bytes: int | None
    steps: int
    step_s: list[float]
    alloc_retries: int
    #: A library was at work that does with less workspace where memory is short.
    flexible_workspaces: bool
    #: An allocation was refused, and the step went on without it: such a library did with less.
    workspaces_refused: bool
    quiet_steps: int | None
    creep_bytes_per_step: float | None


class _Short(TypedDict, total=False):
    #: The loop ended before all requested steps were made.
    short: bool


class Measured(Costs, _Short):
    """A probe, or the steps requested after it, has run: what it cost on this rank."""

    t: str
    micro_batch: int
    accumulation: int
    #: Tokens of the longest sample, where micro-batches are counted in them.
    longest_tokens: int | None
    kept_by: str | None
    own_accumulation: int
    own_amp: bool
    #: Why the loss was not computed in chunks, where the rung asks for that; None: it was, or the rung does not.
    unchunked: str | None
    #: Where all blocks are checkpointed: of each the bytes that its activations hold, and the seconds of its forward pass.
    blocks: list[tuple[int, float]] | None


#: The script raised an uncaught exception, or ran out of memory. Not a class body, as `class` is a keyword.
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
    #: False: it was raised where gradients were off.
    gradients: bool
    #: True: the script trained on batches of its own, while a loader might yet have been asked for one.
    waited_for_loader: bool
    #: True: a model was trained, and no optimizer of torch had been made.
    without_optimizer: bool
    #: The kinds of the modules whose calls were cut before memory ran out; absent: none had to be.
    cut_calls: list[str]


class Step(TypedDict):
    """While the job runs: the number of optimizer steps so far."""

    t: str
    n: int
    samples: int
    resident_bytes: int | None
    #: The script's variable that grows with it.
    kept_by: str | None
    #: What the caching allocator holds now, the most that was in use at once, and how often it gave its cache back to try again.
    reserved_bytes: int | None
    allocated_peak_bytes: int | None
    alloc_retries: int


class PhasePeak(TypedDict):
    """What a phase of a rehearsal took; `whole_bytes`: what all batches of the evaluation would take where that is more."""

    phase: str
    peak_bytes: int | None
    whole_bytes: int | None
    #: Of the evaluation's pass: batches that ran and that there are, samples in each, and what was in use before.
    batches: int | None
    of_batches: int | None
    batch: int | None
    held_bytes: int | None


class Rehearsed(TypedDict):
    """A rehearsal has come so far; `over`: to its end."""

    t: str
    #: In which it is now.
    phase: str
    phases: list[PhasePeak]
    steps: int
    over: bool


class _Code(TypedDict, total=False):
    code: str


class Notice(_Code):
    """The loop evaluates or saves (`eval`, `save`), or the user should be warned (`warn`)."""

    t: str
    message: str


class Checkpoint(TypedDict):
    """A job that was asked to has written a checkpoint, and waits: it ends there, or goes on."""

    t: str
    #: Optimizer steps so far.
    n: int


class CutPlace(TypedDict):
    """Where batches are cut into micro-batches, and why."""

    t: str
    cut: str
    why: str


class Goodbye(TypedDict):
    """The hook stops taking part: why."""

    t: str
    reason: str
    message: str


class XlaPool(TypedDict):
    """JAX ends: the most that was in use of XLA's pool, what the pool is now, and what it may become."""

    t: str
    peak_bytes: int
    pool_bytes: int
    limit_bytes: int


class ForkServerHello(TypedDict):
    """The fork server waits at the script's first use of the device, and is forked for each life; where the lives differ by their
    `arguments`, before these are read: as they are, without the program's name. None: they do not."""

    t: str
    pid: int
    arguments: list[str] | None


class LifeBegins(TypedDict):
    """From the fork server: a life runs."""

    t: str
    pid: int


class LifeEnds(TypedDict):
    """From the fork server: how the life ended. One of `code` and `signal` is None."""

    t: str
    pid: int
    code: int | None
    signal: int | None


class PlainStart(TypedDict):
    """The process that was started trains itself: why it is no fork server."""

    t: str
    message: str


#: Messages from the hook, by `t`.
SENT = {
    "hello": Hello,
    "fork_server": ForkServerHello,
    "life": LifeBegins,
    "died": LifeEnds,
    "plain": PlainStart,
    "loop": TrainingLoop,
    "measured": Measured,
    "exception": Raised,
    "step": Step,
    "eval": Notice,
    "save": Notice,
    "warn": Notice,
    "checkpoint": Checkpoint,
    "cut": CutPlace,
    "rehearsed": Rehearsed,
    "xla_pool": XlaPool,
    "goodbye": Goodbye,
}
SentMessage = Union[
    Hello,
    ForkServerHello,
    LifeBegins,
    LifeEnds,
    PlainStart,
    TrainingLoop,
    Measured,
    Raised,
    Step,
    Notice,
    Checkpoint,
    CutPlace,
    Rehearsed,
    XlaPool,
    Goodbye,
]


class ProbeOrder(TypedDict):
    """Run this size for `steps` optimizer steps and report what it cost."""

    t: str
    micro_batch: int
    accumulation: int
    amp: str
    checkpointing: bool
    #: Which blocks, such as `0-3,6/12`; empty: all.
    checkpointed_blocks: str
    offload: bool
    #: How much of the activations, such as `0.3`; empty: all.
    offloaded_part: str
    chunked_loss: bool
    #: Such as `0.5`; empty: the model's own.
    activation_memory_budget: str
    optimizer_on_host: bool
    optimizer_8bit: bool
    bf16_weights: bool
    steps: int
    batch: int | None
    vary: bool
    #: `torch.backends.cudnn.benchmark` is as the script has it; else off.
    benchmark: bool


class MoreOrder(TypedDict):
    """Continue the current probe for `steps` more steps."""

    t: str
    steps: int


class PlainOrder(TypedDict):
    """`go`: let the script go on unchanged. `end`: end the process. `checkpoint`: tell of the next checkpoint, and wait there."""

    t: str


class LifeOrder(TypedDict):
    """End the current life and fork another, with these environment variables; `arguments` None: with those that the launch has."""

    t: str
    env: dict[str, str]
    arguments: list[str] | None


#: Messages from the worker, by `t`.
RECEIVED = {
    "life": LifeOrder,
    "probe": ProbeOrder,
    "more": MoreOrder,
    "go": PlainOrder,
    "end": PlainOrder,
    "checkpoint": PlainOrder,
}
