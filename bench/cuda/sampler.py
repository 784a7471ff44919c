"""Watches through NVML what processes hold on the devices, so that the ledger's figures have something to be held to."""

import os
import threading
import time

import pynvml


class Sampler:
    """Peaks per session (each job runs in a session of its own), in bytes, summed over its processes, per device."""

    def __init__(self, interval: float = 0.005):
        pynvml.nvmlInit()
        self.handles = [pynvml.nvmlDeviceGetHandleByIndex(i) for i in range(pynvml.nvmlDeviceGetCount())]
        self.interval = interval
        self.peaks: dict[tuple[int, int], int] = {}
        self.stopping = False
        self.thread = threading.Thread(target=self._watch, daemon=True)
        self.thread.start()

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

    def peak(self, session: int, device: int) -> int:
        return self.peaks.get((session, device), 0)

    def _watch(self) -> None:
        while not self.stopping:
            for device, handle in enumerate(self.handles):
                sums: dict[int, int] = {}
                try:
                    processes = pynvml.nvmlDeviceGetComputeRunningProcesses(handle)
                except pynvml.NVMLError:
                    continue
                for process in processes:
                    try:
                        session = os.getsid(process.pid)
                    except ProcessLookupError:
                        continue
                    sums[session] = sums.get(session, 0) + (process.usedGpuMemory or 0)
                for session, bytes_ in sums.items():
                    if bytes_ > self.peaks.get((session, device), 0):
                        self.peaks[(session, device)] = bytes_
            time.sleep(self.interval)
