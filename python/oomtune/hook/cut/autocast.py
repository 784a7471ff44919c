"""Autocast as it was when the forward pass ran: the backward pass runs outside of the script's `with`."""

import contextlib


class Precision:
    """The autocast state now, to be entered again later."""

    def __init__(self, torch):
        self._torch = torch
        self._kinds = [_state(torch, kind) for kind in _kinds(torch)]

    @property
    def half(self):
        """Whether gradients may be too small for what they are computed in."""
        return any(enabled and dtype == self._torch.float16 for _, enabled, dtype in self._kinds)

    @contextlib.contextmanager
    def again(self):
        """What is cast inside is kept until the outermost of these ends."""
        with contextlib.ExitStack() as stack:
            for kind, enabled, dtype in self._kinds:
                stack.enter_context(self._torch.autocast(kind, enabled=enabled, dtype=dtype))
            yield

    @contextlib.contextmanager
    def off(self):
        with contextlib.ExitStack() as stack:
            for kind, enabled, _ in self._kinds:
                if enabled:
                    stack.enter_context(self._torch.autocast(kind, enabled=False))
            yield

    def forget_casts(self):
        """Weights that were cast where no gradients are kept must not serve where they are."""
        self._torch.clear_autocast_cache()


def _kinds(torch):
    return ("cuda", "cpu") if torch.cuda.is_available() else ("cpu",)


def _state(torch, kind):
    if hasattr(torch, "get_autocast_dtype"):
        return kind, torch.is_autocast_enabled(kind), torch.get_autocast_dtype(kind)
    if kind == "cuda":
        return kind, torch.is_autocast_enabled(), torch.get_autocast_gpu_dtype()
    return kind, torch.is_autocast_cpu_enabled(), torch.get_autocast_cpu_dtype()
