"""A function as a script: a fresh process that runs it does what the call here would have done."""

import os
import subprocess
import sys
import tempfile
import unittest

from support import ROOT

#: What stands before each program: `check(function, *args)` prints what a fresh process returns.
BEFORE = """
import sys
from oomtune.errors import OomtuneError
from oomtune.search.function_script import FunctionScript
def check(function, *args, **kwargs):
    import subprocess, tempfile
    with tempfile.TemporaryDirectory() as folder:
        script = FunctionScript(function, args, kwargs)
        path = script.write(folder, 'function')
        words = [word.replace('{micro_batch}', '12').replace('{accumulation}', '3') for word in script.words]
        done = subprocess.run([sys.executable, path, *words], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, universal_newlines=True)
        print(done.stdout, end='')
def refused(function, *args):
    try: FunctionScript(function, args, {})
    except OomtuneError as error: print(error)
"""


class Scripts(unittest.TestCase):
    def run_file(self, text, extra=()):
        with tempfile.TemporaryDirectory() as folder:
            for name, content in (*extra, ("program.py", BEFORE + text)):
                with open(os.path.join(folder, name), "w") as file:
                    file.write(content)
            env = dict(os.environ, PYTHONPATH=os.path.join(ROOT, "python"), PYTHONDONTWRITEBYTECODE="1")
            done = subprocess.run(
                [sys.executable, "-W", "error", "program.py"],
                cwd=folder,
                env=env,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                universal_newlines=True,
            )
            self.assertEqual(done.stderr, "")
            return done.stdout

    def prints(self, text, expected, extra=()):
        self.assertEqual(self.run_file(text, extra), expected)

    def test_functions_constants_and_modules(self):
        self.prints(
            "import json as j, xml\nimport xml.etree.ElementTree\nfrom os import path\nSIZE = 3\n"
            "def helper(x): return x * SIZE\n"
            "def train():\n"
            "    print(j.dumps([helper(2), path.basename('a/b')]), xml.etree.ElementTree.fromstring('<a/>').tag)\n"
            "if __name__ == '__main__': check(train)\n",
            '[6, "b"] a\n',
        )

    def test_classes_with_bases_decorators_and_defaults(self):
        self.prints(
            "import dataclasses, functools\nWIDTH = 5\nSIZES = {'a': WIDTH}\n"
            "def twice(f):\n"
            "    @functools.wraps(f)\n"
            "    def wrapper(*a): return f(*a) * 2\n"
            "    return wrapper\n"
            "class Base:\n    width = WIDTH\n    def __init__(self): self.kind = 'base'\n"
            "@dataclasses.dataclass\nclass Options:\n    sizes: dict\n    rate: float = 0.5\n"
            "class Net(Base):\n"
            "    def __init__(self, sizes=SIZES):\n        super().__init__()\n        self.sizes = sizes\n"
            "    @twice\n    def size(self): return self.sizes['a'] + self.width\n"
            "@twice\ndef train(net=None):\n"
            "    print(Net().size(), Net().kind, Options({}).rate)\n"
            "    return 1\n"
            "if __name__ == '__main__': check(train)\n",
            "20 base 0.5\n",
        )

    def test_values_keep_what_they_share(self):
        self.prints(
            "class Net:\n    def __init__(self): self.weights = [1, 2]\n"
            "class Steps:\n    def __init__(self, weights): self.weights = weights\n"
            "net = Net()\nsteps = Steps(net.weights)\n"
            "def train():\n    print(steps.weights is net.weights, type(net).__name__)\n"
            "if __name__ == '__main__': check(train)\n",
            "True Net\n",
        )

    def test_arguments_and_the_batch_size(self):
        self.prints(
            "def train(data, batch_size, *, accumulation, rate=0.1): print(data, batch_size, accumulation, rate)\n"
            "if __name__ == '__main__': check(train, [1], rate=0.5)\n",
            "[1] 12 3 0.5\n",
        )
        self.assertIn(
            "needs values for a, b",
            self.run_file("def train(a, b): pass\nif __name__ == '__main__': refused(train)\n"),
        )

    def test_closures_lambdas_methods_and_partials(self):
        self.prints(
            "import functools\n"
            "def make(size):\n"
            "    def train():\n"
            "        text = '''\nleft'''\n"
            "        print(size, text.strip())\n"
            "    return train\n"
            "class Trainer:\n"
            "    def __init__(self, size): self.size = size\n"
            "    def fit(self, batch_size): print(self.size, batch_size)\n"
            "def plain(a, b): print(a, b)\n"
            "if __name__ == '__main__':\n"
            "    check(make(7)); check(lambda: plain(1, 2)); check(Trainer(3).fit); check(functools.partial(plain, 4))\n",
            "7 left\n1 2\n3 12\n4 12\n",
        )

    def test_a_module_of_the_working_folder_is_imported(self):
        self.prints(
            "import mine\nfrom mine import train, Data\n"
            "def other(): print(mine.SIZE, Data().size)\n"
            "if __name__ == '__main__': check(train); check(other)\n",
            "9\n9 9\n",
            extra=[("mine.py", "SIZE = 9\nclass Data: size = SIZE\ndef train(): print(SIZE)\n")],
        )

    def test_a_function_that_calls_itself_and_one_that_calls_it(self):
        self.prints(
            "def even(n): return True if n == 0 else odd(n - 1)\ndef odd(n): return False if n == 0 else even(n - 1)\n"
            "def train(): print(even(4))\nif __name__ == '__main__': check(train)\n",
            "True\n",
        )

    def test_a_local_of_the_name_of_a_global_does_not_take_it_along(self):
        self.prints(
            "model = (x for x in ())  # cannot be pickled\n"
            "def train():\n    model = 1\n    print([model for _ in 'a'])\n"
            "if __name__ == '__main__': check(train)\n",
            "[1]\n",
        )

    def test_what_cannot_be_handed_over_is_named(self):
        text = (
            "import threading\nlock = threading.Lock()\n"
            "def train():\n    with lock: pass\n"
            "def counts():\n    n = 0\n    def train():\n        nonlocal n\n        n += 1\n    return train\n"
            "def one(): print(twice)\ndef two(): print(one)\n"
            "exec('def made(): pass')\n"
            "if __name__ == '__main__': refused(train); refused(counts()); refused(made)\n"
        )
        said = self.run_file(text).splitlines()
        self.assertRegex(said[0], "`lock` cannot be handed to a fresh process .*lock.*OOMTUNE_USAGE")
        self.assertRegex(said[1], "`train` cannot be run in a fresh process.*nonlocal.*OOMTUNE_USAGE")
        self.assertRegex(said[2], "`made` cannot be run in a fresh process.*OOMTUNE_USAGE")

    def test_annotations_that_are_not_evaluated(self):
        out = self.run_file(
            "from mine import make\nif __name__ == '__main__': check(make())\n",
            extra=[
                (
                    "mine.py",
                    (
                        "from __future__ import annotations\n"
                        "def make():\n    def train(x: Nonsense | None = 1): print(x)\n    return train\n"
                    ),
                )
            ],
        )
        self.assertEqual(out, "1\n")

    def test_a_size_that_is_only_a_loaders_is_set_in_the_loop(self):
        self.prints(
            "def only(batch_size, rate=1): return dict(DataLoader=rate), [DataLoader(1, batch_size=batch_size)]\n"
            "def trainers(size): TrainingArguments('.', per_device_train_batch_size=size)\n"
            "def twice(batch_size): DataLoader(1, batch_size=batch_size), batch_size\n"
            "def scaled(batch_size): DataLoader(1, batch_size=2 * batch_size)\n"
            "def changed(batch_size):\n    batch_size *= 2\n    DataLoader(1, batch_size=batch_size)\n"
            "def net(batch_size): Net(batch_size=batch_size)\n"
            "def both(batch_size, accumulation): DataLoader(1, batch_size=batch_size)\n"
            "def none(): DataLoader(1, batch_size=4)\n"
            "if __name__ == '__main__':\n"
            "    for one in (only, trainers, twice, scaled, changed, net, both, none):\n"
            "        script = FunctionScript(one, (), {})\n"
            "        print(one.__name__, script.takes_sizes, len(script.words))\n",
            "only loader 0\ntrainers loader 0\ntwice argument 1\nscaled argument 1\nchanged argument 1\nnet argument 1\n"
            "both argument 2\nnone loop 0\n",
        )

    def test_a_function_whose_sizes_are_set_in_its_loop_has_one_of_its_own(self):
        self.prints(
            "class DataLoader:\n    def __init__(self, batch_size): print(batch_size)\n"
            "def train(batch_size): DataLoader(batch_size=batch_size)\n"
            "if __name__ == '__main__': check(train)\n",
            "8\n",
        )

    def test_a_built_in_function_that_was_wrapped_as_in_a_notebook(self):
        self.prints(
            "import functools, io\n"
            "@functools.wraps(io.open)\n"
            "def open(file, *args): return io.open(file, *args)\n"
            "@functools.wraps(len)\n"
            "def size(of): return len(of)\n"
            "def train():\n    with open(__file__) as file: print(type(file).__name__)\n"
            "def other(): return size('ab')\n"
            "if __name__ == '__main__': check(train); refused(other)\n",
            "TextIOWrapper\n`len` cannot be run in a fresh process: its source is not known (it is builtin_function_or_method). "
            "Define it with `def` or `class` in a cell without %%magic, or in a file that is imported. (OOMTUNE_USAGE)\n",
        )


if __name__ == "__main__":
    unittest.main()
