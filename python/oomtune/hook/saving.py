"""While a process is driven its results mean nothing: they must not overwrite the user's files."""

import functools


def quiet_saves(torch, driven):
    """torch.save to a path does nothing while `driven()`; into memory it works as ever."""
    original = torch.save

    @functools.wraps(original)
    def save(obj, f, *args, **kwargs):
        if driven() and not _in_memory(f):
            return None
        return original(obj, f, *args, **kwargs)

    torch.save = save
    torch.serialization.save = save


def tell_saves(torch, hook):
    """Keeps the phase while a checkpoint is written: running out of memory there has another remedy."""
    original = torch.save

    @functools.wraps(original)
    def save(*args, **kwargs):
        before, hook.phase = hook.phase, "save"
        hook.telemetry.saving()
        result = original(*args, **kwargs)
        hook.phase = before
        return result

    torch.save = save
    torch.serialization.save = save


def quiet_safetensors(hook, module):
    def driven():
        return hook.driving

    for name in ("save_file", "save_model"):
        original = getattr(module, name, None)
        if original is not None:
            setattr(module, name, _quiet(original, driven))


def _quiet(original, driven):
    @functools.wraps(original)
    def save(*args, **kwargs):
        if driven():
            return None
        return original(*args, **kwargs)

    return save


def _in_memory(target):
    return hasattr(target, "write") and not hasattr(target, "name")
