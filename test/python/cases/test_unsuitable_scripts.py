"""Scripts whose batch sizes cannot be set, or that end too early: the search ends early and says why."""

import os
import subprocess
import tempfile
import unittest

from support import PATH, Worker, environment, probe, run
from test_probe import HEAD

PLAIN = "for x, y in DataLoader(data, batch_size=8): work(x, y)\n"


class Bounds(unittest.TestCase):
    def run_in(self, text, answers=(), **env):
        with tempfile.TemporaryDirectory() as folder:
            result = run(HEAD + text + "note('epilogue')\n", "probe", answers, cwd=folder, **env)
            with open(os.path.join(folder, "seen")) as file:
                self.seen = file.read().split("\n")[:-1]
        return result

    def assert_given_up(self, result, reason):
        self.assertEqual(result.status, 0, result.errors)
        self.assertEqual((result.one("goodbye")["reason"], result.one("goodbye")["message"]), ("undriveable", reason))
        self.assertNotIn("epilogue", self.seen)

    def test_batches_cut_by_hand(self):
        result = self.run_in(
            "w = torch.zeros(4, 2, requires_grad=True)\n"
            "optimizer = torch.optim.SGD([w], lr=0.1)\n"
            "for i in range(100): note('step'); (data.tensors[0][:8] @ w).sum().backward(); optimizer.step()\n"
        )
        why = "the script trains without a torch DataLoader, and no call of a model with a batch was seen"
        self.assert_given_up(result, why)
        self.assertLess(len(self.seen), 10)

    def test_fewer_steps_than_are_waited_for(self):
        result = self.run_in(
            "w = torch.zeros(4, 2, requires_grad=True)\n"
            "optimizer = torch.optim.SGD([w], lr=0.1)\n"
            "for i in range(6): (data.tensors[0][:8] @ w).sum().backward(); optimizer.step()\n"
        )
        why = "the script trains without a torch DataLoader, and no call of a model with a batch was seen"
        self.assertEqual([(m["reason"], m["message"]) for m in result.of("goodbye")], [("undriveable", why)])
        self.assertEqual(self.seen, ["epilogue"])

    def test_weights_that_are_stepped_by_hand_a_few_times(self):
        result = self.run_in(
            "model, optimizer = nn.Linear(4, 2), None\n"
            "import gc; gc.collect()\n"
            "for i in range(6): (data.tensors[0][:8] @ model.weight.T).sum().backward()\n"
        )
        self.assertEqual(result.one("goodbye")["message"], "the script trains without a torch optimizer")

    def test_nothing_trained_is_nothing_said(self):
        self.assertEqual(self.run_in("data.tensors[0].sum()\n").of("goodbye"), [])

    def test_a_few_steps_to_warm_up_are_allowed(self):
        result = self.run_in("for i in range(3): work(*data[:8])\n" + PLAIN, [probe(3)])
        self.assertEqual([m["micro_batch"] for m in result.of("measured")], [3])

    def test_one_batch_over_and_over(self):
        result = self.run_in(
            "x, y = next(iter(DataLoader(data, batch_size=8)))\nfor i in range(10**6): work(x, y)\n", [probe(3)]
        )
        self.assert_given_up(result, "the script makes step after step without asking its DataLoader for another batch")

    def test_an_optimizer_for_each_parameter_that_steps_in_the_backward_pass(self):
        result = self.run_in(
            "model = nn.Sequential(*[nn.Linear(4, 4) for _ in range(80)], nn.Linear(4, 2))\n"
            "singles = {p: torch.optim.SGD([p], lr=0.1) for p in model.parameters()}\n"
            "def ready(p):\n"
            "    def hook(grad): p.grad = grad; singles[p].step(); p.grad = None; return torch.zeros_like(grad)\n"
            "    return hook\n"
            "for p in singles: p.register_hook(ready(p))\n"
            "for x, y in DataLoader(data, batch_size=8):\n"
            "    note('batch', len(x))\n"
            "    nn.functional.mse_loss(model(x), y).backward()\n",
            [probe(3), probe(5, steps=2)],
        )
        self.assertEqual([m["micro_batch"] for m in result.of("measured")], [3, 5])
        self.assertEqual([line for line in self.seen if "batch" in line], ["batch 3"] * 3 + ["batch 5"] * 2)

    def test_a_list_of_all_batches(self):
        result = self.run_in(
            "batches = list(DataLoader(data, batch_size=1))\nwhile True:\n    for x, y in batches: work(x, y)\n",
            [probe(3)],
        )
        self.assert_given_up(result, "the script makes step after step without asking its DataLoader for another batch")

    def test_whole_batches_of_which_the_script_takes_the_first(self):
        why = (
            "the items of the data set are whole batches, and how many of them the DataLoader joins does not reach the model, "
            "which is called with 8 rows all the same"
        )
        whole = (
            "from torch.utils.data import Dataset\n"
            "class Whole(Dataset):\n"
            "    def __len__(self): return 5\n"
            "    def __getitem__(self, i): return data[i * 8:i * 8 + 8]\n"
        )
        for loop in (
            "for x, y in DataLoader(Whole(), batch_size=1): work(x[0], y[0])\n",
            "for x, y in DataLoader(Whole(), batch_size=1, collate_fn=lambda items: items[0]): work(x, y)\n",
        ):
            result = self.run_in(whole + loop, [probe(1), probe(4)])
            self.assert_given_up(result, why)
        result = self.run_in("for x, y in DataLoader(data, batch_size=1): work(x, y)\n", [probe(1), probe(4)])
        self.assertEqual([m["micro_batch"] for m in result.of("measured")], [1, 4])

    def test_no_optimizer(self):
        result = self.run_in(
            "model, optimizer = nn.Linear(4, 2), None\n"
            "import gc; gc.collect()\n"
            "for epoch in range(10**6):\n"
            "    for x, y in DataLoader(data, batch_size=8):\n"
            "        nn.functional.mse_loss(model(x), y).backward()\n"
            "        with torch.no_grad():\n"
            "            for p in model.parameters(): p -= 0.1 * p.grad\n"
        )
        self.assert_given_up(result, "the script trains without a torch optimizer")

    def test_the_last_word_of_a_script_that_leaves_at_once(self):
        result = self.run_in(
            "[work(x, y) for i, (x, y) in zip(range(2), DataLoader(data, batch_size=8))]\nos._exit(0)\n", [probe(3)]
        )
        self.assertEqual(result.one("goodbye")["reason"], "loop_over")

    def test_an_out_of_memory_error_that_ends_the_script_quietly(self):
        text = (
            "import ctypes\n"
            "from oomtune.hook.watch.memory import CpuMemory\n"
            "CpuMemory.failures = lambda self: int(os.path.exists('refused'))\n"
            "try:\n"
            "    for x, y in DataLoader(data, batch_size=8):\n"
            "        open('refused', 'w').close()\n"
            "        raise RuntimeError('out of memory')\n"
            "except RuntimeError: print('sorry')\n"
        )
        result = self.run_in(text, [probe(3)])
        self.assertTrue(result.one("exception")["oom"])


class Ancestors(unittest.TestCase):
    def test_a_launcher_goes_on_where_no_supervisor_is_above(self):
        # Under a supervisor the launcher is ended: test/worker holds that with the real one.
        worker = Worker([probe(3)])
        with tempfile.TemporaryDirectory() as folder:
            with open(os.path.join(folder, "train.py"), "w") as file:
                file.write(HEAD + PLAIN)
            done = subprocess.run(
                ["sh", "-c", "/usr/bin/env \"$0\" train.py; echo after", os.environ.get("OOMTUNE_TEST_PYTHON", "/usr/bin/python3")],
                cwd=folder, env=environment(worker, "probe", PYTHONPATH=PATH),
                stdout=subprocess.PIPE, universal_newlines=True, timeout=100,
            )  # fmt: skip
        worker.close()
        self.assertEqual(done.stdout, "after\n")
        self.assertEqual(worker.of("goodbye")[0]["reason"], "end")


if __name__ == "__main__":
    unittest.main()
