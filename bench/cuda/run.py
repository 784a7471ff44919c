#!/usr/bin/env python3
"""Measures the CUDA runtime on a real GPU; bench/cuda/README.md says what and how. Needs torch and nvidia-ml-py; JAX,
CuPy and nvcc are used where they are there, and left out, with a line that says so, where they are not.

    python3 bench/cuda/run.py [--parts compat,exact,cost,neighbours,calls,ddp] [--native build/Release] [--out bench/results]
"""

import argparse
import datetime
import json
import platform
import shutil
import subprocess
import sys
import time
import traceback
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import parts  # noqa: E402
from launch import Launcher  # noqa: E402
from sampler import Sampler  # noqa: E402


def versions(sampler: Sampler) -> dict:
    code = "import torch; print(torch.__version__, torch.version.cuda)"
    torch = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False).stdout.strip()
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False,
                            cwd=Path(__file__).parent).stdout.strip()
    return {
        "commit": commit or None, "gpu": sampler.name(0), "gpus": len(sampler.handles), "driver": sampler.driver(), "torch": torch,
        "python": platform.python_version(), "kernel": platform.release(),
        "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        "command": "python3 bench/cuda/run.py " + " ".join(sys.argv[1:]),
    }


def main() -> int:
    root = Path(__file__).resolve().parents[2]
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--parts", default="compat,exact,cost,neighbours")
    parser.add_argument("--native", type=Path, default=root / "build/Release")
    parser.add_argument("--out", type=Path, default=root / "bench/results")
    parser.add_argument("--only", default="", help="of compat and calls: names, with commas")
    parser.add_argument("--multicast", action="store_true",
                        help="of calls: multicast objects too, which can disturb other GPUs of a host that is shared")
    options = parser.parse_args()
    for needed in ("cuda/libcuda.so.1", "oomtune-ledger"):
        if not (options.native / needed).exists():
            parser.error(f"{options.native / needed} is not there: build with "
                         "`cmake -S . -B build -DOOMTUNE_TESTS=ON && cmake --build build`")
    options.out.mkdir(parents=True, exist_ok=True)
    sampler = Sampler()
    launcher = Launcher(options.native.resolve(), sampler)
    name = f"cuda-{sampler.name(0).replace(' ', '-').lower()}"
    lines = (options.out / f"{name}.jsonl").open("a")
    failed = 0

    def record(part: str, row: dict) -> None:
        lines.write(json.dumps({"part": part, **row}) + "\n")
        lines.flush()
        print(part, json.dumps(row)[:700], flush=True)

    record("versions", versions(sampler))
    nvcc = shutil.which("nvcc")
    bench = parts.Bench(launcher, sampler, record, nvcc, [word for word in options.only.split(",") if word],
                        ["--multicast"] if options.multicast else [])
    for part in options.parts.split(","):
        begin = time.monotonic()
        try:
            getattr(parts, part)(bench)
        except Exception:
            failed += 1
            record(part, {"failed": traceback.format_exc()[-1500:]})
        record("seconds", {"of": part, "seconds": round(time.monotonic() - begin, 1)})
    lines.close()
    launcher.close()
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
