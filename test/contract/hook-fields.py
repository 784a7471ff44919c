"""Prints what each message of the hook holds, as the Python files say it: {"hello": ["device", ...], ...}."""

import ast
import json
import pathlib
import sys


def dicts(root):
    for path in sorted(pathlib.Path(root).rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Dict):
                yield node


def names(node):
    return {key.value for key in node.keys if isinstance(key, ast.Constant) and isinstance(key.value, str)}


def main(root):
    found = {}
    for node in dicts(root):
        held = names(node)
        kinds = [
            value.value
            for key, value in zip(node.keys, node.values)
            if isinstance(key, ast.Constant) and key.value == "t" and isinstance(value, ast.Constant)
        ]
        for kind in kinds:
            found.setdefault(kind, set()).update(held)
    print(json.dumps({kind: sorted(fields) for kind, fields in found.items()}))


main(sys.argv[1])
