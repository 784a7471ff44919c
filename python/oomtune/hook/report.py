"""Tells the worker of an exception that ends the script, with the evidence of whether it was memory."""

import os
import sys
import threading

#: Texts of errors that mean: no memory on the device, or on the host where that is the device.
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
#: Texts that mean it only if an allocation was refused just before.
DOUBTFUL_TEXTS = (
    "could not execute a primitive",
    "CUSOLVER_STATUS_INTERNAL_ERROR",
    "CUFFT_INTERNAL_ERROR",
    "CUBLAS_STATUS_NOT_INITIALIZED",
    "could not create",
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


def is_oom(error, refused=False):
    if isinstance(error, MemoryError) or "OutOfMemory" in type(error).__name__:
        return True
    if not isinstance(error, RuntimeError):
        return False
    text = str(error)
    if any(part in text for part in OOM_TEXTS):
        return True
    return refused and any(part in text for part in DOUBTFUL_TEXTS)


def _class_name(kind):
    module = getattr(kind, "__module__", "")
    name = "OutOfMemoryError" if kind.__name__ == "OutOfMemoryError" else kind.__qualname__
    if module in ("builtins", ""):
        return name
    return ("torch." if module.startswith("torch") else module + ".") + name


def _frames(trace):
    import traceback

    return traceback.extract_tb(trace)


def is_user_code(path):
    here = os.path.dirname(os.path.abspath(__file__))
    parts = ("site-packages", "dist-packages", os.sep + "lib" + os.sep + "python", "<frozen", "<string>")
    return not path.startswith(here) and not any(part in path for part in parts)


def where(trace):
    """`train.py:41 in main`: the innermost line of the user's own code."""
    frames = _frames(trace)
    chosen = [frame for frame in frames if is_user_code(frame.filename)] or frames
    if not chosen:
        return None
    last = chosen[-1]
    return "%s:%d in %s" % (os.path.basename(last.filename), last.lineno, last.name)


def phase_of(trace, phase, trains=None, ended=None):
    """The phase by the names on the stack and by what the model did there, else as tracked: context managers are unwound
    by now. `trains(module)`: it holds parameters of an optimizer. `ended(trace)`: the training loop was over by then."""
    for frame in reversed(_frames(trace)):
        if frame.filename.endswith(os.path.join("torch", "serialization.py")) and frame.name in ("save", "_save"):
            return "save"
        if frame.name in ("save_checkpoint", "save_model", "save_pretrained", "_save_checkpoint"):
            return "save"
        if frame.name in _EVAL_NAMES and (is_user_code(frame.filename) or frame.name == "generate"):
            return "eval"
    if phase == "load":
        return phase
    mode = _mode(trace, trains)
    return mode or ("after" if phase == "train" and ended is not None and ended(trace) else phase)


def gradients_at(trace):
    """False: they were off where the error came from. True: nothing shows that they were."""
    from .loops import without_gradients

    while trace is not None:
        code = trace.tb_frame.f_code
        if is_user_code(code.co_filename) and without_gradients(code.co_filename, trace.tb_lineno):
            return False
        trace = trace.tb_next
        decorated = code.co_name == "decorate_context" and trace is not None
        if decorated and _OPTIMIZERS not in trace.tb_frame.f_code.co_filename:
            return False
    return True


def _mode(trace, trains):
    """`eval`: gradients were off, or the model that is trained was in evaluation mode; `train`: neither; None: not seen."""
    if not gradients_at(trace):
        return "eval"
    root = None
    while trace is not None:
        frame = trace.tb_frame
        path, name = frame.f_code.co_filename, frame.f_code.co_name
        trace = trace.tb_next
        if path.endswith(_AUTOGRAD) and name == "backward":
            return "train"
        module = frame.f_locals.get("self")
        if root is None and hasattr(module, "_modules") and hasattr(module, "training"):
            root = module if trains is None or trains(module) else None
    if root is None:
        return None
    return "train" if root.training else "eval"


_AUTOGRAD = (os.path.join("autograd", "__init__.py"), os.path.join("torch", "_tensor.py"))
_OPTIMIZERS = os.path.join("torch", "optim")


def swallowed(micro_batch):
    """The message for an out-of-memory error that the script caught."""
    return {
        "t": "exception",
        "class": "torch.OutOfMemoryError",
        "message": "out of memory (caught by the script)",
        "phase": "train",
        "frame": None,
        "oom": True,
        "micro_batch": micro_batch,
        "traceback": "",
    }


class Reporter:
    """`describe()` gives phase, micro_batch and whether an allocation was refused; `send(message)` carries it."""

    def __init__(self, send, describe):
        self._send = send
        self._describe = describe
        self._sent = None

    @property
    def told(self):
        return self._sent is not None

    def install(self):
        outer = sys.excepthook

        def excepthook(kind, error, trace):
            self.tell(kind, error, trace)
            outer(kind, error, trace)

        sys.excepthook = excepthook
        outer_thread = threading.excepthook

        def thread_excepthook(args):
            if args.exc_type is not SystemExit:
                self.tell(args.exc_type, args.exc_value, args.exc_traceback)
            outer_thread(args)

        threading.excepthook = thread_excepthook

    def tell(self, kind, error, trace):
        try:
            if error is None or error is self._sent or issubclass(kind, KeyboardInterrupt):
                return
            self._sent = error
            import traceback

            state = self._describe()
            oom = is_oom(error, state["refused"])
            text = "".join(traceback.format_exception(kind, error, trace))
            self._send(
                {
                    "t": "exception",
                    "class": _class_name(kind),
                    "message": str(error)[:2000],
                    "phase": phase_of(trace, state["phase"], state.get("trains"), state.get("ended")),
                    # That they were on is not known for sure: decorators turn them off in ways that leave no frame.
                    **({} if gradients_at(trace) else {"gradients": False}),
                    "frame": where(trace),
                    "oom": oom,
                    "kept_by": state["keeper"](trace) if oom and state.get("keeper") is not None else None,
                    "micro_batch": state["micro_batch"],
                    "traceback": text[-4096:],
                }
            )
        except Exception:  # the user's traceback must be printed whatever happens here
            pass
