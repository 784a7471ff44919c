"""A process that has imported what scripts need (the modules named as arguments), and forks itself for each: what a start costs
is paid once. A line of JSON for each thing asked, one for each answer.

For what is measured beside oomtune only: what oomtune starts is a start of its own.
"""

import gc
import importlib
import json
import os
import runpy
import sys
import tempfile

import torch

sys.path.insert(1, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "python", "cases"))
import script_end

del sys.path[1]


def compared(one, other):
    """Largest relative difference of a tensor (norms, in float64) between two files of weights; 0: the same bits."""
    one, other = torch.load(one), torch.load(other)
    if one.keys() != other.keys() or not one:
        raise ValueError("not the same tensors: %s and %s" % (sorted(one), sorted(other)))
    if all(torch.equal(one[name], other[name]) for name in one):
        return 0.0
    pairs = [(one[name].double(), other[name].double()) for name in one]
    return max(*(((a - b).norm() / a.norm().clamp_min(1e-12)).item() for a, b in pairs), 1e-300)


def become(script, arguments, cwd, env, output):
    """Makes this fork what a start of the script would be, up to its first line."""
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    for stream in (1, 2):
        os.dup2(output.fileno(), stream)
    os.environ.clear()
    os.environ.update(env)
    os.chdir(cwd)
    sys.argv[:] = [script, *arguments]
    sys.path[0] = cwd


def ran(**script):
    with tempfile.TemporaryFile("w+") as output:
        pid = os.fork()
        if pid == 0:
            become(output=output, **script)
            try:
                runpy.run_path(script["script"], run_name="__main__")
                script_end.end()
            except BaseException:
                script_end.end()
        status = os.waitpid(pid, 0)[1]
        output.seek(0)
        code = os.WEXITSTATUS(status) if os.WIFEXITED(status) else -os.WTERMSIG(status)
        return {"status": code, "output": output.read()}


if __name__ == "__main__":
    for module in sys.argv[1:]:
        importlib.import_module(module)
    gc.freeze()  # a fork that looks through what is the same in all, at its end above all, copies every page of it
    print(json.dumps(torch.__version__), flush=True)
    for line in sys.stdin:
        asked = json.loads(line)
        answer = ran(**asked) if "script" in asked else compared(**asked)
        print(json.dumps(answer), flush=True)
