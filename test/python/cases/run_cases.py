"""Runs the files that are named, one after the other, each in a fork of one process that has imported torch; what they start as
scripts are forks of the same. A line of JSON for each."""

import compileall
import json
import os
import sys

from script_server import ScriptServer
from support import ROOT

PATIENCE_S = 1800

if __name__ == "__main__":
    compileall.compile_dir(os.path.join(ROOT, "python"), quiet=1)  # scripts write no bytecode, and start with the hook
    server = ScriptServer()
    folder = os.path.dirname(os.path.abspath(__file__))
    for name in sys.argv[1:]:
        env = dict(os.environ, OOMTUNE_TEST_SCRIPT_SERVER=server.path)
        done = server.run(os.path.join(folder, name), ["-v"], env, folder, PATIENCE_S)
        print(json.dumps({"file": name, "status": done.returncode, "output": done.stdout + done.stderr}), flush=True)
