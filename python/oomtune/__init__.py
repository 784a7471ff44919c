"""oomtune's word to a training script: `oomtune.config()` says what the tuner chose for this run.

Outside oomtune every figure has the default that the caller names, so a script that asks runs the same by hand.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from .knobs import Config, config
else:

    def config(*args, **kwargs):
        """See oomtune.knobs.config(). Imported when asked for: the hook lives in this package too and must start fast."""
        from .knobs import config

        return config(*args, **kwargs)


__all__ = ["Config", "config"]
__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    if name == "Config":
        from .knobs import Config

        return Config
    raise AttributeError("module 'oomtune' has no attribute %r" % name)
