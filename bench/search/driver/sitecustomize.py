"""Starts an unmodified training script at one batch size and ends it after a few optimizer steps.

The benchmark's own yardstick, apart from oomtune's hook: every batch is a real one, made by the script's own loader from its
own data set (repeated where it is smaller than one batch). Asked for by BENCH_STEPS; BENCH_BATCH changes the loader's batch
size, BENCH_ACCUMULATION says how many batches the script takes for one optimizer step. Writes the seconds of each batch to
BENCH_RESULT and exits 0.
"""

import os

if os.environ.get("BENCH_STEPS"):
    import loops

    def finish(seconds):
        with open(os.environ["BENCH_RESULT"], "w") as file:
            file.write(" ".join(f"{second:.6f}" for second in seconds))
        os._exit(0)

    batches = int(os.environ["BENCH_STEPS"]) * int(os.environ.get("BENCH_ACCUMULATION") or 1)
    loops.limit(lambda: int(os.environ.get("BENCH_BATCH") or 0), batches, finish)
