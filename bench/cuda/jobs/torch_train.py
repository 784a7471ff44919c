"""Trains a little with torch, then takes memory until it is refused, lets go, and trains on.

Modes: native, expandable, async (allocators), graphs (a captured step), async-graphs (both), workers (data-loader processes),
ipc (a tensor shared with another process). The last line is JSON: which error came, and whether training went on after it.
"""

import json
import os
import sys
import time

mode = sys.argv[1]
if mode == "expandable":
    os.environ["PYTORCH_CUDA_ALLOC_CONF"] = os.environ["PYTORCH_ALLOC_CONF"] = "expandable_segments:True"
if mode in ("async", "async-graphs"):
    os.environ["PYTORCH_CUDA_ALLOC_CONF"] = os.environ["PYTORCH_ALLOC_CONF"] = "backend:cudaMallocAsync"

import torch  # noqa: E402
from torch import nn  # noqa: E402


def build():
    torch.manual_seed(0)
    layers = [nn.Conv2d(3, 64, 3, padding=1), nn.BatchNorm2d(64), nn.ReLU(), nn.Conv2d(64, 64, 3, padding=1), nn.ReLU(),
              nn.AdaptiveAvgPool2d(8), nn.Flatten(), nn.Linear(4096, 1000)]
    model = nn.Sequential(*layers).cuda()
    return model, torch.optim.AdamW(model.parameters(), lr=1e-3)


def step(model, optimizer, x, y):
    optimizer.zero_grad(set_to_none=True)
    with torch.autocast("cuda", torch.bfloat16):
        loss = nn.functional.cross_entropy(model(x), y)
    loss.backward()
    optimizer.step()
    return loss


def child(queue, done):
    """What another process shares is not this one's to pay for: says what the ledger charges here."""
    import ctypes

    tensor = queue.get()
    total = tensor.sum().item()
    tensor.add_(0)
    live = getattr(ctypes.CDLL(None), "oomtune_live", None)
    if live is not None:
        live.restype = ctypes.c_uint64
        torch.empty(2**20, device="cuda")
        total = [total, live(0), torch.cuda.memory_reserved()]
    queue.put(total)
    done.wait()


def main():
    model, optimizer = build()
    x, y = torch.randn(32, 3, 64, 64, device="cuda"), torch.randint(0, 1000, (32,), device="cuda")
    report = {"mode": mode, "torch": torch.__version__}
    if mode == "workers":
        data = torch.utils.data.TensorDataset(torch.randn(512, 3, 64, 64), torch.randint(0, 1000, (512,)))
        loader = torch.utils.data.DataLoader(data, batch_size=32, num_workers=4, pin_memory=True)
        for bx, by in loader:
            step(model, optimizer, bx.cuda(non_blocking=True), by.cuda(non_blocking=True))
    for _ in range(5):
        step(model, optimizer, x, y)
    if mode in ("graphs", "async-graphs"):
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(3):
                step(model, optimizer, x, y)
        torch.cuda.current_stream().wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            loss = step(model, optimizer, x, y)
        for _ in range(10):
            graph.replay()
        torch.cuda.synchronize()
        report["graph_loss_is_finite"] = bool(torch.isfinite(loss).item())
    if mode == "ipc":
        context = torch.multiprocessing.get_context("spawn")
        queue, done = context.Queue(), context.Event()
        process = context.Process(target=child, args=(queue, done))
        process.start()
        shared = torch.ones(256 * 2**20 // 4, device="cuda")
        queue.put(shared)
        time.sleep(6)
        report["ipc_child"] = queue.get(timeout=30)
        done.set()
        process.join(30)
    torch.cuda.synchronize()
    hoard = []
    try:
        for _ in range(4096):
            hoard.append(torch.empty(64 * 2**20, dtype=torch.uint8, device="cuda"))
    except Exception as error:
        report["error"] = f"{type(error).__module__}.{type(error).__qualname__}"
        report["is_torch_oom"] = isinstance(error, torch.cuda.OutOfMemoryError)
        report["text"] = str(error).splitlines()[0][:300]
    time.sleep(1)  # so that whoever samples from outside sees the peak
    report["hoarded"] = len(hoard) * 64 * 2**20
    report["reserved_peak"] = torch.cuda.max_memory_reserved()
    report["allocations"] = torch.cuda.memory_stats().get("num_device_alloc", 0)
    report["mem_get_info"] = list(torch.cuda.mem_get_info())
    report["total_memory"] = torch.cuda.get_device_properties(0).total_memory
    del hoard
    torch.cuda.empty_cache()
    loss = step(model, optimizer, x, y)
    torch.cuda.synchronize()
    report["recovered"] = bool(torch.isfinite(loss).item())
    print(json.dumps(report))


if __name__ == "__main__":
    main()
