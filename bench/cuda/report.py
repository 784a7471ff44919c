#!/usr/bin/env python3
"""Writes the markdown beside a file of results: python3 bench/cuda/report.py bench/results/cuda-….jsonl

Of each finding the last one counts that is not void; `versions` says what the runs were made with.
"""

import json
import sys
from pathlib import Path


def gib(value: int | None) -> str:
    return "" if value is None else f"{value / 2**30:.3f}"


def table(head: list[str], rows: list[list[object]]) -> list[str]:
    lines = ["| " + " | ".join(head) + " |", "|" + " --- |" * len(head)]
    return lines + ["| " + " | ".join("" if cell is None else str(cell) for cell in row) + " |" for row in rows] + [""]


def yes(value: object) -> str:
    return {True: "yes", False: "NO", None: ""}.get(value, str(value))  # type: ignore[call-overload]


def main() -> None:
    source = Path(sys.argv[1])
    rows = [json.loads(line) for line in source.read_text().splitlines()]
    runs = [row for row in rows if row["part"] == "versions"]
    latest: dict[tuple, dict] = {}
    run = 0
    for row in rows:
        run += row["part"] == "versions"
        row["run"] = run
        if row.get("void"):
            continue
        key = (row["part"], row.get("job"), row.get("model"), row.get("gib"), row.get("by"), row.get("step"), row.get("pair"), row.get("at"))
        latest[key] = row
    of = lambda part: [row for row in latest.values() if row["part"] == part]  # noqa: E731
    out = [f"# The CUDA runtime on {runs[-1]['gpu']}", "",
           f"Written by `python3 bench/cuda/report.py` from `{source.name}`. Sizes in GiB, times as named.", ""]
    out += table(["run", "at", "commit", "GPUs", "driver", "torch", "command"],
                 [[at + 1, run["date"], run.get("commit"), run["gpus"], run["driver"], run["torch"], f"`{run['command']}`"]
                  for at, run in enumerate(runs)])
    jobs = [row for row in of("compat") + of("ddp") if "ledger_peak" in row]
    if jobs:
        out += ["## Frameworks", "", "Each took memory until it was refused, let go, and went on.", ""]
        out += table(["run", "job", "budget", "ledger's peak", "NVML's peak", "agree", "overhead", "own OOM error", "went on",
                      "refused"],
                     [[row["run"], row["job"], gib(row["budget"]), gib(row["ledger_peak"]),
                       gib(row["nvml_peak"]) if row["nvml_peak"] else "not sampled",
                       f"{yes(row['agrees'])} ({row['difference_pct']} %)" if row["nvml_peak"] else "", gib(row["overhead"]),
                       f"{yes(row['own_oom'])} {row.get('error') or ''}", yes(row["recovered"]), row["refused"]] for row in jobs])
    if of("exact"):
        out += ["## Exactness", "", "The largest batch that trains, by a budget, with that much really free (another process holds "
                "the rest of the card), and by torch's own memory fraction.", ""]
        out += table(["run", "model", "GiB", "really free", "budget", "difference", "memory fraction", "difference"],
                     [[row["run"], row["model"], row["gib"], row["really_free"], row["budget"], f"{row['difference_pct']} %",
                       row["fraction"], f"{row['fraction_difference_pct']} %"] for row in of("exact")])
    kinds = of("calls")
    if kinds:
        out += ["## Rarer calls", "", "What is held more than at the start, after each step; the ledger beside NVML's figure of the whole device.", ""]
        out += table(["run", "kind", "did", "answer", "ledger (MiB)", "NVML (MiB)", "agree"],
                     [[row["run"], row["job"], row["did"], row["result"], round(row["ledger"] / 2**20, 1),
                       round(row["nvml"] / 2**20, 1), yes(row["agrees"])] for row in of("calls-step")])
        out += [f"- {row['job']}: {row.get('left_out') or row.get('failed')}" for row in kinds
                if row.get("left_out") or row.get("failed")] + [""]
    costs = of("cost")
    if costs:
        out += ["## Cost", ""]
        out += table(["run", "step", "bare (ms)", "within the runtime (ms)", "difference"],
                     [[row["run"], row["step"], row["bare_ms"], row["with_ms"], f"{row['difference_pct']} %"] for row in costs if "step" in row])
        out += table(["run", "allocation and free", "bare (ns)", "within the runtime (ns)", "added (ns)"],
                     [[row["run"], row["pair"], row["bare_ns"], row["with_ns"], row["added_ns"]] for row in costs if "added_ns" in row])
    for row in of("neighbours"):
        out += ["## Neighbours", "", "ResNet-50 trains under its budget while another job overruns its own.", ""]
        out += table(["run", "median step before (ms)", "during", "after", "steady job ended with", "the other"],
                     [[row["run"], row["step_ms"]["before"], row["step_ms"]["during"], row["step_ms"]["after"], row["steady_code"],
                       f"failed with its own OOM error: {yes(row['overrun_oom'])}; at most {gib(row['overrun_nvml_peak'])} of "
                       f"{gib(row['overrun_budget'])}"]])
    voids = [row for row in rows if row.get("void")]
    if voids:
        out += ["## Void", ""] + [f"- run {row['run']}, {row['part']}, {row.get('model')} {row.get('gib')} GiB: {row['void']}" for row in voids] + [""]
    notes = [row for row in rows if row["part"] == "note"]
    if notes:
        out += ["## Notes", ""] + [f"- {row['text']}" for row in notes] + [""]
    target = source.with_suffix(".md")
    target.write_text("\n".join(out).rstrip() + "\n")
    print(target)


if __name__ == "__main__":
    main()
