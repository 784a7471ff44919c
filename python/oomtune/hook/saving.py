"""Where a script saves its results: noted while a job runs, kept from the user's files while a process is driven."""

import functools


def quiet_saves(torch, results):
    """torch.save to a path does nothing while the process is driven; into memory it works as ever."""
    original = torch.save

    @functools.wraps(original)
    def save(obj, f, *args, **kwargs):
        if results.driven() and not _in_memory(f):
            return results.wrote(f)
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
    for name, place in (("save_file", 1), ("save_model", 1)):
        original = getattr(module, name, None)
        if original is not None:
            setattr(module, name, _quiet(original, hook.results, place))


def _quiet(original, results, place):
    @functools.wraps(original)
    def save(*args, **kwargs):
        if results.driven():
            return results.wrote(args[place] if len(args) > place else kwargs.get("filename"))
        return original(*args, **kwargs)

    return save


def _in_memory(target):
    return hasattr(target, "write") and not hasattr(target, "name")
