"""Driving an unmodified loop: sizes, steps, and that nothing of the script runs after its loop."""

import itertools
import os
import sys
import tempfile
import unittest
from unittest import mock

import torch
from support import ROOT, probe, run

sys.path.insert(0, os.path.join(ROOT, "python"))

HEAD = """
import torch, os, sys
from torch import nn
from torch.utils.data import DataLoader, TensorDataset, Dataset, IterableDataset
torch.manual_seed(0)
seen = open('seen', 'a')
def note(*words):
    seen.write(' '.join(map(str, words)) + '\\n'); seen.flush()
model = nn.Linear(4, 2)
data = TensorDataset(torch.randn(40, 4), torch.randn(40, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
def work(x, y):
    note('batch', len(x))
    optimizer.zero_grad()
    nn.functional.mse_loss(model(x), y).backward()
    optimizer.step()
"""

# Stands in for torchdata, which is not here: its loader does not go through torch's `__iter__`.
STATEFUL = """
from torch.utils.data import DataLoader
class StatefulDataLoader(DataLoader):
    def __iter__(self):
        self._iterator = self._get_iterator()
        return self._iterator
"""

ANSWERS = [probe(3), probe(50, steps=2), {"t": "end"}]


class Driving(unittest.TestCase):
    def drive(self, text, answers=ANSWERS, **env):
        with tempfile.TemporaryDirectory() as folder:
            result = run(HEAD + text, "probe", answers, cwd=folder, **env)
            self.files = sorted(os.listdir(folder))
            with open(os.path.join(folder, "seen")) as file:
                self.seen = file.read().split("\n")[:-1]
        return result

    def sizes(self):
        return [int(line.split()[1]) for line in self.seen if line.startswith("batch")]

    def assert_driven(self, result, sizes=(3, 3, 3, 50, 50)):
        self.assertEqual(result.status, 0, result.errors)
        self.assertEqual(self.sizes(), list(sizes))
        self.assertEqual([m["micro_batch"] for m in result.of("measured")], [3, 50])
        self.assertEqual([m["steps"] for m in result.of("measured")], [3, 2])
        self.assertEqual(result.one("goodbye")["reason"], "end")

    def test_plain_loop(self):
        result = self.drive("for x, y in DataLoader(data, batch_size=8): work(x, y)\nnote('epilogue')\n")
        self.assert_driven(result)
        self.assertNotIn("epilogue", self.seen)
        self.assertEqual(result.connections, 1)
        hello, loop = result.one("hello"), result.one("loop")
        self.assertEqual((hello["v"], hello["rank"], hello["device"]), (1, 0, "cpu"))
        self.assertEqual((loop["own_batch"], loop["samples"]), (8, 40))
        self.assertTrue(loop["can"]["batch"] and loop["can"]["accumulation"] and loop["can"]["switch_rung"])
        self.assertEqual(result.of("measured")[0]["own_accumulation"], 1)
        self.assertEqual(len(result.of("measured")[0]["step_s"]), 3)

    def test_scheduler_that_wraps_step_on_the_instance(self):
        self.assert_driven(
            self.drive(
                "schedule = torch.optim.lr_scheduler.StepLR(optimizer, 1)\n"
                "for x, y in DataLoader(data, batch_size=8): work(x, y); schedule.step()\n"
            )
        )

    def test_iterator_by_hand(self):
        self.assert_driven(
            self.drive(
                "it = iter(DataLoader(data, batch_size=8))\n"
                "while True:\n"
                "    try: x, y = next(it)\n"
                "    except StopIteration: it = iter(DataLoader(data, batch_size=8)); continue\n"
                "    work(x, y)\n"
            )
        )

    def test_samples_are_made_by_as_many_threads_as_in_the_loaders_workers(self):
        text = """
torch.set_num_threads(3)
class Rows(Dataset):
    def __len__(self): return 100
    def __getitem__(self, index):
        note('made by', torch.get_num_threads())
        return torch.randn(4), torch.randn(2)
for x, y in DataLoader(Rows(), batch_size=8, num_workers=%d):
    note('trained by', torch.get_num_threads())
    work(x, y)
"""
        for workers, threads in (0, 3), (1, 1):
            self.assert_driven(self.drive(text % workers))
            self.assertEqual({line for line in self.seen if "made by" in line}, {"made by %d" % threads})
            self.assertEqual({line for line in self.seen if "trained by" in line}, {"trained by 3"})

    def test_short_epochs_do_not_end_the_probe(self):
        self.assert_driven(
            self.drive(
                "data = TensorDataset(data.tensors[0][:8], data.tensors[1][:8])\n"
                "for epoch in range(1):\n"
                "    for x, y in DataLoader(data, batch_size=8): work(x, y)\n"
            )
        )

    def test_validation_before_and_between_keeps_its_batches(self):
        result = self.drive(
            "valid = DataLoader(data, batch_size=10)\n"
            "def check():\n"
            "    model.eval()\n"
            "    with torch.no_grad(): note('valid', [len(x) for x, _ in valid])\n"
            "    model.train()\n"
            "check()\n"
            "for step, (x, y) in enumerate(DataLoader(data, batch_size=8)):\n"
            "    work(x, y)\n"
            "    if step == 1: check()\n"
        )
        self.assert_driven(result)
        self.assertEqual([line for line in self.seen if line.startswith("valid")], ["valid [10, 10, 10, 10]"] * 2)

    def test_a_look_at_the_first_batch_is_no_training_loop(self):
        result = self.drive(
            "loader = DataLoader(data, batch_size=8)\n"
            "note('look', next(iter(loader))[0].shape[1])\n"
            "for x, y in loader: work(x, y)\n"
        )
        self.assert_driven(result)

    def test_a_loop_that_ends_before_anything_is_trained_is_no_training_loop(self):
        look = "valid = DataLoader(data, batch_size=10)\nfor _ in valid: break\n"
        statistics = "total = sum(float(x.sum()) for x, _ in DataLoader(data, batch_size=1, sampler=list(range(40))))\n"
        train = "for x, y in DataLoader(data, batch_size=8): work(x, y)\n"
        for before in (look, statistics):
            result = self.drive("note('start')\n" + before + train)
            self.assertEqual((result.status, result.one("goodbye")["reason"]), (0, "other_loop"), result.errors)
            self.assertEqual(self.sizes(), [])
            # The next process leaves the first loop alone.
            result = self.drive(before + train, OOMTUNE_SKIP_LOOPS=1)
            self.assert_driven(result)
            self.assertEqual(result.one("loop")["own_batch"], 8)

    def test_validation_that_looks_like_training_is_given_up(self):
        result = self.drive(
            "valid = DataLoader(data, batch_size=1)\n"
            "for step, (x, y) in enumerate(DataLoader(data, batch_size=8)):\n"
            "    work(x, y)\n"
            "    if step in (0, 2): note('valid', sum(len(nn.functional.mse_loss(model(x), y).shape) + 1 for x, y in valid))\n"
        )
        self.assert_driven(result)
        self.assertEqual([line for line in self.seen if line.startswith("valid")][1:], ["valid 40"])

    def test_training_in_evaluation_mode(self):
        result = self.drive("model.eval()\nfor x, y in DataLoader(data, batch_size=8): work(x, y)\n")
        # One batch of the script's own, before the loop has shown what it is.
        self.assert_driven(result, [8, 3, 3, 3, 50, 50])

    def test_training_in_evaluation_mode_in_a_loop_with_its_backward_pass(self):
        result = self.drive(
            "model.eval()\n"
            "for x, y in DataLoader(data, batch_size=10): nn.functional.mse_loss(model(x), y)\n"
            "for x, y in DataLoader(data, batch_size=8):\n"
            "    note('batch', len(x))\n"
            "    optimizer.zero_grad()\n"
            "    nn.functional.mse_loss(model(x), y).backward()\n"
            "    optimizer.step()\n"
        )
        self.assert_driven(result)

    def test_accumulation_of_the_script(self):
        result = self.drive(
            "for i, (x, y) in enumerate(DataLoader(data, batch_size=8)):\n"
            "    note('batch', len(x))\n"
            "    (nn.functional.mse_loss(model(x), y) / 4).backward()\n"
            "    if (i + 1) % 4 == 0: optimizer.step(); optimizer.zero_grad()\n",
        )
        self.assert_driven(result, [3] * 12 + [50] * 8)
        self.assertEqual([m["own_accumulation"] for m in result.of("measured")], [4, 4])
        self.assertEqual([m["accumulation"] for m in result.of("measured")], [4, 4])

    def test_accumulation_asked_for(self):
        answers = [probe(3, accumulation=2), probe(5, accumulation=2, steps=2), {"t": "end"}]
        text = "for x, y in DataLoader(data, batch_size=8): work(x, y)\n"
        result = self.drive(text, answers, OOMTUNE_CUT="loader")
        self.assertEqual(self.sizes(), [3] * 6 + [5] * 4)
        self.assertEqual([m["accumulation"] for m in result.of("measured")], [2, 2])
        self.assertEqual([m["own_accumulation"] for m in result.of("measured")], [1, 1])
        # Cut at the model's call: the loop sees the whole batch, and the model the micro-batches.
        answers = [probe(3, accumulation=2), probe(5, accumulation=2, steps=2, batch=20), {"t": "end"}]
        hook = "model.register_forward_pre_hook(lambda m, x: note('rows', len(x[0])) if len(x[0]) > 2 else None)\n"
        result = self.drive(hook + text, answers)
        self.assertEqual(self.sizes(), [6] * 3 + [20] * 2)
        # Each micro-batch forward, and all but the last forward again in the backward pass.
        rows = [line for line in self.seen if line.startswith("rows")]
        self.assertEqual(rows.count("rows 5"), 2 * (4 + 3))
        self.assertEqual([m["accumulation"] for m in result.of("measured")], [2, 4])
        self.assertEqual([m["own_accumulation"] for m in result.of("measured")], [1, 1])

    def test_batches_fetched_ahead_are_not_counted_for_the_next_size(self):
        result = self.drive(
            "it = iter(DataLoader(data, batch_size=8)); ahead = next(it)\n"
            "while True:\n"
            "    x, y = ahead\n"
            "    ahead = next(it)\n"
            "    work(x, y)\n"
        )
        # The second size gets a step more: its first still worked on a batch of the size before.
        self.assert_driven(result, [3, 3, 3, 3, 50, 50])

    def test_smaller_after_larger_lets_a_step_pass(self):
        answers = [probe(30), probe(3, steps=2), {"t": "end"}]
        self.drive("for x, y in DataLoader(data, batch_size=8): work(x, y)\n", answers)
        self.assertEqual(self.sizes(), [30] * 3 + [3] * 3)

    def test_iterable_data_set(self):
        result = self.drive(
            "class Stream(IterableDataset):\n"
            "    def __iter__(self): return iter(zip(*data.tensors))\n"
            "for x, y in DataLoader(Stream(), batch_size=8): work(x, y)\n"
        )
        self.assert_driven(result)
        self.assertIsNone(result.one("loop")["samples"])

    def test_a_loader_that_goes_its_own_way_to_an_iterator(self):
        result = self.drive(
            "os.makedirs('torchdata/stateful_dataloader')\n"
            "open('torchdata/stateful_dataloader/stateful_dataloader.py', 'w').write(%r)\n"
            "sys.path.insert(0, '')\n"
            "from torchdata.stateful_dataloader.stateful_dataloader import StatefulDataLoader\n"
            "for x, y in StatefulDataLoader(data, batch_size=8): work(x, y)\n" % STATEFUL
        )
        self.assert_driven(result)

    def test_batch_sampler(self):
        result = self.drive(
            "from torch.utils.data import BatchSampler, RandomSampler\n"
            "for x, y in DataLoader(data, batch_sampler=BatchSampler(RandomSampler(data), 8, True)): work(x, y)\n"
        )
        self.assert_driven(result)
        self.assertEqual(result.one("loop")["own_batch"], 8)

    def test_a_collate_function_that_takes_its_samples_apart(self):
        for workers in (0, 1):
            with self.subTest(workers=workers):
                result = self.drive(
                    "class Rows(Dataset):\n"
                    "    rows = [{'x': x, 'more': [y, 'name']} for x, y in zip(*data.tensors)]\n"
                    "    def __len__(self): return len(self.rows)\n"
                    "    def __getitem__(self, i): return self.rows[i]\n"
                    "def collate(rows):\n"
                    "    y = torch.stack([row['more'].pop(0) for row in rows])\n"
                    "    return torch.stack([row.pop('x') for row in rows]), y\n"
                    "for x, y in DataLoader(Rows(), batch_size=8, collate_fn=collate, num_workers=%d): work(x, y)\n"
                    % workers
                )
                self.assert_driven(result)

    def test_data_set_of_whole_batches(self):
        result = self.drive(
            "class Stream(IterableDataset):\n"
            "    def __iter__(self):\n"
            "        while True: yield data.tensors[0][:8], data.tensors[1][:8]\n"
            "for x, y in DataLoader(Stream(), batch_size=None): work(x, y)\n"
        )
        self.assert_driven(result)
        self.assertEqual(result.one("loop")["own_batch"], 8)

    def test_an_optimizer_that_is_made_after_the_first_batch(self):
        # Where the script's own batch does not fit, no optimizer is waited for.
        result = self.drive(
            "del optimizer\n"
            "with torch.no_grad(): mean = torch.stack([x for x, y in DataLoader(data, batch_size=7)][:-1]).mean()\n"
            "made = None\n"
            "for epoch in range(100):\n"
            "    for x, y in DataLoader(data, batch_size=8):\n"
            "        note('batch', len(x))\n"
            "        nn.functional.mse_loss(model(x), y).backward()\n"
            "        made = made or torch.optim.SGD(model.parameters(), lr=0.1)\n"
            "        made.step(); made.zero_grad()\n",
            OOMTUNE_AT_CALL=1,
        )
        self.assert_driven(result)
        self.assertEqual(self.seen[0], "batch 3")

    def test_the_length_of_a_data_set_of_whole_batches_is_no_number_of_samples(self):
        # As PyKEEN's, which counts its batches; and as data sets that are asked for many samples at once.
        whole = (
            "class Whole(Dataset):\n"
            "    def __len__(self): return 5\n"
            "    def __getitem__(self, i): return data[i * 8:i * 8 + 8]\n"
            "loader = DataLoader(Whole(), batch_size=None)\n"
        )
        listed = "loader = DataLoader(data, sampler=BatchSampler(RandomSampler(data), 8, False), batch_size=None)\n"
        for head, samples in ((whole, None), (listed, 40)):
            result = self.drive(
                "from torch.utils.data import BatchSampler, Dataset, RandomSampler\n" + head + "while True:\n"
                "    for x, y in loader: work(x, y)\n"
            )
            self.assert_driven(result)
            self.assertEqual((result.one("loop")["own_batch"], result.one("loop")["samples"]), (8, samples))

    def test_workers_do_not_connect(self):
        for context in ("fork", "spawn"):
            with self.subTest(context):
                result = self.drive(
                    "if __name__ == '__main__':\n"
                    "    loader = DataLoader(data, batch_size=8, num_workers=2, multiprocessing_context=%r)\n"
                    "    with torch.no_grad(): note('valid', len(list(loader)))\n"
                    "    for x, y in loader: work(x, y)\n" % context
                )
                self.assert_driven(result)
                self.assertEqual(result.connections, 1)

    def test_longest_samples_are_taken(self):
        result = self.drive(
            "class Text(Dataset):\n"
            "    def __len__(self): return 300\n"
            "    def __getitem__(self, i): return torch.ones(i % 100 + 1, 4)\n"
            "def pad(rows): return nn.utils.rnn.pad_sequence(rows, batch_first=True)\n"
            "for x in DataLoader(Text(), batch_size=8, collate_fn=pad):\n"
            "    note('length', x.shape[1])\n"
            "    work(x, torch.zeros(x.shape[0], x.shape[1], 2))\n",
            OOMTUNE_CUT="loader",
        )
        self.assert_driven(result)
        self.assertEqual({line for line in self.seen if line.startswith("length")}, {"length 100"})
        self.assertIn("variable_length", result.one("loop")["warnings"])

    def test_longest_samples_of_a_class_of_their_own_are_taken(self):
        result = self.drive(
            "class Graph:\n"
            "    def __init__(self, nodes): self._store = {'x': torch.ones(nodes, 4)}\n"
            "class Graphs(Dataset):\n"
            "    def __len__(self): return 300\n"
            "    def __getitem__(self, i): return Graph(i % 100 + 1)\n"
            "def join(graphs): return nn.utils.rnn.pad_sequence([g._store['x'] for g in graphs], batch_first=True)\n"
            "for x in DataLoader(Graphs(), batch_size=8, collate_fn=join):\n"
            "    note('length', x.shape[1])\n"
            "    work(x, torch.zeros(x.shape[0], x.shape[1], 2))\n"
        )
        self.assert_driven(result)
        self.assertEqual({line for line in self.seen if line.startswith("length")}, {"length 100"})

    def test_samples_that_only_go_with_their_like_are_not_mixed(self):
        text = (
            "class Text(Dataset):\n"
            "    def __len__(self): return 320\n"
            "    def __getitem__(self, i): return torch.ones(i // 8 % 10 + 1, 4)\n"
            "for x in DataLoader(Text(), batch_size=8, collate_fn=torch.stack):\n"
            "    note('length', x.shape[1])\n"
            "    work(x, torch.zeros(x.shape[0], x.shape[1], 2))\n"
        )
        self.assert_driven(self.drive(text))
        self.assertEqual({line for line in self.seen if line.startswith("length")}, {"length 10"})

    def test_longest_samples_are_found_at_the_end_of_a_slow_data_set(self):
        result = self.drive(
            "import time\n"
            "class Text(Dataset):\n"
            "    def __len__(self): return 20000\n"
            "    def __getitem__(self, i): time.sleep(0.001); return torch.ones(i // 200 + 1, 4)\n"
            "def pad(rows): return nn.utils.rnn.pad_sequence(rows, batch_first=True)\n"
            "for x in DataLoader(Text(), batch_size=8, collate_fn=pad):\n"
            "    note('length', x.shape[1])\n"
            "    work(x, torch.zeros(x.shape[0], x.shape[1], 2))\n"
        )
        self.assert_driven(result)
        lengths = [int(line.split()[1]) for line in self.seen if line.startswith("length")]
        self.assertGreater(min(lengths), 98)

    def test_nothing_of_the_users_is_overwritten(self):
        result = self.drive(
            "import atexit; atexit.register(note, 'atexit')\n"
            "from io import BytesIO\n"
            "torch.save(model, 'before.pt')\n"
            "for x, y in DataLoader(data, batch_size=8):\n"
            "    work(x, y)\n"
            "    torch.save(model, 'after.pt')\n"
            "    memory = BytesIO(); torch.save(model, memory); assert memory.tell()\n"
            "torch.save(model, 'last.pt')\n"
        )
        self.assert_driven(result)
        self.assertEqual(self.files, ["before.pt", "seen"])
        self.assertNotIn("atexit", self.seen)

    def test_go_hands_the_script_its_own_batches(self):
        result = self.drive(
            "for x, y in DataLoader(data, batch_size=8): work(x, y)\nnote('epilogue')\n", [probe(3), {"t": "go"}]
        )
        self.assertEqual(result.status, 0)
        self.assertEqual(self.sizes(), [3, 3, 3, 8, 8, 8, 8, 8])
        self.assertIn("epilogue", self.seen)

    def test_a_loop_that_is_too_short_is_begun_again(self):
        result = self.drive(
            "for epoch in range(1):\n"
            "    for i, (x, y) in enumerate(DataLoader(data, batch_size=8)):\n"
            "        work(x, y)\n"
            "        if i == 1: break\n"
            "    note('epilogue')\n"
        )
        self.assert_driven(result)
        self.assertNotIn("epilogue", self.seen)

    def test_a_loop_that_cannot_be_begun_again_says_so(self):
        result = self.drive(
            "from itertools import islice\n"
            "batches = islice(DataLoader(data, batch_size=8), 2)\n"
            "for x, y in batches: work(x, y)\n"
            "note('epilogue')\n",
            [probe(3)],
        )
        self.assertEqual(result.status, 0)
        self.assertEqual(result.one("goodbye")["reason"], "loop_over")
        self.assertNotIn("epilogue", self.seen)

    def test_batches_end_with_a_loader_that_is_made_for_one_pass(self):
        # Frameworks make one for each pass, which their own references keep until the next collection of garbage.
        text = (
            "import gc\n"
            "gc.disable()\n"
            "class Batches(IterableDataset):\n"
            "    def __iter__(self): return ((torch.randn(8, 4), torch.randn(8, 2)) for _ in range(5))\n"
            "def alive(): return sum(type(x) is torch.Tensor and x.shape == (9, 4) for x in gc.get_objects())\n"
            "for number in range(30):\n"
            "    loader = DataLoader(Batches(), batch_size=None)\n"
            "    loader.itself = loader\n"
            "    for (x, y), _ in zip(loader, range(3)): work(x, y)\n"
            "    del loader\n"
            "    if number % 6 == 5: gc.collect(); note('alive', alive())\n"
        )
        result = self.drive(text, [probe(9, steps=24)])
        self.assertEqual([(m["micro_batch"], m["steps"]) for m in result.of("measured")], [(9, 24)], result.errors)
        counts = [int(line.split()[1]) for line in self.seen if line.startswith("alive")]
        self.assertGreater(len(counts), 0)
        self.assertLessEqual(max(counts), 3, counts)

    def test_a_script_that_counts_its_batches_has_come_to_its_end(self):
        # As timm's train.py does: past a pass over its data it divides by nothing.
        counting = (
            "loader = DataLoader(data, batch_size=8)\n"
            "every = 1\n"
            "for number, (x, y) in enumerate(loader):\n"
            "    if number >= len(loader): every = 0\n"
            "    assert number % every == 0\n"
            "    work(x, y)\n"
        )
        self.drive("note('length', len(DataLoader(data, batch_size=8)))\n", [])
        length = int(self.seen[0].split()[1])
        result = self.drive(counting, [probe(3), probe(5, steps=length)])
        self.assertEqual([(m["micro_batch"], m["steps"]) for m in result.of("measured")], [(3, 3)])
        self.assertEqual((result.of("exception"), result.one("goodbye")["reason"]), ([], "loop_over"))
        self.assertIn("ZeroDivisionError", result.errors)
        result = self.drive(counting, [probe(3, steps=length + 4)])
        self.assertEqual([(m["steps"], m["short"]) for m in result.of("measured")], [(length, True)])
        # Before that end an error is the script's own.
        result = self.drive(counting.replace(">= len(loader)", ">= 2"), [probe(3, steps=4)])
        self.assertEqual([message["class"] for message in result.of("exception")], ["ZeroDivisionError"])

    def test_a_loop_that_goes_round_again_and_fails_for_it_has_come_to_its_end(self):
        # Layers that learn from the second step on are given to the optimizer then, which takes none twice.
        text = (
            "loader = DataLoader(data, batch_size=8)\n"
            "late = torch.nn.Linear(2, 2)\n"
            "for number, (x, y) in enumerate(loader):\n"
            "    if number == 1: optimizer.add_param_group({'params': list(late.parameters())})\n"
            "    work(x, y)\n"
            "    if number == 3: break\n"
        )
        result = self.drive(text, [probe(3), probe(5)])
        self.assertEqual([(m["micro_batch"], m["steps"]) for m in result.of("measured")], [(3, 3)], result.errors)
        self.assertEqual((result.of("exception"), result.one("goodbye")["reason"]), ([], "loop_over"))
        self.assertIn("more than one parameter group", result.errors)

    def test_a_thread_that_fetches_ahead(self):
        result = self.drive(
            "import queue, threading\n"
            "ahead = queue.Queue(2)\n"
            "def fetch():\n"
            "    for batch in DataLoader(data, batch_size=8): ahead.put(batch)\n"
            "threading.Thread(target=fetch, daemon=True).start()\n"
            "for i in range(2): work(*ahead.get())\n"
            "note('epilogue')\n"
        )
        # What was fetched before the size changed is let pass.
        self.assertEqual(set(self.sizes()[:4]), {3})
        self.assertEqual(self.sizes()[-2:], [50, 50])
        self.assertEqual([m["steps"] for m in result.of("measured")], [3, 2])
        self.assertNotIn("epilogue", self.seen)

    def test_an_optimizer_that_steps_seldom_is_waited_for_until_its_state_is_there(self):
        # A WGAN's generator, say: its first step makes the state that only its second backward pass finds in memory.
        result = self.drive(
            "class Own(torch.optim.SGD):\n"
            "    def step(self, closure=None): return super().step(closure)\n"
            "other = Own(model.parameters(), lr=0.1, momentum=0.9)\n"
            "for i, (x, y) in enumerate(DataLoader(data, batch_size=8)):\n"
            "    work(x, y)\n"
            "    if i % 5 == 0: note('other'); other.step()\n"
        )
        # It steps in batches 0, 5, 10 and 15.
        self.assertEqual([m["steps"] for m in result.of("measured")], [6, 10])
        self.assertEqual([line.split()[0] for line in self.seen[-4:]], ["batch", "batch", "batch", "other"])

    def test_a_loop_without_steps_is_given_up(self):
        result = self.drive(
            "for x, y in DataLoader(data, batch_size=8):\n    nn.functional.mse_loss(model(x), y).backward()\n",
            [probe(3)],
        )
        self.assertEqual(result.one("goodbye")["reason"], "undriveable")

    def test_two_loaders_side_by_side(self):
        result = self.drive(
            "for (x, y), (u, _) in zip(DataLoader(data, batch_size=4), DataLoader(data, batch_size=8)):\n"
            "    note('other', len(u)); work(x, y)\n"
        )
        self.assert_driven(result)
        self.assertEqual([line for line in self.seen if line.startswith("other")], ["other 6"] * 3 + ["other 100"] * 2)

    def test_nobody_listens(self):
        result = self.drive(
            "note('start')\nfor x, y in DataLoader(data, batch_size=8): work(x, y)\n", OOMTUNE_HOOK_SOCKET="/nowhere/s"
        )
        self.assertEqual(result.status, 75)
        self.assertEqual(self.seen, ["start"])

    def test_closures(self):
        result = self.drive(
            "optimizer = torch.optim.LBFGS(model.parameters(), max_iter=2)\n"
            "for x, y in DataLoader(data, batch_size=8):\n"
            "    note('batch', len(x))\n"
            "    def closure():\n"
            "        optimizer.zero_grad()\n"
            "        loss = nn.functional.mse_loss(model(x), y)\n"
            "        loss.backward()\n"
            "        return loss\n"
            "    optimizer.step(closure)\n"
        )
        self.assert_driven(result)


class Cycles(unittest.TestCase):
    def test_what_cycles_a_loader_is_looked_for_a_few_times_only(self):
        """To ask for what refers to an object goes through all objects of the process."""
        from oomtune.hook.probe import cycled_loaders
        from oomtune.hook.watch.loader import LoaderIterator

        def iterator(loader):
            return LoaderIterator(torch, loader, lambda: iter(loader), mock.Mock(), False)

        cycled = cycled_loaders.CycledLoaders(torch, None)
        loaders = [torch.utils.data.DataLoader(torch.zeros(8, 2), batch_size=2) for _ in range(3)]
        with mock.patch.object(cycled_loaders, "_cycle_over", wraps=cycled_loaders._cycle_over) as look:
            plain = [iterator(loaders[0]) for _ in range(9)]
            for each in plain * 2:
                cycled.see(each)
            self.assertEqual(look.call_count, 3)
            cycled.see(iterator(loaders[1]))
            self.assertEqual(look.call_count, 4)
            again = [iterator(loaders[2]) for _ in range(5)]
            kept = [itertools.cycle(each) for each in again]
            for each in again:
                cycled.see(each)
            self.assertEqual((look.call_count, len(kept)), (9, 5))
        self.assertEqual(sum(each is not None for each in cycled._cycles.values()), 5)


class Rungs(unittest.TestCase):
    TEXT = (
        HEAD
        + """
class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.one, self.two = nn.Linear(4, 4), nn.Linear(4, 4)
    def forward(self, x):
        note('block', torch.is_autocast_cpu_enabled())
        return torch.tanh(self.two(self.one(x)))
model = nn.Sequential(Block(), Block(), nn.Linear(4, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in DataLoader(data, batch_size=8):
    output = model(x)
    note('output', output.dtype)
    optimizer.zero_grad(); nn.functional.mse_loss(output, y).backward(); optimizer.step()
"""
    )

    def test_rungs_switch_in_one_process(self):
        answers = [
            probe(2, steps=2),
            probe(2, steps=2, checkpointing=True),
            probe(2, steps=2, amp="bf16"),
            {"t": "end"},
        ]
        with tempfile.TemporaryDirectory() as folder:
            result = run(self.TEXT, "probe", answers, cwd=folder)
            with open(os.path.join(folder, "seen")) as file:
                seen = file.read().split("\n")[:-1]
        self.assertEqual(result.status, 0, result.errors)
        can = result.one("loop")["can"]
        self.assertTrue(can["amp"] and can["checkpointing"])
        self.assertFalse(can["offload"] or can["fp16"])
        plain, again, half = ["block False"], ["block False"], ["block True"]
        # Checkpointed blocks run again in the backward pass, after the output.
        out = ["output torch.float32"]
        expected = (plain * 2 + out) * 2 + (plain * 2 + out + again * 2) * 2 + (half * 2 + out) * 2
        self.assertEqual(seen, expected)
        self.assertEqual([m["own_amp"] for m in result.of("measured")], [False, False, False])


if __name__ == "__main__":
    unittest.main()
