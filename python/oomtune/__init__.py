"""oomtune's word to a training script: `oomtune.config()` says what the tuner chose for this run.

Outside oomtune every figure has the default that the caller names, so a script that asks runs the same by hand.
"""

from .config import Config, config

__all__ = ["Config", "config"]
__version__ = "0.1.0"
