"""What the arrays and programs of JAX held at most. XLA takes three quarters of a GPU at its first allocation and shares it out
itself, so that the driver tells the same bytes for every batch size (https://docs.jax.dev/en/latest/gpu_memory_allocation.html)."""

from __future__ import annotations

import atexit
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import ModuleType
    from typing import Any

    from ..hook import Hook
    from ..messages import XlaPool


def report_at_exit(hook: Hook, jax: ModuleType) -> None:
    """JAX gives up its devices in an exit handler of its own. As it was registered before, it is called after this one."""
    atexit.register(_report, hook, jax)


def _report(hook: Hook, jax: ModuleType) -> None:
    pool = fullest_pool(jax)
    if pool is not None:
        hook.connection.send(pool)


def fullest_pool(jax: Any) -> XlaPool | None:
    """Of the device whose pool was filled most; None where JAX used no device, or tells nothing of it (CPU)."""
    bridge = sys.modules.get("jax._src.xla_bridge")
    try:
        # Asking a JAX that was only imported for its devices would take one.
        if bridge is None or not bridge.backends_are_initialized():
            return None
        pools = [_pool_of(device.memory_stats()) for device in jax.local_devices()]
    except Exception as error:  # the user's program has ended well: its exit must stay that
        sys.stderr.write("oomtune: JAX does not tell what its memory held: %s: %s\n" % (type(error).__name__, error))
        return None
    known = [pool for pool in pools if pool is not None]
    return max(known, key=lambda pool: pool["peak_bytes"] / pool["limit_bytes"]) if known else None


def _pool_of(stats: dict[str, int] | None) -> XlaPool | None:
    peak, limit = (stats or {}).get("peak_bytes_in_use", 0), (stats or {}).get("bytes_limit", 0)
    if stats is None or peak <= 0 or limit <= 0:
        return None
    return {"t": "xla_pool", "peak_bytes": peak, "pool_bytes": stats.get("pool_bytes", limit), "limit_bytes": limit}
