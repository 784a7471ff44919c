"""What the card that is not there says of itself: answers to questions to `torch.cuda` and `torch.accelerator`."""

# What stands in for torch's functions takes any arguments.
# pyright: reportUnknownLambdaType=false, reportUnknownVariableType=false

from __future__ import annotations

import contextlib

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from ..types import Torch
    from .ledger import CardLedger


#: Memory of the card, in bytes: larger than any, as no allocation is to fail.
TOTAL = 1 << 42
#: Compute capability: that of H100 and H200.
CAPABILITY = (9, 0)
NAME = "NVIDIA H100 80GB HBM3"


class _Properties:
    name = NAME
    major, minor = CAPABILITY
    total_memory = TOTAL
    multi_processor_count = 132
    max_threads_per_multi_processor = 2048
    regs_per_multiprocessor = 65536
    shared_memory_per_block = 49152
    shared_memory_per_block_optin = 232448
    shared_memory_per_multiprocessor = 233472
    L2_cache_size = 52428800
    warp_size = 32
    is_integrated = 0
    is_multi_gpu_board = 0
    gcnArchName = ""
    uuid = "00000000-0000-0000-0000-000000000000"


class _Stream:
    """Stands for streams and events: there is nothing to wait for."""

    cuda_stream = 0
    stream_id = 0

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        pass

    def __enter__(self) -> _Stream:
        return self

    def __exit__(self, *args: Any) -> None:
        return None

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return lambda *args, **kwargs: None

    def is_capturing(self) -> bool:
        return False

    def query(self) -> bool:
        return True

    def elapsed_time(self, end: Any) -> float:
        return 1.0

    def record_event(self, event: Any = None) -> Any:
        return event or _Stream()


ANSWERS = {
    **dict.fromkeys(
        ("is_available", "is_initialized", "is_bf16_supported", "is_tf32_supported", "can_device_access_peer"), True
    ),
    **dict.fromkeys(("_is_in_bad_fork", "is_current_stream_capturing"), False),
    **dict.fromkeys(("current_device", "_exchange_device", "_maybe_exchange_device", "initial_seed"), 0),
    "device_count": 1,
    "get_device_name": NAME,
    "get_device_capability": CAPABILITY,
    "get_device_properties": _Properties(),
    "get_arch_list": ["sm_90"],
    "mem_get_info": (TOTAL, TOTAL),
    "memory_summary": "",
    "memory_snapshot": [],
}
NOTHING = (
    "init", "_lazy_init", "set_device", "synchronize", "empty_cache", "ipc_collect", "manual_seed", "manual_seed_all", "seed", "seed_all",
    "set_rng_state", "set_rng_state_all", "reset_peak_memory_stats", "reset_max_memory_allocated", "reset_max_memory_cached",
    "reset_accumulated_memory_stats", "set_stream", "set_per_process_memory_fraction",
)  # fmt: skip
ACCELERATOR = {
    "is_available": True,
    "device_count": 1,
    **dict.fromkeys(("current_device_index", "current_device_idx"), 0),
    "current_stream": _Stream(),
    "get_memory_info": (TOTAL, TOTAL),
    **dict.fromkeys(
        ("set_device_index", "set_device_idx", "set_stream", "synchronize", "empty_cache", "reset_peak_memory_stats")
    ),
}


def install(torch: Torch, ledger: CardLedger) -> None:
    cuda = torch.cuda

    def answer(value: Any) -> Any:
        return lambda *args, **kwargs: value

    def stats(*args: Any, **kwargs: Any) -> dict[str, Any]:
        return {
            "allocated_bytes": {"all": {"current": ledger.live, "peak": ledger.peak}},
            "reserved_bytes": {"all": {"current": ledger.live, "peak": ledger.peak}},
        }

    state = torch.zeros(16, dtype=torch.uint8)
    for name, value in ANSWERS.items():
        setattr(cuda, name, answer(value))
    for name, value in (("get_rng_state", state), ("get_rng_state_all", [state])):
        setattr(cuda, name, answer(value))
    for name in NOTHING:
        setattr(cuda, name, answer(None))
    for name in ("memory_allocated", "memory_reserved"):
        setattr(cuda, name, lambda *args: ledger.live)
        setattr(cuda, "max_" + name, lambda *args: ledger.peak)
    setattr(cuda, "memory_stats_as_nested_dict", stats)
    setattr(
        cuda,
        "memory_stats",
        lambda *args: {"allocated_bytes.all.current": ledger.live, "allocated_bytes.all.peak": ledger.peak},
    )
    for name in ("Stream", "Event", "ExternalStream"):
        setattr(cuda, name, _Stream)
    for name in ("current_stream", "default_stream"):
        setattr(cuda, name, answer(_Stream()))
    setattr(cuda, "stream", answer(contextlib.nullcontext()))
    accelerator = getattr(torch, "accelerator", None)
    if accelerator is None:
        return
    for name, value in {**ACCELERATOR, "current_accelerator": torch.device("cuda")}.items():
        setattr(accelerator, name, answer(value))
    for name in ("memory_allocated", "memory_reserved"):
        setattr(accelerator, name, lambda *args: ledger.live)
        setattr(accelerator, "max_" + name, lambda *args: ledger.peak)
