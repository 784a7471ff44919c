"""The hook: probes several batch sizes inside one process, applies knobs to an unmodified script, reports what it sees.

`start()` is called by the injected sitecustomize before the user's script. It costs a few small imports and nothing
more until the script imports torch.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .hook import Hook


def start() -> Hook | None:
    from .settings import Settings

    settings = Settings.from_environment()
    if settings is None:
        return None
    from .hook import Hook

    hook = Hook(settings)
    hook.install()
    return hook
