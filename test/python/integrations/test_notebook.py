"""A notebook with a real kernel: classes, data and helpers stand in other cells than the search."""

import os
import tempfile
import time
import unittest

import nbformat
from jupyter_client.manager import start_new_kernel
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError

SETUP = [
    "import dataclasses\nimport torch\nimport oomtune\nfrom torch import nn\nfrom torch.utils.data import DataLoader, Dataset",
    "WIDTH = 128\n\n@dataclasses.dataclass\nclass Options:\n    width: int = WIDTH\n    rate: float = 0.1\n",
    (
        "class Squares(Dataset):\n"
        "    def __init__(self, length):\n        self.length = length\n"
        "    def __len__(self):\n        return self.length\n"
        "    def __getitem__(self, index):\n"
        "        return torch.full((16,), float(index)), torch.tensor(float(index) ** 2)\n\n"
        "class Net(nn.Module):\n"
        "    def __init__(self, options):\n"
        "        super().__init__()\n"
        "        self.body = nn.Sequential(nn.Linear(16, options.width), nn.ReLU(), nn.Linear(options.width, 1))\n"
        "    def forward(self, x):\n        return self.body(x).squeeze(1)"
    ),
    "options = Options()\ndata = Squares(200)\ntrained = []",
    (
        "def train():\n"
        "    model = Net(options)\n"
        "    optimizer = torch.optim.SGD(model.parameters(), lr=options.rate)\n"
        "    for x, y in DataLoader(data, batch_size=20, shuffle=True):\n"
        "        optimizer.zero_grad()\n"
        "        nn.functional.mse_loss(model(x), y).backward()\n"
        "        optimizer.step()\n"
        "    trained.append(1)"
    ),
]


def execute(*cells):
    """What the last cell shows: (its output, the progress)."""
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in [*SETUP, *cells]])
    NotebookClient(notebook, timeout=300, kernel_name="python3").execute()
    outputs = notebook.cells[-1].outputs
    texts = {"stdout": "", "stderr": ""}
    for output in outputs:
        if output.output_type == "stream":
            texts[output.name] += output.text
    return texts["stdout"], texts["stderr"]


class Notebook(unittest.TestCase):
    def test_a_function_of_a_cell_is_searched(self):
        shown, progress = execute(
            "found = oomtune.find_batch(train, device='cpu', budget='800MiB', max_batch=40, steps=2)",
            "print(found.max_micro_batch, found.name, found.effective_batch == found.micro_batch, trained)",
        )
        self.assertEqual((shown, progress), ("40 train True []\n", ""))

    def test_progress_is_shown_in_the_cell_and_the_answer_is_recorded(self):
        _, progress = execute(
            "found = oomtune.find_batch(lambda: train(), device='cpu', budget='800MiB', max_batch=4, steps=2, name='cell')"
        )
        self.assertRegex(progress, r"micro-batch +4 .*fit")
        shown, _ = execute("print(oomtune.recommended('cell').max_micro_batch)")
        self.assertEqual(shown, "4\n")

    def test_a_function_that_fails_says_why_in_the_notebook(self):
        with self.assertRaisesRegex(CellExecutionError, "NameError: name 'dta' is not defined.*OOMTUNE_JOB_FAILED"):
            execute(
                "def broken():\n    for x in DataLoader(dta): pass\n",
                "oomtune.find_batch(broken, device='cpu', budget='800MiB')",
            )

    def test_what_cannot_be_handed_over_is_named(self):
        with self.assertRaisesRegex(CellExecutionError, "`numbers` cannot be handed to a fresh process"):
            execute(
                "numbers = (n for n in range(3))\ndef counts():\n    return list(numbers)\n",
                "oomtune.find_batch(counts)",
            )

    def test_a_cell_with_a_magic_says_what_to_do(self):
        with self.assertRaisesRegex(CellExecutionError, "Define it with `def` or `class` in a cell without %%magic"):
            execute("%%time\ndef timed():\n    pass\n", "oomtune.find_batch(timed)")

    def test_a_size_of_a_loader_takes_one_launch(self):
        shown, _ = execute(
            (
                "def train_with(batch_size):\n"
                "    model = Net(options)\n"
                "    optimizer = torch.optim.SGD(model.parameters(), lr=options.rate)\n"
                "    for x, y in DataLoader(data, batch_size=batch_size, shuffle=True):\n"
                "        optimizer.zero_grad()\n"
                "        nn.functional.mse_loss(model(x), y).backward()\n"
                "        optimizer.step()"
            ),
            "found = oomtune.find_batch(train_with, device='cpu', budget='800MiB', steps=2)",
            "print(found.max_micro_batch, found.document['launches'])",
        )
        self.assertEqual(shown, "200 1\n")

    def test_a_kernel_that_is_restarted_leaves_no_process(self):
        with tempfile.TemporaryDirectory() as folder:
            note = os.path.join(folder, "pid")
            manager, client = start_new_kernel(kernel_name="python3")
            try:
                client.execute(
                    "import oomtune\n"
                    "def slow():\n"
                    "    import os, time\n"
                    f"    with open({note + '.new'!r}, 'w') as file: file.write(str(os.getpid()))\n"
                    f"    os.rename({note + '.new'!r}, {note!r})\n"
                    "    time.sleep(600)\n"
                    "oomtune.find_batch(slow, device='cpu', budget='800MiB')"
                )
                self.wait_until(lambda: os.path.exists(note))
                with open(note) as file:
                    process = "/proc/" + file.read()
                self.assertTrue(os.path.exists(process))
                manager.restart_kernel(now=True)
                self.wait_until(lambda: not os.path.exists(process))
            finally:
                client.stop_channels()
                manager.shutdown_kernel(now=True)

    def wait_until(self, holds):
        for _ in range(600):
            if holds():
                return
            time.sleep(0.1)
        self.fail("waited for a minute")


if __name__ == "__main__":
    unittest.main()
