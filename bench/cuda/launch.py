"""Runs a command under the stand-in for libcuda, with a ledger of its own, and reads what the ledger saw."""

import json
import os
import shutil
import signal
import subprocess
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path


@dataclass
class Outcome:
    code: int | None
    seconds: float
    output: str
    ledger: dict | None
    nvml_peak: dict[int, int] = field(default_factory=dict)
    fullest: dict[int, dict] = field(default_factory=dict)

    def result(self) -> dict:
        """The last line of JSON that the job printed."""
        for line in reversed(self.output.splitlines()):
            if line.startswith("{"):
                try:
                    return json.loads(line)
                except json.JSONDecodeError:
                    continue
        return {}

    def device(self, index: int = 1) -> dict:
        for device in (self.ledger or {}).get("devices", []):
            if device["index"] == index:
                return device
        return {}


class Launcher:
    def __init__(self, native: Path, sampler):
        self.native = native
        self.sampler = sampler
        self.folder = Path(tempfile.mkdtemp(prefix="oomtune-bench-"))
        self.count = 0

    def close(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)

    def environment(self, budget: int | None, devices: list[int]) -> tuple[dict, Path]:
        self.count += 1
        ledger = self.folder / f"ledger-{self.count}"
        command = [str(self.native / "oomtune-ledger"), "create", str(ledger)]
        for ordinal, device in enumerate(devices):
            command += [str(1 + ordinal), "none" if budget is None else str(budget), self.sampler.uuid(device)]
        subprocess.run(command, check=True)
        cuda = self.native / "cuda"
        inherited = os.environ.get("LD_LIBRARY_PATH", "")
        return {
            "OOMTUNE_LEDGER": str(ledger),
            "LD_PRELOAD": str(cuda / "libcuda.so.1"),
            "LD_LIBRARY_PATH": f"{cuda}:{inherited}" if inherited else str(cuda),
        }, ledger

    def start(self, command: list[str], budget: int | None, *, watched: bool = True, devices: list[int] | None = None,
              env: dict | None = None) -> "Job":
        """`watched` False: bare, without the stand-in. A budget of None only counts."""
        devices = devices or [0]
        added, ledger = self.environment(budget, devices) if watched else ({}, None)
        visible = {"CUDA_VISIBLE_DEVICES": ",".join(map(str, devices)), "PYTHONUNBUFFERED": "1"}
        log = tempfile.TemporaryFile(mode="w+b", dir=self.folder)
        process = subprocess.Popen(command, env={**os.environ, **visible, **(env or {}), **added}, stdout=log,
                                   stderr=subprocess.STDOUT, start_new_session=True)
        self.sampler.watch(process.pid)
        return Job(self, process, log, ledger, devices)

    def run(self, command: list[str], budget: int | None, *, timeout: float = 120, **options) -> Outcome:
        return self.start(command, budget, **options).wait(timeout)


class Job:
    def __init__(self, launcher: Launcher, process: subprocess.Popen, log, ledger: Path | None, devices: list[int]):
        self.launcher = launcher
        self.process = process
        self.log = log
        self.ledger = ledger
        self.devices = devices
        self.begin = time.monotonic()
        self.fullest: dict[int, dict] = {}

    def read(self) -> dict | None:
        if self.ledger is None:
            return None
        read = subprocess.run([str(self.launcher.native / "oomtune-ledger"), "read", str(self.ledger)],
                              capture_output=True, text=True, check=False)
        return json.loads(read.stdout) if read.returncode == 0 else None

    def said(self, text: str) -> bool:
        """Has the job printed this by now?"""
        return text.encode() in os.pread(self.log.fileno(), 2**20, 0)

    def poll(self) -> None:
        """Keeps what the ledger says while the most is held."""
        reading = self.read()
        for device in (reading or {}).get("devices", []):
            if device["live"] > self.fullest.get(device["index"], {}).get("live", -1):
                self.fullest[device["index"]] = device

    def wait(self, timeout: float = 120) -> Outcome:
        try:
            code: int | None = self.process.wait(timeout=max(0.1, timeout - (time.monotonic() - self.begin)))
        except subprocess.TimeoutExpired:
            code = None
        seconds = time.monotonic() - self.begin
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self.process.wait()
        self.log.seek(0)
        output = self.log.read().decode(errors="replace")
        peaks = {device: self.launcher.sampler.peak(self.process.pid, device) for device in self.devices}
        return Outcome(code, seconds, output, self.read(), peaks, self.fullest)


def wait_all(jobs: dict[str, Job], timeout: float) -> dict[str, Outcome]:
    """Waits for jobs that run side by side, and looks at their ledgers meanwhile."""
    end = time.monotonic() + timeout
    outcomes: dict[str, Outcome] = {}
    while len(outcomes) < len(jobs):
        for name, job in jobs.items():
            if name in outcomes:
                continue
            job.poll()
            if job.process.poll() is not None or time.monotonic() > end:
                outcomes[name] = job.wait(0)
        time.sleep(0.1)
    return outcomes
