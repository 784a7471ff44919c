"""Judges an exception: whether memory ran out, in which phase, and at which line of the script."""

from __future__ import annotations

import os
import sys
import traceback

from ..watch.existing import existing_objects
from ..watch.script import before_step, gradients_within, is_user_code

TYPE_CHECKING = False
if TYPE_CHECKING:
    from traceback import StackSummary
    from types import FrameType, TracebackType
    from typing import Callable

    from ..messages import Raised
    from ..types import Module


#: Texts of errors that mean out of memory, on the device or on the host.
OOM_TEXTS = (
    "out of memory",
    "can't allocate memory",
    "CUBLAS_STATUS_ALLOC_FAILED",
    "CUDNN_STATUS_ALLOC_FAILED",
    "not enough memory",
    "Unable to allocate",
    "std::bad_alloc",
    "could not create a memory object",
)
#: Texts that mean out of memory only if an allocation was refused just before.
DOUBTFUL_TEXTS = (
    "could not execute a primitive",
    "CUSOLVER_STATUS_INTERNAL_ERROR",
    "CUFFT_INTERNAL_ERROR",
    "CUBLAS_STATUS_NOT_INITIALIZED",
    "could not create",
)

_SAVE_NAMES = (
    "save_checkpoint",
    "save_model",
    "save_pretrained",
    "_save_checkpoint",
    "get_model_state_dict",
    "get_optimizer_state_dict",
    "get_state_dict",
)

_EVAL_NAMES = (
    "evaluate",
    "generate",
    "predict",
    "evaluation",
    "validate",
    "validation",
    "eval",
    "test",
    "evaluation_loop",
)


def is_oom(error: BaseException, refused: bool = False) -> bool:
    if isinstance(error, MemoryError) or "OutOfMemory" in type(error).__name__:
        return True
    if not isinstance(error, RuntimeError):
        return False
    text = str(error)
    if any(part in text for part in OOM_TEXTS):
        return True
    return refused and any(part in text for part in DOUBTFUL_TEXTS)


def oom_being_handled(error: BaseException, trace: TracebackType | None) -> BaseException | None:
    """The out-of-memory error while which was handled this one was raised (a fallback of the script's that fails itself, a
    checkpoint that cannot be written): the reason for both. None: there is none, or the handler went on to train."""
    if _in_a_step(trace):
        return None
    seen: set[int] = set()
    while id(error) not in seen:
        seen.add(id(error))
        before = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
        if before is None or is_oom(before):
            return before
        error = before
    return None


def class_name(kind: type[BaseException]) -> str:
    module = getattr(kind, "__module__", "")
    name = "OutOfMemoryError" if kind.__name__ == "OutOfMemoryError" else kind.__qualname__
    if module in ("builtins", ""):
        return name
    return ("torch." if module.startswith("torch") else module + ".") + name


def _frames(trace: TracebackType | None) -> StackSummary:
    return traceback.extract_tb(trace)


def location(trace: TracebackType | None) -> str | None:
    """`train.py:41 in main`: the innermost line of the user's own code."""
    frames = _frames(trace)
    chosen = [frame for frame in frames if is_user_code(frame.filename)] or frames
    if not chosen:
        return None
    last = chosen[-1]
    return "%s:%d in %s" % (os.path.basename(last.filename), last.lineno, last.name)


def phase_of(
    trace: TracebackType | None,
    phase: str,
    trains: Callable[[Module], bool] | None = None,
    ended: Callable[[TracebackType | None], bool] | None = None,
    stepped: bool = True,
) -> str:
    """load, train, eval, save or after: by the functions on the stack and the model's mode there, else `phase` as tracked.
    `trains(module)`: whether it holds parameters of an optimizer. `ended(trace)`: whether the training loop was over.
    `stepped`: an optimizer has made a step."""
    for frame in reversed(_frames(trace)):
        if frame.filename.endswith(os.path.join("torch", "serialization.py")) and frame.name in ("save", "_save"):
            return "save"
        if frame.name in _SAVE_NAMES:
            return "save"
        if frame.name in _EVAL_NAMES and (is_user_code(frame.filename) or frame.name == "generate"):
            return "eval"
    mode = _mode(trace, trains, stepped)
    if phase == "load":
        # A loop without a DataLoader is not tracked: it is known by what it was doing, or by the graph that it was to differentiate.
        if trains is None or mode == "eval":
            return phase
        return "train" if (mode == "train" and _in_a_step(trace)) or _holds_graph() else phase
    return mode or ("after" if phase == "train" and ended is not None and ended(trace) else phase)


def gradients_enabled_at(trace: TracebackType | None) -> bool:
    """False if gradients were off where the error was raised; True if nothing shows that they were. An optimizer's own step is as
    good as on, as it is a part of the training: SAM's, without gradients, calls a closure that turns them on."""
    enabled = True
    while trace is not None:
        frame, line = trace.tb_frame, trace.tb_lineno
        path, trace = frame.f_code.co_filename, trace.tb_next
        if _OPTIMIZERS in path or hasattr(frame.f_locals.get("self"), "param_groups"):
            enabled = True
        said = _GUARDS.get(_guard(frame))
        if said is None and is_user_code(path):
            said = gradients_within(path, line)
        enabled = enabled if said is None else said
    return enabled


def _guard(frame: FrameType) -> str:
    """The name of the guard whose decorator's frame this is; the function's own where it is none, and empty around a function of torch's:
    that gathers sharded weights without gradients, which says nothing of the script."""
    name = frame.f_code.co_name
    if (getattr(frame.f_locals.get("func"), "__module__", None) or "").startswith("torch."):
        return ""
    if name != "decorate_context":
        return name
    maker = frame.f_locals.get("ctx_factory", frame.f_locals.get("self"))
    guard = getattr(maker, "__self__", maker)
    return (guard if isinstance(guard, type) else type(guard)).__name__


def _mode(trace: TracebackType | None, trains: Callable[[Module], bool] | None, stepped: bool) -> str | None:
    """`eval`: gradients were off, or the trained model was in evaluation mode, and not for a part of a training step, as a teacher's
    outputs are or an attack on the pictures; `train`: neither; None: unknown. `stepped`: an optimizer has made a step."""
    gradients = gradients_enabled_at(trace)
    root = outermost = None
    steps = False
    places: list[tuple[str, int]] = []
    while trace is not None:
        frame, line = trace.tb_frame, trace.tb_lineno
        path, name = frame.f_code.co_filename, frame.f_code.co_name
        # What a model does inside has its own reasons: frozen parts of it are called without gradients in training.
        if outermost is None and is_user_code(path):
            places.insert(0, (path, line))
            steps = steps or name == "training_step"  # of a framework, that makes the backward pass
        trace = trace.tb_next
        if gradients and path.endswith(_AUTOGRAD) and name in _BACKWARD:
            return "train"
        module = frame.f_locals.get("self")
        if hasattr(module, "_modules") and hasattr(module, "training"):
            outermost = module if outermost is None else outermost
            if root is None and (trains is None or trains(module)):
                root = module
    if gradients and (root is None or root.training):
        return None if root is None else "train"
    said = steps or before_step(places)
    # Before any step a model is called without gradients to make its first weights of a batch, say, unless it is evaluated.
    first = not gradients and not stepped and root is not None and root.training
    return "train" if said or (said is None and first) else "eval"


def _in_a_step(trace: TracebackType | None) -> bool:
    """Whether a forward or backward pass was under way (and no model was being moved to a device, say)."""
    for frame in _frames(trace):
        if frame.name in ("forward", "_call_impl") or (frame.name in _BACKWARD and frame.filename.endswith(_AUTOGRAD)):
            return True
    return False


def _holds_graph() -> bool:
    """Whether anything holds what a forward pass with gradients made, in a library's variables, too: a loss was being computed, say.
    What modules hold themselves does not count, as weights that are made of others (weight normalisation) have a graph from the start."""
    torch = sys.modules["torch"]
    try:
        objects = existing_objects()
    except MemoryError:
        return False  # nothing tells of one where there is no room to look
    # type(), not isinstance(): a lazy proxy would load its object for isinstance().
    modules = [item for item in objects if issubclass(type(item), torch.nn.Module)]
    own = {id(value) for module in modules for value in module.__dict__.values()}
    tensors = (item for item in objects if issubclass(type(item), torch.Tensor))
    return any(not tensor.is_leaf and id(tensor) not in own for tensor in tensors)


#: torch.autograd's functions that make a backward pass.
_BACKWARD = ("backward", "grad")
_AUTOGRAD = (os.path.join("autograd", "__init__.py"), os.path.join("torch", "_tensor.py"))
_OPTIMIZERS = os.path.join("torch", "optim")
#: Whether gradients are on within torch's guards. Older decorators give all of their frames one name, newer ones the guard's.
_GUARDS = {"no_grad": False, "inference_mode": False, "enable_grad": True}


def caught_oom_message(micro_batch: int | None) -> Raised:
    """The message for an out-of-memory error that the script caught."""
    return {
        "t": "exception",
        "class": "torch.OutOfMemoryError",
        "message": "out of memory (caught by the script)",
        "phase": "train",
        "frame": None,
        "oom": True,
        "kept_by": None,
        "micro_batch": micro_batch,
        "traceback": "",
    }
