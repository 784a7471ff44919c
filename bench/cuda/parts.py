"""The parts of the measurement. Each starts jobs, and records one row a finding."""

import json
import statistics
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Callable

from launch import wait_all

JOBS = Path(__file__).parent / "jobs"
GIB = 2**30
MIB = 2**20


@dataclass
class Bench:
    launcher: object
    sampler: object
    record: Callable[[str, dict], None]
    nvcc: str | None
    only: list[str]
    flags: list[str]

    def python(self, script: str, *words: object) -> list[str]:
        return [sys.executable, str(JOBS / script), *map(str, words)]

    def runtime_program(self) -> str | None:
        if self.nvcc is None:
            return None
        program = self.launcher.folder / "runtime"
        if not program.exists():
            subprocess.run([self.nvcc, "-O2", "-arch=native", "-o", str(program), str(JOBS / "runtime.cu")], check=True,
                           timeout=120)
        return str(program)


def has(module: str) -> bool:
    code = f"import importlib.util, sys; sys.exit(importlib.util.find_spec({module!r}) is None)"
    return subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def verdict(outcome, budget: int, place: int = 1, device: int = 0) -> dict:
    """The ledger's peak beside NVML's, and whether they agree: within 2 MiB for each allocation, or 1 %."""
    result = outcome.result()
    seen = outcome.device(place)
    nvml = outcome.nvml_peak.get(device, 0)
    ledger = seen.get("peak", 0)
    allowed = max(0.01 * nvml, 2 * MIB * max(1, result.get("allocations", 1)))
    return {
        "code": outcome.code, "seconds": round(outcome.seconds, 1), "budget": budget, "ledger_peak": ledger,
        "nvml_peak": nvml, "difference_pct": round(100 * (ledger - nvml) / nvml, 2) if nvml else None,
        "agrees": bool(nvml) and abs(ledger - nvml) <= allowed, "within_budget": nvml <= budget,
        "overhead": seen.get("overhead"), "measured_by": {1: "process", 2: "device"}.get(seen.get("measured")),
        "kinds_when_fullest": outcome.fullest.get(place, {}).get("kinds"), "refused": (outcome.ledger or {}).get("refused"),
        "blind": (outcome.ledger or {}).get("blind"),
        "own_oom": result.get("is_torch_oom", result.get("is_own_oom")), "recovered": result.get("recovered"),
        "error": result.get("error"), "text": result.get("text"),
        "live_after": seen.get("live"), "said": {k: v for k, v in result.items() if k not in ("text", "error")},
        "tail": outcome.output[-1500:] if outcome.code != 0 else "",
    }


def compat(bench: Bench) -> None:
    budget = 6 * GIB
    jobs = {f"torch {mode}": bench.python("torch_train.py", mode)
            for mode in ("native", "expandable", "async", "graphs", "async-graphs", "workers", "ipc")}
    jobs["torch two processes"] = bench.python("torch_pair.py")
    jobs["figures"] = bench.python("figures.py")
    jobs["torch eager modules"] = bench.python("torch_train.py", "native")
    environments = {"torch eager modules": {"CUDA_MODULE_LOADING": "EAGER"}}
    if has("jax"):
        jobs |= {f"jax {mode}": bench.python("jax_train.py", mode) for mode in ("preallocate", "grow", "async")}
    else:
        bench.record("compat", {"job": "jax", "left_out": "JAX is not installed"})
    if has("cupy"):
        jobs |= {f"cupy {mode}": bench.python("cupy_compute.py", mode) for mode in ("pool", "async")}
    else:
        bench.record("compat", {"job": "cupy", "left_out": "CuPy is not installed"})
    program = bench.runtime_program()
    if program is not None:
        jobs["static cudart"] = [program]
        jobs["static cudart, reset"] = [program, "reset"]
    else:
        bench.record("compat", {"job": "static cudart", "left_out": "nvcc is not installed"})
    names = [name for name in jobs if not bench.only or name in bench.only]
    # Each has a budget of its own, so they can run side by side; a few at a time, for the host's sake.
    for at in range(0, len(names), 9):
        running = {name: bench.launcher.start(jobs[name], budget, env=environments.get(name))
                   for name in names[at:at + 9]}
        for name, outcome in wait_all(running, 100).items():
            bench.record("compat", {"job": name, **verdict(outcome, budget)})


def fitted(bench: Bench, guesses: dict[tuple[str, int], int]) -> dict[tuple[str, int, str], int | None]:
    """The largest batches by a budget, and by torch's memory fraction. Their limits do not get in each other's way, so that as
    many run side by side as the card has room for."""
    total = bench.sampler.total(0)
    waiting = [(model, size, by) for (model, size) in guesses for by in ("budget", "fraction")]
    found: dict[tuple[str, int, str], int | None] = {}
    while waiting:
        room = bench.sampler.free(0)
        running = {}
        for key in list(waiting):
            model, size, by = key
            need = size * GIB + 2 * GIB  # a fraction does not limit contexts and libraries
            if need > room and running:
                continue
            room -= need
            waiting.remove(key)
            guess = guesses[model, size]
            if by == "budget":
                running[key] = bench.launcher.start(bench.python("fit.py", model, guess), size * GIB)
            else:
                fraction = bench.python("fit.py", model, int(guess * 1.1), size * GIB / total)
                running[key] = bench.launcher.start(fraction, None, watched=False)
        for key, job in running.items():
            outcome = job.wait(150)
            found[key] = outcome.result().get("largest")
            bench.record("exact-run", {"model": key[0], "gib": key[1], "by": key[2], "largest": found[key],
                                       "seconds": round(outcome.seconds, 1), "code": outcome.code,
                                       "nvml_peak": outcome.nvml_peak.get(0), "overhead": outcome.device().get("overhead"),
                                       "ledger_peak": outcome.device().get("peak"),
                                       "refused": (outcome.ledger or {}).get("refused"),
                                       "tail": outcome.output[-800:] if outcome.code != 0 else ""})
    return found


def really_free(bench: Bench, model: str, size: int, guess: int) -> tuple[int, object]:
    """The card as it is, with all but `size` GiB held by another process: what was free at the start, and the outcome."""
    holder = bench.launcher.start(bench.python("hold.py", size * GIB), None, watched=False)
    try:
        deadline = time.monotonic() + 60
        while not holder.said("holding") and time.monotonic() < deadline:
            time.sleep(0.1)
        free = bench.sampler.free(0)
        return free, bench.launcher.run(bench.python("fit.py", model, guess), None, watched=False, timeout=90)
    finally:
        holder.wait(0)


def difference_pct(value: int | None, real: int | None) -> float | None:
    return round(100 * (value - real) / real, 2) if value and real else None


def exact(bench: Bench) -> None:
    guesses = {("resnet50", 8): 164, ("resnet50", 16): 352, ("gpt2", 8): 15, ("gpt2", 16): 34}
    found = fitted(bench, guesses)
    for (model, size), guess in guesses.items():
        budget, fraction = found[model, size, "budget"], found[model, size, "fraction"]
        free, outcome = really_free(bench, model, size, budget or guess)
        real = outcome.result().get("largest")
        # The bare job cannot hold more than was free, and not less was to be free: else the card was not as full as thought.
        held = outcome.nvml_peak.get(0, 0)
        void = (f"the bare job held {held} bytes where {free} were free" if held > free + 2 * MIB
                else f"{free} bytes were free instead of {size} GiB" if abs(free - size * GIB) > 32 * MIB else None)
        bench.record("exact", {"model": model, "gib": size, "really_free": real, "budget": budget, "fraction": fraction,
                               "nvml_free_at_start": free, "difference_pct": difference_pct(budget, real),
                               "fraction_difference_pct": difference_pct(fraction, real), "nvml_peak": held, "void": void,
                               "tail": outcome.output[-800:] if outcome.code != 0 else ""})


def cost(bench: Bench) -> None:
    rounds: dict[str, dict[bool, list[float]]] = {}
    for _ in range(3):
        for watched in (False, True):
            budget = 64 * GIB if watched else None
            outcome = bench.launcher.run(bench.python("pace.py", 200, "resnet50:64", "mlp:64"), budget, watched=watched,
                                         timeout=90)
            for name, figures in outcome.result().items():
                rounds.setdefault(name, {False: [], True: []})[watched].append(figures["median_ms"])
            if outcome.code != 0:
                bench.record("cost", {"failed": outcome.output[-800:]})
    for name, sides in rounds.items():
        bare, within = (statistics.median(sides[side]) for side in (False, True))
        bench.record("cost", {"step": name, "bare_ms": round(bare, 4), "with_ms": round(within, 4),
                              "difference_pct": round(100 * (within - bare) / bare, 2), "bare_rounds_ms": sides[False],
                              "with_rounds_ms": sides[True]})
    pairs(bench)


def pairs(bench: Bench) -> None:
    program = bench.runtime_program()
    if program is None:
        bench.record("cost", {"pair": "all", "left_out": "nvcc is not installed"})
        return
    rounds: dict[str, dict[bool, list[float]]] = {}
    for _ in range(5):
        for watched in (False, True):
            outcome = bench.launcher.run([program, "pairs"], 64 * GIB if watched else None, watched=watched, timeout=30)
            for name, figure in outcome.result().items():
                rounds.setdefault(name, {False: [], True: []})[watched].append(figure)
    for name, sides in rounds.items():
        bare, within = (statistics.median(sides[side]) for side in (False, True))
        bench.record("cost", {"pair": name, "bare_ns": round(bare), "with_ns": round(within),
                              "added_ns": round(within - bare), "bare_rounds": sides[False],
                              "with_rounds": sides[True]})


def neighbours(bench: Bench) -> None:
    steady = bench.launcher.start(bench.python("steady.py", 24, 32), 12 * GIB)
    time.sleep(14)
    begin = time.time()
    overrun = bench.launcher.run(bench.python("overrun.py"), 4 * GIB, timeout=30)
    end = time.time()
    outcome = steady.wait(60)
    steps = outcome.result().get("steps", [])
    before = [ms for at, ms in steps if at < begin]
    during = [ms for at, ms in steps if begin <= at <= end]
    after = [ms for at, ms in steps if at > end]
    median = {k: round(statistics.median(v), 3) if v else None
              for k, v in (("before", before), ("during", during), ("after", after))}
    bench.record("neighbours", {
        "steady_code": outcome.code, "steady_refused": (outcome.ledger or {}).get("refused"), "step_ms": median,
        "steps": len(steps), "overrun_code": overrun.code, "overrun_nvml_peak": overrun.nvml_peak.get(0),
        "overrun_budget": 4 * GIB, "overrun_oom": "OutOfMemoryError" in overrun.output,
        "tail": outcome.output[-800:] if outcome.code != 0 else ""})


CALLS = ("sparse", "green", "graphs", "register", "heap", "pools", "first", "multicast")


def calls(bench: Bench) -> None:
    """One after the other: the whole device's figure is what each is held to."""
    budget = 3 * GIB
    for kind in CALLS:
        if bench.only and kind not in bench.only:
            continue
        outcome = bench.launcher.run(bench.python("calls.py", kind, bench.sampler.library(), *bench.flags), budget, timeout=60)
        said = outcome.result()
        steps = said.get("steps", [])
        bench.record("calls", {
            "job": kind, "code": outcome.code, "seconds": round(outcome.seconds, 1), "budget": budget,
            "left_out": said.get("left_out"), "failed": said.get("failed"), "context": said.get("context"),
            "agrees": bool(steps) and all(step["agrees"] for step in steps),
            "nvml_peak": outcome.nvml_peak.get(0), "within_budget": outcome.nvml_peak.get(0, 0) <= budget,
            "refused": (outcome.ledger or {}).get("refused"), "blind": (outcome.ledger or {}).get("blind"),
            "torch": said.get("torch"), "tail": outcome.output[-1500:] if outcome.code != 0 else "",
        })
        for at, step in enumerate(steps):
            bench.record("calls-step", {"job": kind, "at": at, **step})


def ddp(bench: Bench) -> None:
    budget = 10 * GIB
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2",
               str(JOBS / "ddp.py")]
    outcome = wait_all({"ddp": bench.launcher.start(command, budget, devices=[0, 1])}, 120)["ddp"]
    reports = [json.loads(line) for line in outcome.output.splitlines() if line.startswith("{")]
    for report in reports:
        rank = report["rank"]
        outcome.output = json.dumps(report)
        bench.record("ddp", {"job": f"torch DDP rank {rank}", **verdict(outcome, budget, 1 + rank, rank)})
    if len(reports) != 2:
        bench.record("ddp", {"job": "torch DDP", **verdict(outcome, budget)})
