"""Watches through NVML what processes hold on the devices, so that the ledger's figures have something to be held to."""

import threading
import time

import pynvml


def parent(pid: int) -> int:
    with open(f"/proc/{pid}/stat") as file:
        return int(file.read().rpartition(")")[2].split()[1])


class Sampler:
    """Peaks per job, in bytes, summed over the job's processes, per device. A job is known by its first process."""

    def __init__(self, interval: float = 0.005):
        pynvml.nvmlInit()
        self.handles = [pynvml.nvmlDeviceGetHandleByIndex(i) for i in range(pynvml.nvmlDeviceGetCount())]
        self.interval = interval
        self.peaks: dict[tuple[int, int], int] = {}
        self.jobs: set[int] = set()
        self.owners: dict[int, int] = {}
        self.stopping = False
        self.thread = threading.Thread(target=self._watch, daemon=True)
        self.thread.start()

    def library(self) -> str:
        """Where the real NVML lies; within a job the stand-in would be found under its name."""
        with open("/proc/self/maps") as maps:
            return next(line.split()[-1] for line in maps if "libnvidia-ml.so" in line)

    def uuid(self, device: int) -> str:
        text = pynvml.nvmlDeviceGetUUID(self.handles[device])
        return text if isinstance(text, str) else text.decode()

    def name(self, device: int) -> str:
        text = pynvml.nvmlDeviceGetName(self.handles[device])
        return text if isinstance(text, str) else text.decode()

    def driver(self) -> str:
        text = pynvml.nvmlSystemGetDriverVersion()
        return text if isinstance(text, str) else text.decode()

    def used(self, device: int) -> int:
        return pynvml.nvmlDeviceGetMemoryInfo(self.handles[device]).used

    def free(self, device: int) -> int:
        return pynvml.nvmlDeviceGetMemoryInfo(self.handles[device]).free

    def total(self, device: int) -> int:
        return pynvml.nvmlDeviceGetMemoryInfo(self.handles[device]).total

    def watch(self, job: int) -> None:
        self.jobs.add(job)

    def peak(self, job: int, device: int) -> int:
        return self.peaks.get((job, device), 0)

    def _owner(self, pid: int) -> int:
        """The job from which a process descends; 0: none. Remembered, as orphans lose their parents."""
        if pid not in self.owners:
            at = pid
            while at > 1 and at not in self.jobs:
                at = parent(at)
            self.owners[pid] = at if at > 1 else 0
        return self.owners[pid]

    def _watch(self) -> None:
        while not self.stopping:
            alive: set[int] = set()
            for device, handle in enumerate(self.handles):
                sums: dict[int, int] = {}
                try:
                    processes = pynvml.nvmlDeviceGetComputeRunningProcesses(handle)
                except pynvml.NVMLError:
                    continue
                for process in processes:
                    alive.add(process.pid)
                    try:
                        job = self._owner(process.pid)
                    except (OSError, ValueError):
                        continue
                    sums[job] = sums.get(job, 0) + (process.usedGpuMemory or 0)
                for job, bytes_ in sums.items():
                    if bytes_ > self.peaks.get((job, device), 0):
                        self.peaks[(job, device)] = bytes_
            # A pid that comes back is another process.
            self.owners = {pid: job for pid, job in self.owners.items() if pid in alive}
            time.sleep(self.interval)
