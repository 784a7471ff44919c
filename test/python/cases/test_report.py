"""Exceptions reach the worker with their evidence, and the user as ever."""

import sys
import unittest

from support import PATH, probe, run

LOOP = """
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
model = nn.Linear(4, 2)
data = TensorDataset(torch.randn(40, 4), torch.randn(40, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
def work(x, y):
    optimizer.zero_grad()
    nn.functional.mse_loss(model(x), y).backward()
    optimizer.step()
"""

#: A library's training step, whose outputs are in no variable of the script, with a model that holds a graph since it was made.
LIBRARY = """
from torch.nn.utils import weight_norm
import warnings; warnings.simplefilter("ignore")
class Library: pass
library = Library()
code = '''
def step(self):
    self.outputs = {"out": [model(torch.randn(8, 4)) for _ in range(%d)]}
    raise RuntimeError("CUDA out of memory. Tried to allocate 2.00 GiB")
'''
names = dict(globals())
exec(compile(code, "/site-packages/library.py", "exec"), names)
model = names["model"] = weight_norm(nn.Linear(4, 2))
names["step"](library)
"""

GRADIENT = """
class Fails(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x): return x.clone()
    @staticmethod
    def backward(ctx, gradient): %s
x = torch.randn(8, 4, requires_grad=True)
torch.autograd.grad(Fails.apply(x).sum(), x)
"""


class Reports(unittest.TestCase):
    def failing(self, text, mode="probe", answers=(probe(5),)):
        return run(LOOP + text, mode, answers)

    def test_shape_error(self):
        result = run("../../../examples/shape_error.py", "probe", [probe(5)])
        told = result.one("exception")
        self.assertEqual(
            (told["class"], told["oom"], told["phase"], told["micro_batch"]), ("RuntimeError", False, "train", 5)
        )
        self.assertRegex(told["frame"], r"^shape_error.py:\d+ in main$")
        self.assertEqual(result.status, 1)
        self.assertEqual(result.errors.count("Traceback (most recent call last)"), 1)
        self.assertEqual(result.of("goodbye"), [])

    def test_out_of_memory(self):
        result = self.failing(
            "for x, y in DataLoader(data, batch_size=8):\n"
            '    raise RuntimeError("[enforce fail] DefaultCPUAllocator: can\'t allocate memory: you tried to allocate 9 bytes.")\n'
        )
        told = result.one("exception")
        self.assertEqual((told["oom"], told["phase"], told["micro_batch"]), (True, "train", 5))

    def test_a_loss_or_a_gradient_without_a_loader_is_of_the_training(self):
        fails = "raise RuntimeError('CUDA out of memory. Tried to allocate 2.00 GiB')"
        for text, phase in (
            ("x = torch.randn(8, 4)\nout = model(x)\n%s\n", "train"),
            (
                "def loss():\n    out = model(torch.randn(8, 4))\n    return out, other()\ndef other(): %s\nloss()\n",
                "train",
            ),
            (GRADIENT, "train"),
            (LIBRARY % 1 + "%.0s", "train"),
            (LIBRARY % 0 + "%.0s", "load"),
            ("x = torch.randn(8, 4)\n%s\n", "load"),
        ):
            told = self.failing(text % fails, "apply").one("exception")
            self.assertEqual((told["oom"], told["phase"]), (True, phase), text)

    def test_memory_that_runs_out_while_the_loop_is_looked_at_ran_out_before_it(self):
        told = self.failing(
            "import gc\ndef refuse(*a, **k): raise MemoryError\ngc.get_objects = refuse\n"
            "for x, y in DataLoader(data, batch_size=8): work(x, y)\n"
        ).one("exception")
        self.assertEqual((told["class"], told["oom"], told["phase"]), ("MemoryError", True, "load"))

    def test_primitive_that_cannot_be_executed_is_memory_where_memory_was_refused(self):
        sys.path[:0] = PATH.split(":")
        from oomtune.hook.report.exceptions import is_oom

        error = RuntimeError("could not execute a primitive")
        self.assertTrue(is_oom(error, refused=True))
        self.assertFalse(is_oom(error, refused=False))

    def test_error_of_what_the_script_does_about_memory_that_ran_out_is_of_memory(self):
        falls_back = (
            "def fall_back(): {}\n"
            "for x, y in DataLoader(data, batch_size=8):\n"
            "    try: raise MemoryError('no room')\n"
            "    except MemoryError:\n"
            "        fall_back()\n"
        )
        for handler in ("torch.utils.data()", "import no_such_fallback"):
            told = self.failing(falls_back.format(handler)).one("exception")
            self.assertEqual((told["class"], told["oom"], told["phase"]), ("MemoryError", True, "train"))
            self.assertIn("During handling of the above exception", told["traceback"])
        # It has gone on to train: what fails now may have another reason.
        told = self.failing(falls_back.format("model(torch.ones(3))")).one("exception")
        self.assertEqual((told["class"], told["oom"]), ("RuntimeError", False))

    def test_real_refusal(self):
        result = self.failing("for x, y in DataLoader(data, batch_size=8):\n    torch.empty(2**60)\n")
        self.assertTrue(result.one("exception")["oom"])

    def test_before_any_loop(self):
        result = self.failing("open('/nowhere/data.bin')\n")
        told = result.one("exception")
        self.assertEqual((told["class"], told["phase"], told["micro_batch"]), ("FileNotFoundError", "load", None))

    def test_evaluation_by_name(self):
        result = self.failing(
            "def evaluate():\n    raise RuntimeError('CUDA out of memory. Tried to allocate 2.00 GiB')\n"
            "for x, y in DataLoader(data, batch_size=8):\n    work(x, y); evaluate()\n",
            "apply",
        )
        told = result.one("exception")
        self.assertEqual((told["oom"], told["phase"]), (True, "eval"))

    def test_evaluation_mode_before_a_backward_pass_is_training(self):
        for then, phase in (("loss.backward()", "train"), ("print(loss)", "eval")):
            result = self.failing(
                "class Large(type(model)):\n"
                "    def forward(self, x): raise RuntimeError('CUDA out of memory. Tried to allocate 2.00 GiB')\n"
                "model.__class__ = Large\n"
                "model.eval()\n"
                "for x, y in DataLoader(data, batch_size=8):\n"
                "    loss = model(x).sum()\n"
                "    %s\n" % then,
                "apply",
            )
            self.assertEqual(result.one("exception")["phase"], phase)

    def test_without_gradients_in_place(self):
        fails = "raise RuntimeError('CUDA out of memory. Tried to allocate 2.00 GiB')"
        for where, phase in (
            ("    with torch.no_grad(): %s\n    work(x, y).backward()\n", "train"),
            ("    work(x, y)\n    with torch.no_grad(): %s\n", "eval"),
            ("    with torch.no_grad():\n        for x, y in data: %s\n    work(x, y).backward()\n", "eval"),
            ("    work(x, y); look()\n    %.0s", "eval"),
        ):
            head = "@torch.no_grad()\ndef look(): %s\nfor x, y in DataLoader(data, batch_size=8):\n" % fails
            told = self.failing(head + where % fails, "apply").one("exception")
            self.assertEqual((told["oom"], told["phase"], told["gradients"]), (True, phase, False), where)

    def test_what_a_step_asks_of_its_model_is_of_the_training(self):
        # Gradients of the pictures in evaluation mode, targets without gradients in a function, first weights of a batch.
        attack = "%sfor _ in range(2): x.requires_grad_(); x = x.detach() + torch.autograd.grad(model(x).sum(), x)[0]\n"
        head = (
            "import torch.nn.functional as F\n"
            "full = False\n"
            "class Large(type(model)):\n"
            "    def forward(self, x):\n"
            "        if full: raise RuntimeError('CUDA out of memory. Tried to allocate 2.00 GiB')\n"
            "        return super().forward(x)\n"
            "model.__class__ = Large\n"
            "def attacked(x):\n"
            "    model.eval()\n" + attack % "    " + "    model.train()\n"
            "    return x\n"
            "def target(x):\n"
            "    with torch.no_grad(): return model(x)\n"
            "loader = DataLoader(data, batch_size=8)\n"
        )
        for body, phase in (
            ("full = True\nfor x, y in loader: F.mse_loss(model(attacked(x)), y).backward()\n", "train"),
            ("full = True\nfor x, y in loader:\n    x = attacked(x)\n    work(x, y)\n", "train"),
            (
                "full = True\nfor x, y in loader:\n    model.eval()\n"
                + attack % "    "
                + "    model.train(); work(x, y)\n",
                "train",
            ),
            ("full = True\nfor x, y in loader: F.mse_loss(model(x), target(x)).backward()\n", "train"),
            (
                "def training_step(x): return model(x), target(x)\nmodel.eval(); full = True\ntraining_step(data[0])\n",
                "train",
            ),
            ("full = True\ntarget(next(iter(loader))[0])\nfor x, y in loader: work(x, y)\n", "train"),
            # Evaluations: of attacked samples, after a step, of a loop of its own or in evaluation mode before any.
            ("for x, y in loader: work(x, y)\nfull = True\nfor x, y in loader: attacked(x)\n", "eval"),
            ("for x, y in loader: work(x, y)\nfull = True\ntarget(x)\n", "eval"),
            ("full = True\nfor x, y in loader: target(x)\n", "eval"),
            ("full = True\nfor x, y in loader:\n    model.eval(); target(x)\n", "eval"),
        ):
            told = self.failing(head + body, "apply").one("exception")
            self.assertEqual((told["oom"], told["phase"]), (True, phase), body)

    def test_torch_turns_gradients_off_for_its_own_work(self):
        # As FSDP's exchanges between ranks do, within a forward pass.
        told = self.failing(
            "def gather(): raise RuntimeError('CUDA out of memory. Tried to allocate 2.00 GiB')\n"
            "gather.__module__ = 'torch.distributed.fsdp'\n"
            "for x, y in DataLoader(data, batch_size=8):\n"
            "    torch.no_grad()(gather)()\n",
            "apply",
        ).one("exception")
        self.assertEqual((told["oom"], told["phase"], "gradients" in told), (True, "train", False))

    def test_gradients_that_an_optimizer_turns_on_for_its_closure_are_of_the_training(self):
        # As SAM is written: its step, without gradients, calls the closure with them.
        head = (
            "class Sharp(torch.optim.SGD):\n"
            "    @torch.no_grad()\n"
            "    def step(self, closure):\n"
            "        %s\n"
            "def fail(): raise RuntimeError('CUDA out of memory. Tried to allocate 2.00 GiB')\n"
            "optimizer = Sharp(model.parameters(), lr=0.1)\n"
            "for x, y in DataLoader(data, batch_size=8):\n"
            "    optimizer.step(%s)\n"
        )
        look = "torch.no_grad()(fail)"
        for step, closure, phase in (
            ("torch.enable_grad()(closure)()", "fail", "train"),
            ("with torch.enable_grad(): closure()", "fail", "train"),
            ("with torch.set_grad_enabled(True): closure()", "fail", "train"),
            ("torch.rand(2); fail()", "fail", "train"),
            ("torch.enable_grad()(closure)()", look, "eval"),
        ):
            told = self.failing(head % (step, closure), "apply").one("exception")
            self.assertEqual((told["oom"], told["phase"], "gradients" in told), (True, phase, phase == "eval"), step)

    def test_thread(self):
        result = self.failing(
            "import threading\n"
            "def fail(): raise MemoryError('no room')\n"
            "t = threading.Thread(target=fail); t.start(); t.join()\n",
            "apply",
        )
        told = result.one("exception")
        self.assertEqual((told["class"], told["oom"]), ("MemoryError", True))
        self.assertEqual(result.status, 0)

    def test_interrupt_is_no_failure(self):
        result = self.failing("raise KeyboardInterrupt\n", "apply")
        self.assertEqual(result.of("exception"), [])

    def test_exit_is_no_failure(self):
        result = self.failing("raise SystemExit(3)\n", "apply")
        self.assertEqual((result.of("exception"), result.status), ([], 3))


class Telemetry(unittest.TestCase):
    def test_evaluation_and_saving_are_told(self):
        result = run(
            LOOP + "for x, y in DataLoader(data, batch_size=8): work(x, y)\n"
            "model.eval()\n"
            "for x, y in DataLoader(data, batch_size=8): model(x)\n"
            "torch.save(model, 'model.pt')\n"
            "open('saved') if not __import__('os').path.exists('model.pt') else None\n",
            "apply",
        )
        self.assertEqual(result.status, 0, result.errors)
        self.assertEqual([m["n"] for m in result.of("step")], [1, 2, 3, 4, 5])
        self.assertEqual([m["samples"] for m in result.of("step")], [8, 16, 24, 32, 40])
        self.assertEqual((len(result.of("eval")), len(result.of("save"))), (1, 1))
        self.assertEqual([m["code"] for m in result.of("warn")], ["eval_builds_graph"])

    def test_careful_evaluation_is_not_warned_of(self):
        result = run(
            LOOP + "for x, y in DataLoader(data, batch_size=8): work(x, y)\n"
            "model.eval()\n"
            "for x, y in DataLoader(data, batch_size=8):\n"
            "    with torch.no_grad(): model(x)\n",
            "apply",
        )
        self.assertEqual(result.of("warn"), [])

    def test_the_worker_may_go_away(self):
        result = run(
            LOOP + "for x, y in DataLoader(data, batch_size=8): work(x, y)\nprint('done')\n",
            "apply",
            OOMTUNE_HOOK_SOCKET="/nowhere/s",
        )
        self.assertEqual((result.status, result.output), (0, "done\n"))


if __name__ == "__main__":
    unittest.main()
