"""What a program is told of the card: by NVML (as vLLM and monitoring ask it), by nvidia-smi and by torch."""

import json
import subprocess

import pynvml
import torch

report = {}
pynvml.nvmlInit()
handle = pynvml.nvmlDeviceGetHandleByIndex(0)
for moment in ("before", "after"):
    memory = pynvml.nvmlDeviceGetMemoryInfo(handle)
    report[f"nvml_{moment}"] = [memory.total, memory.used, memory.free]
    second = pynvml.nvmlDeviceGetMemoryInfo(handle, version=pynvml.nvmlMemory_v2)
    report[f"nvml_v2_{moment}"] = [second.total, second.used, second.free]
    hold = torch.empty(2**30, dtype=torch.uint8, device="cuda")
report["torch"] = list(torch.cuda.mem_get_info())
smi = subprocess.run(["nvidia-smi", "--query-gpu=memory.total,memory.used", "--format=csv,noheader"], check=False,
                     capture_output=True, text=True)
report["nvidia_smi"] = smi.stdout.strip().splitlines()
report["nvidia_smi_code"] = smi.returncode
report["allocations"] = 1
print(json.dumps(report))
