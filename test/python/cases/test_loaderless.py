"""Loops without a DataLoader, driven where they call their model: what the model sees, and what the loss is made of."""

import os
import sys
import tempfile
import unittest

from support import ROOT, probe, run

sys.path.insert(0, os.path.join(ROOT, "python"))

from oomtune.hook.probe.batch_size_variables import names_a_batch

HEAD = """
import torch, os, sys
from torch import nn
torch.manual_seed(0)
seen = open('seen', 'a')
def note(*words):
    seen.write(' '.join(map(str, words)) + '\\n'); seen.flush()
class Model(nn.Module):
    def __init__(self, inner=None):
        super().__init__()
        self.inner = inner or nn.Linear(4, 3)
    def forward(self, x, *more):
        note('model', *[tuple(each.shape) for each in (x, *more)])
        return self.inner(x)
model = Model()
data, labels = torch.randn(600, 4), torch.randint(3, (600,))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
def step(loss):
    optimizer.zero_grad(); loss.backward(); optimizer.step()
"""
ANSWERS = [probe(3), probe(50, steps=2), probe(5)]


class AtCall(unittest.TestCase):
    def drive(self, text, answers=ANSWERS, mode="probe", **env):
        with tempfile.TemporaryDirectory() as folder:
            result = run(HEAD + text + "\nnote('epilogue')\n", mode, answers, cwd=folder, **env)
            with open(os.path.join(folder, "seen")) as file:
                self.seen = file.read().split("\n")[:-1]
        self.assertEqual(result.status, 0, result.errors)
        self.assertNotIn("epilogue", self.seen)
        return result

    def assert_driven(self, result, own, sizes=(3, 50, 5)):
        self.assertEqual([m["micro_batch"] for m in result.of("measured")], list(sizes), result.messages)
        loop = result.one("loop")
        self.assertEqual((loop["own_batch"], loop["place"], loop["can"]["batch"]), (own, "call", True))

    def rows(self):
        """Rows of each call of the model, runs of the same told once."""
        found = []
        for line in self.seen:
            rows = int(line.split("(")[1].split(",")[0])
            if not found or found[-1] != rows:
                found.append(rows)
        return found

    def test_lists_of_weights_and_gradients_are_no_batches(self):
        # With one row of its own a weight of 32 rows looks like a batch of 4, and gradients of 8 rows like what is to meet it.
        result = self.drive(
            "model = Model(nn.Sequential(nn.Linear(4, 32), nn.Linear(32, 8), nn.Linear(8, 3)))\n"
            "optimizer = torch.optim.AdamW(model.parameters(), foreach=True)\n"
            "for i in range(100):\n"
            "    loss = nn.functional.cross_entropy(model(data[i:i + 1]), labels[i:i + 1])\n"
            "    optimizer.zero_grad(); loss.backward()\n"
            "    torch._foreach_mul_([p.grad for p in model.parameters()], 0.5)\n"
            "    torch._foreach_add_([p.grad for p in model.parameters()], [p.detach() for p in model.parameters()])\n"
            "    optimizer.step()",
            answers=[probe(4), probe(12)],
        )
        self.assert_driven(result, 1, (4, 12))

    def test_products_of_weights_in_an_optimizer_are_no_batches(self):
        result = self.drive(
            "class Products(torch.optim.Optimizer):\n"
            "    def __init__(self, parameters): super().__init__(parameters, {})\n"
            "    def step(self, closure=None):\n"
            "        for p in (p for group in self.param_groups for p in group['params'] if p.dim() == 2):\n"
            "            p.data.add_(p.grad @ p.grad.t() @ p.grad, alpha=-0.01)\n"
            "model = Model(nn.Sequential(nn.Linear(4, 8), nn.Linear(8, 32), nn.Linear(32, 3)))\n"
            "optimizer = Products(model.parameters())\n"
            "while True: step(nn.functional.cross_entropy(model(data[:1]), labels[:1]))\n",
            answers=[probe(4)],
        )
        self.assert_driven(result, 1, (4,))

    def test_classes_that_fail_when_they_are_asked_for_attributes(self):
        # As transformers' stand-ins of what is not installed: any attribute raises an ImportError.
        result = self.drive(
            "class Missing(type):\n"
            "    def __getattribute__(cls, name):\n"
            "        if name.startswith('_'): return super().__getattribute__(name)\n"
            "        raise ImportError('\\nrequires a library')\n"
            "class Proxy:\n"
            "    @property\n"
            "    def __class__(self): raise RuntimeError('nothing is bound')\n"
            "Tokenizer = Missing('Tokenizer', (), {})\n"
            "bound = Proxy()\n"
            "batch_size = 8\n"
            "while True:\n"
            "    x = data[:batch_size]\n"
            "    step(model(x).sum())\n"
        )
        self.assert_driven(result, 8)

    def test_a_module_level_name_that_the_next_batch_is_made_by(self):
        result = self.drive(
            "batch_size = 8\n"
            "while True:\n"
            "    x = data[:batch_size]; note('made', (len(x),))\n"
            "    step(model(x).sum())\n"
        )
        self.assert_driven(result, 8)
        made = [line for line in self.seen if "made" in line]
        # Only the first was made before the first size was known.
        self.assertEqual(made, ["made (8,)"] + ["made (3,)"] * 2 + ["made (50,)"] * 2 + ["made (5,)"] * 4)

    def test_batches_that_are_fetched_ahead_are_let_pass(self):
        result = self.drive(
            "batch_size = 8\n"
            "def get(): return data[:batch_size]\n"
            "x = get()\n"
            "while True:\n"
            "    loss = model(x).sum()\n"
            "    x = get()\n"
            "    step(loss)\n"
        )
        self.assert_driven(result, 8)
        self.assertEqual(self.rows(), [3, 50, 5])

    def test_a_number_that_has_no_name(self):
        result = self.drive("while True: step(nn.functional.cross_entropy(model(data[:8]), labels[:8]))\n")
        self.assert_driven(result, 8)
        self.assertEqual(self.rows(), [3, 50, 5])

    def test_a_name_that_is_read_but_once_is_left_as_it_was(self):
        result = self.drive(
            "batch_size = 8\n"
            "x, y = data[:batch_size], labels[:batch_size]\n"
            "while True:\n"
            "    note('kept (%d,)' % batch_size)\n"
            "    step(nn.functional.cross_entropy(model(x), y))\n",
            [probe(3, steps=8), probe(50)],
        )
        self.assert_driven(result, 8, (3, 50))
        kept = [line for line in self.seen if "kept" in line]
        self.assertEqual(kept[-1], "kept (8,)")

    def test_labels_meet_outputs_in_many_ways(self):
        losses = {
            "nn.CrossEntropyLoss()(out, y)": 8,
            "nn.functional.mse_loss(out, one_hot)": 8,
            "-out.log_softmax(1).gather(1, y[:, None]).mean()": 8,
            "-out.log_softmax(1)[torch.arange(8), y].mean()": 8,
            "(out - one_hot).pow(2).mean()": 8,
            "(nn.functional.cross_entropy(out, y, reduction='none') * torch.rand(8)).sum()": 8,
            "nn.functional.binary_cross_entropy_with_logits(out.view(8, -1), one_hot.view(8, -1))": 8,
            "-torch.distributions.Categorical(logits=out).log_prob(y).mean()": 8,
        }
        for loss, own in losses.items():
            with self.subTest(loss):
                result = self.drive(
                    "x, y = data[:8], labels[:8]\n"
                    "one_hot = nn.functional.one_hot(y, 3).float()\n"
                    "while True:\n"
                    "    out = model(x)\n"
                    "    loss = %s\n"
                    "    hits = (out.argmax(1) == y).sum()\n"
                    "    step(loss)\n" % loss,
                    [probe(1), probe(3), probe(50, steps=2)],
                )
                self.assert_driven(result, own, (1, 3, 50))
                self.assertEqual(self.rows(), [1, 3, 50])

    def test_weights_that_are_as_long_as_the_batch(self):
        result = self.drive(
            "model = Model(nn.Linear(4, 8))\n"
            "optimizer = torch.optim.SGD(model.parameters(), lr=0.1)\n"
            "scale = torch.rand(8)\n"
            "while True: step((model(data[:8]) * scale).sum())\n"
        )
        self.assert_driven(result, 8)

    def test_one_row_of_as_many_features_as_the_batch_has_rows(self):
        # As in actor-critic policies of 64 units with minibatches of 64: the second module is called with what the first has made.
        result = self.drive(
            "body = Model(nn.Linear(4, 8)); encoder = nn.Conv1d(1, 8, 1); head = nn.Linear(8, 3); mixer = nn.Linear(8, 1)\n"
            "modules = nn.ModuleList([body, encoder, head, mixer])\n"
            "optimizer = torch.optim.SGD([p for module in modules for p in module.parameters()], lr=0.1)\n"
            "while True:\n"
            "    hidden = body(data[:8])\n"
            "    outputs = head(hidden)\n"
            "    mixed = mixer(encoder(hidden[:, None]))\n"
            "    note('rows', (len(outputs),), (len(mixed),))\n"
            "    step(nn.functional.cross_entropy(outputs, labels[:8]) + mixed.sum())\n",
            answers=[probe(1), probe(8), probe(3)],
        )
        self.assert_driven(result, 8, (1, 8, 3))
        self.assertEqual(self.rows(), [1, 8, 3])

    def test_batches_that_are_stacked_of_thousands_of_samples(self):
        # Each sample was compared with all others in each stack.
        result = self.drive(
            "samples = list(torch.randn(8000, 4))\n"
            "from oomtune.hook.probe.row_alignment import RowAlignment\n"
            "looks = [0]\n"
            "class Counted(list):\n"
            "    def __iter__(self):\n"
            "        for item in super().__iter__(): looks[0] += 1; yield item\n"
            "views = RowAlignment._views\n"
            "RowAlignment._views = lambda self, tensors: views(self, Counted(tensors))\n"
            "while True:\n"
            "    step(model(torch.stack(samples)).sum())\n"
            "    note('looks', (looks[0],))\n",
            answers=[probe(1)],
        )
        self.assert_driven(result, 8000, (1,))
        looks = [int(line.split("(")[1].split(",")[0]) for line in self.seen if "looks" in line]
        self.assertGreaterEqual(max(looks), 8000)
        self.assertLess(max(looks), 10 * 8000 * len(looks))

    def test_an_optimizer_of_another_kind_than_torchs(self):
        # fastai's has what torch's have, and is none of them.
        result = self.drive(
            "class Own:\n"
            "    def __init__(self, parameters): self.parameters, self.state = list(parameters), {}\n"
            "    @property\n"
            "    def param_groups(self): return [{'params': self.parameters, 'lr': 0.1}]\n"
            "    def zero_grad(self):\n"
            "        for p in self.parameters: p.grad = None\n"
            "    def step(self):\n"
            "        for p in self.parameters: p.data.sub_(p.grad, alpha=0.1)\n"
            "del optimizer\n"
            "optimizer = Own(model.parameters())\n"
            "batch_size = 8\n"
            "while True:\n"
            "    x = data[:batch_size]\n"
            "    step(model(x).sum())\n"
        )
        self.assert_driven(result, 8)
        self.assertEqual(self.rows(), [3, 50, 5])

    def test_several_inputs_and_names(self):
        result = self.drive("mask = torch.ones(6, 6)\nwhile True: step(model(data[:8], data[:8, :2], mask).sum())\n")
        self.assert_driven(result, 8)
        self.assertEqual(sorted(set(self.seen)), ["model (%d, 4) (%d, 2) (6, 6)" % (n, n) for n in (3, 5, 50)])

    def test_time_first_where_a_name_says_which_dimension_has_the_samples(self):
        result = self.drive(
            "import argparse\n"
            "args = argparse.Namespace(batch_size=8)\n"
            "text = torch.randn(20, args.batch_size, 4)\n"
            "target = torch.randint(3, (20, 8))\n"
            "while True: step(nn.functional.cross_entropy(model(text).view(-1, 3), target.view(-1)))\n"
        )
        self.assert_driven(result, 8)
        self.assertEqual(sorted(set(self.seen)), ["model (20, %d, 4)" % n for n in (3, 5, 50)])

    def test_time_first_where_only_the_model_shows_which_dimension_has_the_samples(self):
        for tokens in (20, 8):  # as many as samples, too
            with self.subTest(tokens):
                result = self.drive(
                    "class Recurrent(nn.Module):\n"
                    "    def __init__(self):\n"
                    "        super().__init__(); self.inner, self.calls = nn.GRU(4, 3), 0\n"
                    "    def forward(self, x):\n"
                    "        self.calls += 1; note('model', tuple(x.shape)); return self.inner(x)[0].view(-1, 3)\n"
                    "model = Recurrent()\n"
                    "optimizer = torch.optim.SGD(model.parameters(), lr=0.1)\n"
                    "text, target = torch.randn(%d, 8, 4), torch.randint(3, (%d,))\n"
                    "while True: step(nn.functional.cross_entropy(model(text), target))\n" % (tokens, 8 * tokens)
                )
                self.assert_driven(result, 8)
                # Past the runs that look at it.
                last = [line for line in self.seen if "model" in line][-9:]
                self.assertEqual(sorted(set(last)), ["model (%d, %d, 4)" % (tokens, n) for n in (3, 5, 50)])

    def test_a_step_of_several_batches(self):
        result = self.drive(
            "batch_size = 8\n"
            "while True:\n"
            "    for part in range(3): (model(data[:batch_size]).sum() / 3).backward()\n"
            "    optimizer.step(); optimizer.zero_grad()\n"
        )
        self.assert_driven(result, 8)
        self.assertEqual({m["own_accumulation"] for m in result.of("measured")}, {3})
        self.assertEqual([m["steps"] for m in result.of("measured")], [3, 2, 3])

    def test_two_models_that_step_in_turn(self):
        result = self.drive(
            "maker = Model(nn.Linear(2, 4)); maker_optimizer = torch.optim.SGD(maker.parameters(), lr=0.1)\n"
            "judge = Model(nn.Linear(4, 1)); optimizer = torch.optim.SGD(judge.parameters(), lr=0.1)\n"
            "loss = nn.BCEWithLogitsLoss()\n"
            "for at in range(0, 600, 8):\n"
            "    real, yes, no = data[at:at + 8], torch.ones(8, 1), torch.zeros(8, 1)\n"
            "    made = maker(torch.randn(8, 2))\n"
            "    optimizer.zero_grad()\n"
            "    loss(judge(real), yes).backward(); loss(judge(made.detach()), no).backward(); optimizer.step()\n"
            "    maker_optimizer.zero_grad()\n"
            "    loss(judge(made), yes).backward(); maker_optimizer.step()\n"
        )
        self.assert_driven(result, 8)
        self.assertEqual(self.rows(), [3, 50, 5])
        self.assertEqual({m["own_accumulation"] for m in result.of("measured")}, {1})

    def test_a_teacher_sees_the_same_batch(self):
        result = self.drive(
            "teacher = Model().eval()\n"
            "while True:\n"
            "    x = data[:8]\n"
            "    with torch.no_grad(): wanted = teacher(x)\n"
            "    step(nn.functional.mse_loss(model(x), wanted))\n"
        )
        self.assert_driven(result, 8)
        self.assertEqual(self.rows(), [8, 3, 50, 5])

    def test_a_state_that_is_carried_from_batch_to_batch(self):
        for head in ("batch_size = 8\n", ""):
            with self.subTest(head):
                result = self.drive(
                    head + "class Recurrent(nn.Module):\n"
                    "    def __init__(self):\n"
                    "        super().__init__(); self.inner = nn.LSTM(4, 3, 2, batch_first=True)\n"
                    "    def forward(self, x, state):\n"
                    "        note('model', tuple(x.shape)); return self.inner(x, state)\n"
                    "model = Recurrent()\n"
                    "optimizer = torch.optim.SGD(model.parameters(), lr=0.1)\n"
                    "state = torch.zeros(2, 8, 3), torch.zeros(2, 8, 3)\n"
                    "while True:\n"
                    "    x = data[: %s * 5].view(-1, 5, 4)\n"
                    "    out, state = model(x, state)\n"
                    "    state = tuple(each.detach() for each in state)\n"
                    "    step(out.pow(2).mean())\n" % ("batch_size" if head else "8"),
                    [probe(1), probe(4), probe(50), probe(5)],
                )
                self.assert_driven(result, 8, (1, 4, 50, 5))
                # Without a name it is run on a few samples first, to see in which dimension they are.
                self.assertEqual(self.rows()[:-4] == [], bool(head))
                self.assertEqual(self.rows()[-4:], [1, 4, 50, 5])

    def test_a_replay_buffer_and_the_net_that_its_targets_come_from(self):
        result = self.drive(
            "import copy\n"
            "target = copy.deepcopy(model)\n"
            "rewards, done = torch.randn(600), torch.zeros(600)\n"
            "while True:\n"
            "    chosen = torch.randint(600, (8,))\n"
            "    with torch.no_grad(): best = rewards[chosen] + 0.9 * target(data[chosen]).max(1).values * (1 - done[chosen])\n"
            "    values = model(data[chosen]).gather(1, labels[chosen, None]).squeeze(1)\n"
            "    step(nn.functional.smooth_l1_loss(values, best))\n"
        )
        self.assert_driven(result, 8)
        self.assertEqual(self.rows(), [8, 3, 50, 5])

    def test_an_agent_that_asks_the_model_between_its_batches(self):
        # As CleanRL's dqn.py: with gradients, in training mode, at first more often than it learns. Some play at random first,
        # some ask at the line at which they learn.
        for first, call in ((0, "model"), (16, "model"), (0, "(lambda x: model(x))")):
            with self.subTest(first=first, call=call):
                result = self.drive(
                    "batch_size = 16\n"
                    "state, ask = torch.randn(1, 4), %s\n"
                    "for turn in range(10**6):\n"
                    "    if turn >= %d:\n"
                    "        values = ask(state); note('asked', (len(values),))\n"
                    "    if turn >= 12 and turn %% 3 == 0:\n"
                    "        chosen = torch.randint(600, (batch_size,))\n"
                    "        step(nn.functional.cross_entropy(ask(data[chosen]), labels[chosen]))\n" % (call, first)
                )
                self.assert_driven(result, 16)
                self.assertEqual({line for line in self.seen if "asked" in line}, {"asked (1,)"})
                self.assertEqual(sorted(set(self.rows()) - {16}), [1, 3, 5, 50])

    def test_an_agent_whose_observation_has_no_dimension_for_the_batch(self):
        for call in ("model", "(lambda x: model(x))"):
            with self.subTest(call):
                result = self.drive(
                    "batch_size = 16\n"
                    "state, ask = torch.randn(4), %s\n"
                    "for turn in range(10**6):\n"
                    "    ask(state)\n"
                    "    if turn >= 12 and turn %% 3 == 0:\n"
                    "        chosen = torch.randint(600, (batch_size,))\n"
                    "        step(nn.functional.cross_entropy(ask(data[chosen]), labels[chosen]))\n" % call,
                    [probe(4), probe(1), probe(50)],
                )
                self.assert_driven(result, 16, (4, 1, 50))
                shapes = {line for line in self.seen if line.startswith("model ")}
                self.assertEqual(shapes, {"model (%s)" % rows for rows in ("4,", "4, 4", "1, 4", "50, 4")})

    def test_batches_of_one_dimension_begin_after_one_of_them(self):
        result = self.drive(
            "class Curve(nn.Module):\n"
            "    def __init__(self): super().__init__(); self.inner = nn.Linear(1, 1)\n"
            "    def forward(self, t): note('model', tuple(t.shape)); return self.inner(t[:, None])\n"
            "model = Curve()\n"
            "optimizer = torch.optim.SGD(model.parameters(), lr=0.1)\n"
            "while True: step(model(data[:8, 0]).pow(2).mean())\n"
        )
        self.assert_driven(result, 8)

    def test_batches_of_one_row_begin_after_one_of_them(self):
        result = self.drive("while True: step(nn.functional.cross_entropy(model(data[:1]), labels[:1]))\n")
        self.assert_driven(result, 1)
        self.assertEqual(self.rows(), [1, 3, 50, 5])

    def test_a_model_that_is_trained_in_evaluation_mode(self):
        result = self.drive(
            "model.eval()\nwhile True: step(nn.functional.cross_entropy(model(data[:8]), labels[:8]))\n"
        )
        self.assert_driven(result, 8)

    def test_validation_keeps_its_own_batches(self):
        result = self.drive(
            "while True:\n"
            "    step(nn.functional.cross_entropy(model(data[:8]), labels[:8]))\n"
            "    model.eval()\n"
            "    with torch.no_grad(): note('valid', (len(model(data[:7])),))\n"
            "    model.train()\n"
        )
        self.assert_driven(result, 8)
        self.assertTrue(all(line.endswith("(7,)") for line in self.seen if "valid" in line))

    def test_a_buffer_that_ends_before_the_batch_does(self):
        result = self.drive(
            "batch_size = 8\n"
            "for epoch in range(10**6):\n"
            "    for start in range(0, 20, batch_size):\n"
            "        x = data[start:min(20, start + batch_size)]\n"
            "        step(nn.functional.cross_entropy(model(x), labels[start:min(20, start + batch_size)]))\n"
        )
        self.assert_driven(result, 8)
        self.assertIn("model (50, 4)", self.seen)
        self.assertEqual(
            [(m["code"], m["message"].split(": ")[0]) for m in result.of("warn")],
            [("few_rows", "The script's own data makes batches of at most 20")],
        )

    def test_a_generator_that_makes_a_pass_of_the_earlier_size_has_no_lack_of_data(self):
        result = self.drive(
            "batch_size = 8\n"
            "def batches(size):\n"
            "    for start in range(0, 24, size): yield data[start:start + size]\n"
            "while True:\n"
            "    for x in batches(batch_size): step(model(x).sum())\n",
            [probe(1, steps=6), probe(4, steps=9)],
        )
        self.assertIn("model (1, 4)", self.seen)
        self.assertEqual(result.of("warn"), [])

    def test_what_a_pass_has_left_for_its_last_batch_is_no_lack_of_data(self):
        result = self.drive(
            "batch_size = 8\n"
            "while True:\n"
            "    start = 0\n"
            "    while start < 100:\n"
            "        x = data[start:min(100, start + batch_size)]; start += len(x)\n"
            "        step(nn.functional.cross_entropy(model(x), labels[:len(x)]))\n",
            [probe(30, steps=4), probe(64, steps=6)],
        )
        self.assertEqual(result.of("warn"), [])

    def test_a_short_loop_is_kept_in(self):
        result = self.drive("for i in range(4): step(nn.functional.cross_entropy(model(data[:8]), labels[:8]))\n")
        if sys.version_info >= (3, 10):
            self.assert_driven(result, 8)

    def test_a_loop_that_speaks_of_loaders_begins_after_some_steps(self):
        result = self.drive(
            "from torch.utils.data import DataLoader, TensorDataset\n"
            "del optimizer\n"
            "import gc; gc.collect()\n"
            "x, y = next(iter(DataLoader(TensorDataset(data, labels), batch_size=600)))\n"
            "optimizer = torch.optim.SGD(model.parameters(), lr=0.1)\n"
            "while True: step(nn.functional.cross_entropy(model(x[:8]), y[:8]))\n"
        )
        self.assert_driven(result, 8)

    def test_a_size_that_a_flag_brought_goes_on_in_the_same_process(self):
        result = self.drive(
            "batch_size = 8\nwhile True: step(model(data[:batch_size]).sum())\n",
            [probe(50), probe(5)],
            mode="measure",
            OOMTUNE_MICRO_BATCH=8,
        )
        self.assert_driven(result, 8, (8, 50, 5))
        self.assertEqual(self.rows()[0], 8)
        self.assertEqual(self.rows()[-2:], [50, 5])

    def test_a_graph(self):
        result = self.drive(
            "edges = torch.zeros(2, 30)\nwhile True: step(model(data[:8], edges).sum())\n",
        )
        self.assertEqual(result.one("goodbye")["reason"], "undriveable")
        self.assertIn("no row for each sample", result.one("goodbye")["message"])


class Names(unittest.TestCase):
    def test_what_says_samples_in_a_batch(self):
        for name in (
            "batch_size",
            "BATCH_SIZE",
            "batchSize",
            "bs",
            "B",
            "train_batch_size",
            "minibatch_size",
            "batch",
            "bsz",
        ):
            self.assertTrue(names_a_batch(name), name)
        for name in (
            "batch_idx",
            "num_batches",
            "eval_batch_size",
            "n_batch",
            "hidden",
            "block_size",
            "b",
            8,
            "test_bs",
        ):
            self.assertFalse(names_a_batch(name), name)


if __name__ == "__main__":
    unittest.main()
