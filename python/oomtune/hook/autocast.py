"""Mixed precision around the models' forward pass; what comes out is in single precision again."""

from collections.abc import Mapping


class Autocast:
    """`recomputes()`: whether a checkpoint makes a part of a forward pass again."""

    def __init__(self, torch, recomputes):
        self._torch = torch
        self._recomputes = recomputes
        self._device = "cpu"
        self._dtype = None
        #: True while the hook's own autocast is on.
        self.inside = False

    def switch(self, amp, device):
        self._device = device
        self._dtype = {"bf16": self._torch.bfloat16, "fp16": self._torch.float16}.get(amp)

    def around(self, call, *args, **kwargs):
        if self._dtype is None or self.inside or self._again():
            return call(*args, **kwargs)
        self.inside = True
        try:
            with self._torch.autocast(self._device, dtype=self._dtype):
                output = call(*args, **kwargs)
        finally:
            self.inside = False
        return self._single(output)

    def _again(self):
        """A checkpoint of the script's own makes a part again that was inside: torch has brought its precision back."""
        if not self._recomputes():
            return False
        try:
            return self._torch.is_autocast_enabled(self._device)
        except TypeError:  # before torch 2.4
            cpu = self._device == "cpu"
            return self._torch.is_autocast_cpu_enabled() if cpu else self._torch.is_autocast_enabled()

    def around_norm(self, call, value):
        return call(value.float() if self._dtype is not None else value)

    def _single(self, output):
        torch = self._torch
        if isinstance(output, torch.Tensor):
            return output.float() if output.dtype in (torch.bfloat16, torch.float16) else output
        if isinstance(output, tuple) and hasattr(output, "_fields"):
            return type(output)(*(self._single(part) for part in output))
        if isinstance(output, (list, tuple)) and type(output) in (list, tuple):
            return type(output)(self._single(part) for part in output)
        if isinstance(output, Mapping):
            for key, value in list(output.items()):
                single = self._single(value)
                if single is not value:
                    output[key] = single
        return output


def watch_autocast(torch, ours, found):
    """Calls found() when the script turns autocast on by itself."""
    kind = torch.autocast
    original = kind.__enter__

    def __enter__(self):
        if getattr(self, "_enabled", False) and not ours():
            found()
        return original(self)

    kind.__enter__ = __enter__
