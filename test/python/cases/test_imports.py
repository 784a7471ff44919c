"""Which package of the hook may import which, as its __init__ says. Imports for type checkers only do not count."""

import ast
import importlib
import os
import subprocess
import sys
import unittest

from support import ROOT

HOOK = os.path.join(ROOT, "python", "oomtune", "hook")
#: What each imports besides itself; the files beside these folders hold them together, and import all of them.
MAY = {
    "watch": set(),
    "fork": {"watch", "report", "ancestors"},
    "report": {"watch"},
    "cut": {"watch", "report"},
    "apply": {"watch", "report", "cut"},
    "probe": {"watch", "report", "cut", "apply"},
}


def name_of(path):
    parts = os.path.relpath(path, HOOK)[: -len(".py")].split(os.sep)
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


FILES = {
    name_of(os.path.join(folder, name)): os.path.join(folder, name)
    for folder, _, names in os.walk(HOOK)
    for name in names
    if name.endswith(".py")
}


def imported(name):
    """Modules of the hook that this one imports when it runs, now or later."""
    with open(FILES[name]) as file:
        pending = list(ast.parse(file.read()).body)
    package = name if FILES[name].endswith("__init__.py") else name.rpartition(".")[0]
    while pending:
        node = pending.pop()
        if isinstance(node, ast.If) and ast.dump(node.test) == ast.dump(ast.parse("TYPE_CHECKING", mode="eval").body):
            continue
        if isinstance(node, ast.ImportFrom) and node.level:
            above = package.split(".")[: len(package.split(".")) - node.level + 1] if package else []
            base = ".".join([*above, node.module] if node.module else above)
            for alias in node.names:
                inner = "%s.%s" % (base, alias.name) if base else alias.name
                yield inner if inner in FILES else base
        pending.extend(ast.iter_child_nodes(node))


class Imports(unittest.TestCase):
    def test_every_import_is_of_a_module_that_is_there(self):
        for name in FILES:
            for other in imported(name):
                self.assertIn(other, FILES, name)

    def test_packages_import_in_one_direction(self):
        seen = set()
        for name in FILES:
            package = name.partition(".")[0]
            if package in MAY:
                for other in imported(name):
                    seen.add((package, other.partition(".")[0]))
                    self.assertIn(other.partition(".")[0], {package, *MAY[package]}, "%s imports %s" % (name, other))
        self.assertIn(("probe", "watch"), seen)

    def test_no_import_leads_back_to_where_it_came_from(self):
        done = set()

        def follow(name, above):
            self.assertNotIn(name, above, " -> ".join([*above, name]))
            if name not in done:
                for other in sorted(set(imported(name))):
                    follow(other, [*above, name])
                done.add(name)

        for name in sorted(FILES):
            follow(name, [])

    def test_what_waits_for_a_module_is_there(self):
        sys.path.insert(0, os.path.join(ROOT, "python"))
        from oomtune.hook.hook import ALWAYS, SEARCHING

        for part, function in [*ALWAYS.values(), *SEARCHING.values()]:
            self.assertTrue(callable(getattr(importlib.import_module("oomtune.hook." + part), function)), part)

    def test_every_module_can_be_imported_where_there_is_no_torch(self):
        names = sorted({"oomtune.hook", *("oomtune.hook." + name for name in FILES if name not in ("", "types"))})
        text = "import importlib, sys\nsys.modules['torch'] = None\nfor name in sys.argv[1:]: importlib.import_module(name)"
        env = dict(os.environ, PYTHONPATH=os.path.join(ROOT, "python"))
        command = [sys.executable, "-W", "error", "-c", text, *names]
        done = subprocess.run(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, universal_newlines=True)
        self.assertEqual((done.returncode, done.stderr), (0, ""))

    def test_what_is_for_type_checkers_is_never_imported(self):
        for name in FILES:
            self.assertNotIn("types", set(imported(name)), name)


if __name__ == "__main__":
    unittest.main()
