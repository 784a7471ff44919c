"""Seconds a sample of a step that is cut at the model's call, beside the same step uncut; a table, and what it is made of.

    python3 bench/cut/cost.py                   # ResNet-50 and GPT-2, full precision and bf16, in 2 and 4 parts
    python3 bench/cut/cost.py --fill 0.2 --parts 2 4 8 --json cost.jsonl

The batch is the largest multiple of 32 (ResNet-50) or 8 (GPT-2) whose uncut step takes no more than `--fill` of the
device's memory, as a step that has to be cut on this card is; `--batch` sets it. Needs a CUDA device, torch, torchvision and
transformers, and this repository; nothing of it has to be built. Columns:

    times     seconds of the cut step / seconds of the uncut step
    least     what the forward passes alone would make of it: all parts but the last are run forward twice, each as fast as its share
              of the whole batch's. A loss that the module makes itself needs no second forward pass: 1.00
    by hand   the same for a loop that somebody writes: it runs the same parts, those that are run twice too, and knows nothing of a cut
    launch    seconds that the host needs to launch the step's work; where it is as long as the step the device waits for the host
    busy      seconds that the device's kernels run, and how many there are
    waits     how often the host waits for the device in a step

`--pauses` tells for each row, on standard error, when the device had nothing to do for how long, and what ended it.
"""

import argparse
import contextlib
import json
import os
import statistics
import sys
import time
import warnings

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "python"))

import torch  # noqa: E402

from oomtune.hook.cut import Cut  # noqa: E402
from oomtune.hook.apply.gradient_accumulator import GradientAccumulator  # noqa: E402
from oomtune.hook.watch.optimizers import Optimizers  # noqa: E402


ALL = slice(None)


class Nobody:
    """Listens to the optimizers' steps."""

    def before_step(self, optimizer):
        pass

    def after_step(self, optimizer):
        pass


def refuse(reason):
    raise SystemExit("not cut: %s" % reason)


def resnet50(batch, device):
    """The loss is made outside of the module."""
    import torchvision

    model = torchvision.models.resnet50().to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    pictures = torch.randn(batch, 3, 224, 224, device=device)
    labels = torch.arange(batch, device=device) % 1000
    return model, optimizer, lambda rows=ALL: torch.nn.functional.cross_entropy(model(pictures[rows]), labels[rows])


def gpt2(batch, device, inside=True):
    """512 tokens a sample; the module makes its loss itself."""
    from transformers import GPT2Config, GPT2LMHeadModel

    model = GPT2LMHeadModel(GPT2Config()).to(device)
    model.train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    tokens = torch.randint(50257, (batch, 512), device=device)
    labels = tokens if inside else tokens.roll(-1, 1)

    def loss(rows=ALL):
        if inside:
            return model(input_ids=tokens[rows], labels=labels[rows]).loss
        return torch.nn.functional.cross_entropy(model(input_ids=tokens[rows]).logits.flatten(0, 1), labels[rows].flatten())

    return model, optimizer, loss


def gpt2_outside(batch, device):
    """The same with the loss made outside: the whole batch's logits lie in memory."""
    return gpt2(batch, device, inside=False)


def mlp(batch, device):
    """For a look without a GPU: --device cpu --model mlp --batch 1024."""
    layers = [torch.nn.Linear(512, 512), torch.nn.ReLU()] * 6
    model = torch.nn.Sequential(*layers, torch.nn.Linear(512, 10)).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    inputs = torch.randn(batch, 512, device=device)
    return model, optimizer, lambda rows=ALL: model(inputs[rows]).pow(2).mean()


#: For each model: what makes it, and what its batch is a multiple of.
MODELS = {"resnet50": (resnet50, 32), "gpt2": (gpt2, 8), "gpt2_outside": (gpt2_outside, 8), "mlp": (mlp, 64)}


class Bench:
    def __init__(self, device, steps):
        self._device = device
        self._steps = steps
        optimizers = Optimizers(torch, GradientAccumulator(), Nobody())
        optimizers.install()
        backward, running = torch.autograd.backward, []

        def watched(tensors, grad_tensors=None, *args, **kwargs):
            # As the hook's own watcher does: what runs inside of a plain backward() gathers in place.
            running.append(True)
            try:
                return backward(tensors, grad_tensors, *args, **kwargs)
            finally:
                running.pop()

        self.cut = Cut(torch, optimizers, refuse, lambda code, message: None, lambda: bool(running))
        self.cut.install()
        torch.autograd.backward = watched

    def synchronize(self):
        if self._device == "cuda":
            torch.cuda.synchronize()

    def step(self, model, optimizer, loss_of, amp):
        def step():
            autocast = torch.autocast(self._device, dtype=torch.bfloat16) if amp == "bf16" else contextlib.nullcontext()
            with autocast:
                loss = loss_of()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if self.cut.engaged:
                self.cut.stepped()

        return step

    def by_hand(self, model, optimizer, loss_of, amp, bounds, again):
        """`again`: all parts but the last are run twice, first without activations."""

        def step():
            def autocast():
                return torch.autocast(self._device, dtype=torch.bfloat16) if amp == "bf16" else contextlib.nullcontext()

            optimizer.zero_grad()
            with autocast(), torch.no_grad():
                for start, stop in bounds[:-1] if again else []:
                    loss_of(slice(start, stop))
            for start, stop in bounds:
                with autocast():
                    loss = loss_of(slice(start, stop)) * ((stop - start) / bounds[-1][1])
                loss.backward()
            optimizer.step()

        return step

    def waits(self, step):
        """How often the host waits for the device."""
        if self._device != "cuda":
            return 0
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            torch.cuda.set_sync_debug_mode("warn")
            try:
                step()
            finally:
                torch.cuda.set_sync_debug_mode("default")
        return sum("synchroniz" in str(warning.message) for warning in seen)

    def measure(self, step):
        """Medians of seconds of a step and until its work is launched, and the peak in bytes."""
        for _ in range(4):
            step()
        self.synchronize()
        if self._device == "cuda":
            torch.cuda.reset_peak_memory_stats()
        seconds, launches = [], []
        for _ in range(self._steps):
            self.synchronize()
            start = time.perf_counter()
            step()
            launches.append(time.perf_counter() - start)
            self.synchronize()
            seconds.append(time.perf_counter() - start)
        peak = torch.cuda.max_memory_allocated() if self._device == "cuda" else 0
        return {"step_s": statistics.median(seconds), "launch_s": statistics.median(launches), "peak_bytes": peak}

    def kernels(self, step, pauses):
        """What the device does in one step. `pauses`: when it has nothing to do is told."""
        if self._device != "cuda":
            return {}
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
            step()
            self.synchronize()
        ran = [event for event in profile.events() if event.device_type == torch.autograd.DeviceType.CUDA]
        if pauses:
            tell_pauses(ran, profile.events())
        return {"busy_s": sum(event.time_range.elapsed_us() for event in ran) / 1e6, "kernels": len(ran)}

    def forward(self, loss_of, amp):
        """Seconds of the whole batch's forward pass without gradients."""
        def forward():
            autocast = torch.autocast(self._device, dtype=torch.bfloat16) if amp == "bf16" else contextlib.nullcontext()
            with autocast, torch.no_grad():
                loss_of()

        return self.measure(forward)["step_s"]


#: What keeps the host from launching more, by the runtime's names.
STOPS = ("cudaMalloc", "cudaFree", "cudaStreamSynchronize", "cudaDeviceSynchronize", "cudaEventSynchronize")


def tell_pauses(ran, events):
    """The ten longest times in which none of the kernels that `ran` did, and the runtime's calls that wait."""
    ran = sorted(ran, key=lambda event: event.time_range.start)
    first = end = ran[0].time_range.start
    found = []
    for event in ran:
        if event.time_range.start > end:
            found.append((event.time_range.start - end, end - first, event.name))
        end = max(end, event.time_range.end)
    print("  paused %.1f ms in %d pauses" % (sum(pause for pause, _, _ in found) / 1000, len(found)), file=sys.stderr)
    for pause, moment, name in sorted(found, reverse=True)[:10]:
        print("  %8.0f us at %7.1f of %.1f ms, before %s" % (pause, moment / 1000, (end - first) / 1000, name[:80]), file=sys.stderr)
    for name in STOPS:
        calls = [event for event in events if event.name == name]
        if calls:
            print("  %s: %d calls, %.1f ms" % (name, len(calls), sum(call.time_range.elapsed_us() for call in calls) / 1000), file=sys.stderr)


def filling(bench, make, unit, amp, device, fill):
    """Samples whose uncut step peaks at `fill` of the device's memory, by a line through two small steps."""
    peaks = []
    for batch in (unit, 2 * unit):
        torch.manual_seed(0)
        model, optimizer, loss_of = make(batch, device)
        step = bench.step(model, optimizer, loss_of, amp)
        step()
        torch.cuda.reset_peak_memory_stats()
        step()
        peaks.append(torch.cuda.max_memory_allocated())
        del model, optimizer, loss_of, step
        torch.cuda.empty_cache()
    total = torch.cuda.get_device_properties(0).total_memory
    slope = (peaks[1] - peaks[0]) / unit
    return max(2 * unit, int((fill * total - peaks[0]) / slope / unit) * unit + unit)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", choices=sorted(MODELS), nargs="*", default=["resnet50", "gpt2", "gpt2_outside"])
    parser.add_argument("--amp", choices=("off", "bf16"), nargs="*", default=["off", "bf16"])
    parser.add_argument("--batch", type=int, help="samples of the uncut step")
    parser.add_argument("--fill", type=float, default=0.7, help="part of the device's memory that the uncut step takes")
    parser.add_argument("--parts", type=int, nargs="*", default=[2, 4])
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--pauses", action="store_true", help="tell when the device had nothing to do")
    parser.add_argument("--json", help="a file for one JSON object a line")
    arguments = parser.parse_args()
    missing = [name for name in ("torchvision", "transformers") if not _there(name)]
    if missing and "mlp" not in arguments.model:
        raise SystemExit("pip install %s (ResNet-50 is torchvision's, GPT-2 is transformers')" % " ".join(missing))

    bench = Bench(arguments.device, arguments.steps)
    print("| model | precision | batch | parts | step s | times | by hand | least | launch s | busy s | kernels | waits | peak GiB |")
    print("|---|---|---|---|---|---|---|---|---|---|---|---|---|")
    for name in arguments.model:
        make, unit = MODELS[name]
        for amp in arguments.amp:
            batch = arguments.batch or filling(bench, make, unit, amp, arguments.device, arguments.fill)
            torch.manual_seed(0)
            model, optimizer, loss_of = make(batch, arguments.device)
            step = bench.step(model, optimizer, loss_of, amp)
            alone, forward = None, None
            for parts in [1] + arguments.parts:
                bench.cut.release()
                line = {"model": name, "amp": amp, "batch": batch, "parts": parts}
                if parts == 1:
                    forward = bench.forward(loss_of, amp)
                else:
                    micro = -(-batch // parts)
                    bounds = [(start, min(batch, start + micro)) for start in range(0, batch, micro)]
                    hand = bench.measure(bench.by_hand(model, optimizer, loss_of, amp, bounds, name != "gpt2"))
                    line["by_hand"] = hand["step_s"] / alone
                    bench.cut.engage(micro, batch)
                line.update(bench.measure(step))
                if arguments.pauses:
                    print("%s %s in %d:" % (name, amp, parts), file=sys.stderr)
                line.update(bench.kernels(step, arguments.pauses), waits=bench.waits(step))
                alone = alone or line["step_s"]
                line["times"] = line["step_s"] / alone
                again = 0 if name == "gpt2" else (parts - 1) / parts
                line["least"] = 1 + forward * again / alone
                line["sample_ms"] = 1000 * line["step_s"] / batch
                tell(line, arguments.json)
            bench.cut.release()
            del model, optimizer, loss_of, step
            if arguments.device == "cuda":
                torch.cuda.empty_cache()
    where = torch.cuda.get_device_name() if arguments.device == "cuda" else "cpu"
    print("\ntorch %s, Python %s, %s" % (torch.__version__, sys.version.split()[0], where))


def tell(line, file):
    print(
        "| %s | %s | %d | %d | %.4f | %.2f | %.2f | %.2f | %.4f | %.4f | %d | %d | %.1f |"
        % (
            line["model"], line["amp"], line["batch"], line["parts"], line["step_s"], line["times"], line.get("by_hand", 1.0), line["least"],
            line["launch_s"], line.get("busy_s", 0.0), line.get("kernels", 0), line["waits"], line["peak_bytes"] / 2**30,
        ),
        flush=True,
    )
    if file:
        with open(file, "a") as out:
            out.write(json.dumps(line) + "\n")


def _there(name):
    import importlib.util

    return importlib.util.find_spec(name) is not None


if __name__ == "__main__":
    main()
