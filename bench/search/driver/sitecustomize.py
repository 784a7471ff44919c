"""Starts an unmodified training script at one batch size and ends it after a few optimizer steps.

The benchmark's own yardstick, apart from oomtune's hook: every batch is a real one, made by the script's own loader from its
own data set (repeated where it is smaller than one batch). Asked for by BENCH_STEPS; BENCH_BATCH changes the loader's batch
size (several, with commas between: one after the other in the same process, for their speed), BENCH_ACCUMULATION says how many
batches the script takes for one optimizer step. Adds to BENCH_RESULT a line for each size, the size and the seconds of each
batch, and exits 0.
"""

import os

if os.environ.get("BENCH_STEPS"):
    import loops

    sizes = [int(size) for size in (os.environ.get("BENCH_BATCH") or "0").split(",")]

    def finish(seconds):
        with open(os.environ["BENCH_RESULT"], "a") as file:
            file.write(" ".join([str(sizes.pop(0))] + ["%.6f" % second for second in seconds]) + "\n")
        if not sizes:
            os._exit(0)

    batches = int(os.environ["BENCH_STEPS"]) * int(os.environ.get("BENCH_ACCUMULATION") or 1)
    loops.limit(lambda: sizes[0], batches, finish)
