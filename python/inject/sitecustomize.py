"""Starts oomtune's hook in a job that asks for it, then gives way to any other sitecustomize on the path."""

import os
import sys


def _run_next_sitecustomize() -> None:
    # Python imports one sitecustomize only, the first on the path: this one. Distributions and users have their own.
    import importlib.machinery
    import importlib.util

    here = os.path.dirname(os.path.abspath(__file__))
    path = [entry for entry in sys.path if os.path.abspath(entry or os.curdir) != here]
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", path)
    if spec is None or spec.loader is None:
        return
    module = importlib.util.module_from_spec(spec)
    sys.modules["sitecustomize"] = module
    spec.loader.exec_module(module)  # pyright: ignore[reportAttributeAccessIssue]


if os.environ.get("OOMTUNE_HOOK"):
    try:
        from oomtune.hook import start

        start()
    except Exception as error:  # the user's program matters more than the hook
        sys.stderr.write("oomtune: the hook could not start: %s: %s\n" % (type(error).__name__, error))

_run_next_sitecustomize()
