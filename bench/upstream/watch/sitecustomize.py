"""Watches an unmodified training program: seeds it, counts its optimizer steps, and ends it after some of them.

The benchmark's own observer, apart from oomtune's hook. Asked for by UPSTREAM_RESULT, a file that is given one line of JSON: the
optimizer steps that were done, the seconds from UPSTREAM_STARTED to the end of the third one, whether UPSTREAM_STEPS ended it, and how
often torch's allocator gave back its cache after the third.
UPSTREAM_NUDGED moves each weight by its last bit after its first step.
UPSTREAM_WEIGHTS is given what the optimizers trained, at that end or at the program's own. BENCH_BATCH has every loader of torch give
batches of that size, for programs without a flag for it. UPSTREAM_STAND_IN names modules that only log and are not installed.
To the hook this file is a part of the program: it must not name a loader's class, by which scripts are told that will ask one.
"""

import os
import sys


def trust_made_data():
    # Data that is made here has not the checksums of the real one.
    class Finder:
        def find_spec(self, name, path=None, target=None):
            if name != "torchvision.datasets.cifar":
                return None
            sys.meta_path.remove(self)
            import torchvision.datasets.utils as utils

            utils.check_integrity = lambda path, md5=None: os.path.isfile(path)

    sys.meta_path.insert(0, Finder())


if os.environ.get("UPSTREAM_STAND_IN"):
    import stand_in

    stand_in.install(os.environ["UPSTREAM_STAND_IN"].split(","))
if os.environ.get("UPSTREAM_MADE_DATA"):
    trust_made_data()
# Not in the short calls of an interpreter by which its torch is asked for.
if os.environ.get("UPSTREAM_RESULT") and getattr(sys, "orig_argv", [])[1:2] != ["-c"]:
    import observer

    observer.begin()
