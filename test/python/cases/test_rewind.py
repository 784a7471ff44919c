"""A driven loop that would end is begun again; nothing that follows it runs. No torch: any interpreter can try."""

import os
import subprocess
import sys
import tempfile
import unittest

from support import PATH

sys.path[:0] = PATH.split(os.pathsep)
from oomtune.hook.probe.rewind import GUARDED, JUMPS

HEAD = """
import os, sys
from itertools import cycle, islice
from oomtune.hook.probe.rewind import Rewind
asked, model = 0, object()
def over(): print('over', flush=True); os._exit(0)
rewind = Rewind(lambda: id(model), over)
class Loader:
    def __iter__(self): return self
    def __next__(self):
        global asked
        rewind.batch_requested()
        asked += 1
        if asked > 9: print('enough', flush=True); os._exit(0)
        return asked
loader = Loader()
def step(batch): rewind.optimizer_stepped()
def work(): rewind.loop_continues(); rewind.backward_done()
"""

AGAIN = {
    "break": """
for i, x in enumerate(loader):
    step(x)
    if i == 1: break
print('epilogue')
""",
    "break as the last statement": """
for i, x in enumerate(loader):
    step(x)
    if i == 1: break
""",
    "break in a function": """
def main():
    for i, x in enumerate(loader):
        step(x)
        if i == 1:
            break
main()
print('epilogue')
""",
    "break on the condition's line, at the end of a function": """
def train(loader):
    for i, x in enumerate(loader):
        step(x)
        if i == 1: break
for epoch in range(1):
    train(
        loader
    )
print('epilogue')
""",
    "return": """
class Trainer:
    seen = 0
    def fit(self, batches):
        for x in batches:
            step(x)
            self.seen += 1
            if self.seen >= 2:
                return self
print(Trainer().fit(loader))
""",
    "a range of steps": """
batches = iter(loader)
for i in range(2):
    x = next(batches)
    step(x)
print('epilogue')
""",
    "a range of steps as the last statement": """
batches = iter(loader)
for i in range(2): step(next(batches))
""",
    "while": """
i = 0
while i < 2:
    try:
        x = next(loader)
    except StopIteration:
        continue
    step(x)
    i += 1
print('epilogue')
""",
    "islice": """
for x in islice(cycle(loader), 2):
    step(x)
print('epilogue')
""",
    "a generator around the loader": """
def endless():
    while True:
        for x in loader: yield x
batches = endless()
for i in range(2):
    step(next(batches))
print('epilogue')
""",
    "epochs": """
for epoch in range(1):
    for i, x in enumerate(loader):
        step(x)
        if i == 1: break
    print('validation')
print('epilogue')
""",
    "batches of one step in an inner loop": """
for i in range(2):
    for part in range(2):
        x = next(loader)
    step(x)
print('epilogue')
""",
    "a batch of several for one step": """
for i, x in enumerate(loader):
    work()
    if i % 2 == 1: step(x)
    if i >= 2:
        break
print('epilogue')
""",
    "batches of one step in an inner loop that works on each": """
for i in range(2):
    for part in range(2):
        x = next(loader)
        work()
    step(x)
print('epilogue')
""",
    "a with": """
import contextlib
with contextlib.suppress(OSError):
    for i, x in enumerate(loader):
        step(x)
        if i == 1: break
print('epilogue')
""",
    "try and finally": """
try:
    for i, x in enumerate(loader):
        step(x)
        if i == 1: break
finally:
    print('epilogue')
""",
    "errors that the loop catches": """
for i, x in enumerate(loader):
    step(x)
    try: {}['no']
    except KeyError: pass
    if i == 1: break
print('epilogue')
""",
}

OVER = {
    "sys.exit": """
for i, x in enumerate(loader):
    step(x)
    if i == 1: sys.exit(0)
""",
    "a model that the function makes itself": """
def main():
    global model
    model = object()
    for i, x in enumerate(loader):
        step(x)
        if i == 1: break
main()
""",
    "a count of batches that begins anew, and never comes to a step again": """
for i, x in enumerate(loader):
    work()
    if i % 2 == 1: step(x)
    if asked >= 3:
        break
print('epilogue')
""",
    "an iterator that is used up": """
batches = islice(loader, 2)
for x in batches:
    step(x)
print('epilogue')
""",
}


def run(text):
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "script.py")
        with open(path, "w") as file:
            file.write(HEAD + text)
        return subprocess.run(
            [sys.executable, path],
            env={"PYTHONPATH": PATH, "PYTHONDONTWRITEBYTECODE": "1"},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            universal_newlines=True,
            timeout=60,
        )


class Rewinding(unittest.TestCase):
    def test_begun_again(self):
        for name, text in AGAIN.items():
            with self.subTest(name):
                done = run(text)
                guarded = text.startswith(("\ntry", "\nimport contextlib"))
                possible = GUARDED if guarded else JUMPS or name.endswith("as the last statement")
                self.assertEqual((done.stdout, done.returncode), ("enough\n" if possible else "over\n", 0), done.stderr)

    def test_over(self):
        for name, text in OVER.items():
            with self.subTest(name):
                done = run(text)
                self.assertEqual((done.stdout, done.returncode), ("over\n", 0), done.stderr)

    def test_real_errors_pass(self):
        done = run("for x in loader:\n    step(x)\n    raise KeyError('theirs')\n")
        self.assertEqual(done.returncode, 1)
        self.assertIn("KeyError: 'theirs'", done.stderr)

    def test_what_a_step_made_lives_no_longer_than_without(self):
        done = run(
            "import weakref\n"
            "from oomtune.hook.watch.script import frame_variables\n"
            "class Tensor: pass\n"
            "made, late = [], 0\n"
            "def main():\n"
            "    global late\n"
            "    rate = 3\n"
            "    settings = locals()\n"
            "    for x in loader:\n"
            "        settings['x'] = None\n"
            "        tensor = Tensor()\n"
            "        late += sum(ref() is not None for ref in made)\n"
            "        made.append(weakref.ref(tensor))\n"
            "        step(x)\n"
            "        if len(made) == 2: frame_variables(sys._getframe())\n"
            "        if len(made) == 5: print(late, settings['rate'], flush=True)\n"
            "main()\n"
        )
        self.assertEqual(done.stdout, "0 3\nenough\n", done.stderr)

    def test_another_ones_trace_is_left_alone(self):
        done = run(
            "lines = []\n"
            "def trace(frame, event, argument):\n"
            "    lines.append(event)\n"
            "sys.settrace(trace)\n"
            "for i, x in enumerate(loader):\n"
            "    step(x)\n"
            "    if i == 1: break\n"
            "print('epilogue', sys.gettrace() is trace)\n"
        )
        self.assertEqual(done.stdout, "epilogue True\n", done.stderr)


if __name__ == "__main__":
    unittest.main()
