"""`find_executable_batch_size()`, with the signature and the behaviour of accelerate's, for scripts that do without it."""

from __future__ import annotations

import functools
import inspect

from .out_of_memory import free_memory, in_search, is_out_of_memory, let_go

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable


def find_executable_batch_size(
    function: Callable[..., Any] | None = None,
    starting_batch_size: int = 128,
    reduce_batch_size_fn: Callable[[], int] | None = None,
) -> Any:
    """A decorator: calls `function(batch_size, …)`, and again with a smaller batch size each time that memory runs out.

    `reduce_batch_size_fn` takes nothing and returns the next size; without it each is 0.9 times the one before. The size that
    worked is where the next call begins. A process that a search of oomtune measures makes one try only.

    Raises RuntimeError when the size reaches zero, TypeError where the caller passes a batch size itself.
    """
    if function is None:
        return functools.partial(
            find_executable_batch_size,
            starting_batch_size=starting_batch_size,
            reduce_batch_size_fn=reduce_batch_size_fn,
        )
    batch_size = starting_batch_size

    def reduced() -> int:
        return int(batch_size * 0.9)

    def decorator(*args: Any, **kwargs: Any) -> Any:
        nonlocal batch_size
        free_memory()
        names = list(inspect.signature(function).parameters)
        if len(names) < len(args) + 1:
            shown = ", ".join("%s=%s" % pair for pair in zip(names[1:], args[1:]))
            raise TypeError(
                "Batch size was passed into `%s` as the first argument when called."
                "Remove this as the decorator already does so: `%s(%s)`" % (function.__name__, function.__name__, shown)
            )
        while True:
            if batch_size == 0:
                raise RuntimeError("No executable batch size found, reached zero.")
            try:
                return function(batch_size, *args, **kwargs)
            except Exception as error:
                if in_search() or not is_out_of_memory(error):
                    raise
                let_go(error)
            free_memory()
            batch_size = (reduce_batch_size_fn or reduced)()

    return decorator
