"""Lives that differ by the arguments of the command: forks at the line that reads them, as good as starts with these."""

import argparse
import copy
import json
import operator
import os
import pickle
import sys
import unittest

from support import PATH, run

sys.path[:0] = PATH.split(":")
from oomtune.hook.fork.arguments import Arguments

GO = {"t": "go"}
PROGRAM = ["prog", "--batch", "8"]

READS = {
    "a slice": lambda words: words[1:],
    "the last": lambda words: words[-1],
    "in turn": lambda words: [*words],
    "a list": list,
    "a tuple": tuple,
    "a sorted list": sorted,
    "backwards": lambda words: list(reversed(words)),
    "one text": " ".join,
    "on the left": lambda words: operator.add(words, ["x"]),
    "on the right": lambda words: operator.add(["python"], words),
    "several times": lambda words: 2 * words + words * 2,
    "a member": lambda words: "8" in words,
    "equality": lambda words: words == ["x"],
    "an order": lambda words: words < ["x"],
    "a place": lambda words: words.index("--batch"),
    "how often": lambda words: words.count("8"),
    "as text": str,
    "formatted": lambda words: "%s" % (words,),
    "a copy": copy.copy,
    "a deep copy": copy.deepcopy,
    "JSON": json.dumps,
    "bytes": pickle.dumps,
    "unpacked": lambda words: os.path.join(*words),
    "taken out": lambda words: words.pop(),
    "put behind": lambda words: words.append("x"),
    "put between": lambda words: words.insert(1, "x"),
    "made longer": lambda words: words.__iadd__(["x"]),
    "replaced": lambda words: words.__setitem__(1, "x"),
    "removed": lambda words: words.__delitem__(1),
}
HARMLESS = {
    "the program": lambda words: words[0],
    "another name of it": lambda words: words.__setitem__(0, "other"),
    "how many": len,
    "whether there are any": bool,
    "a parser": lambda words: argparse.ArgumentParser(),
}


class Reading(unittest.TestCase):
    def setUp(self):
        self.addCleanup(setattr, sys, "argv", sys.argv)
        self.reads = []

    def watched(self):
        def read():
            self.reads.append(True)
            words.words = ["--batch", "16"]

        sys.argv = list(PROGRAM)
        words = Arguments.watch(read)
        return words

    def test_is_told_of_before(self):
        for name, use in READS.items():
            with self.subTest(name):
                self.reads.clear()
                words = self.watched()
                use(words)
                self.assertEqual(len(self.reads), 1)

    def test_is_not_what_all_have_in_common(self):
        for name, use in HARMLESS.items():
            with self.subTest(name):
                use(self.watched())
                self.assertEqual(self.reads, [])

    def test_gives_those_that_were_set_meanwhile(self):
        self.assertEqual(self.watched()[1:], ["--batch", "16"])
        self.assertEqual(operator.add(["python"], self.watched()), ["python", "prog", "--batch", "16"])
        self.assertEqual([*self.watched()], ["prog", "--batch", "16"])

    def test_is_a_plain_list_for_another_process(self):
        found = pickle.loads(pickle.dumps(self.watched()))
        self.assertEqual((type(found), found), (list, ["prog", "--batch", "16"]))

    def test_is_told_of_no_more_at_rest(self):
        words = self.watched()
        words.rest()
        self.assertEqual(words[1:], PROGRAM[1:])
        self.assertEqual(self.reads, [])


SCRIPT = """
import hashlib, os, sys
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
torch.manual_seed(0)
%s
words = sys.argv[1:]
size = int(words[1])
print(words, getattr(sys, "orig_argv", words)[-2:], os.environ.get("OOMTUNE_MICRO_BATCH"))
model = nn.Sequential(nn.Linear(40, 300), nn.Dropout(0.5), nn.Tanh(), nn.Linear(300, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
data = TensorDataset(torch.randn(64, 40), torch.randn(64, 2))
for x, y in DataLoader(data, batch_size=size, shuffle=True):
    optimizer.zero_grad()
    nn.functional.mse_loss(model(x), y).backward()
    optimizer.step()
print(hashlib.sha1(b"".join(p.detach().numpy().tobytes() for p in model.parameters())).hexdigest())
"""


def other(size):
    return {"t": "life", "env": {"OOMTUNE_MICRO_BATCH": str(size)}, "arguments": ["--batch", str(size)]}


def measured(size, orders=(), text=SCRIPT % "", fork="1"):
    return run(
        text,
        "measure",
        [GO],
        arguments=["--batch", str(size)],
        command=[sys.executable],
        orders=orders,
        OOMTUNE_FORK=fork,
        OOMTUNE_MICRO_BATCH=str(size),
    )


class LivesByArguments(unittest.TestCase):
    def test_each_trains_to_the_weights_of_a_start_with_its_arguments(self):
        done = measured(8, [other(16)])
        self.assertEqual(done.status, 0, done.errors)
        self.assertEqual(done.of("plain"), [])
        self.assertEqual(done.one("fork_server")["arguments"], ["--batch", "8"])
        self.assertEqual([message["own_batch"] for message in done.of("loop")], [8, 16])
        starts = [measured(size, fork="0").output for size in (8, 16)]
        self.assertEqual(done.output, "".join(starts))

    def test_where_the_device_is_used_before_they_are_read_that_is_the_fork(self):
        text = SCRIPT % "net = nn.Linear(1, 1)"
        done = measured(8, [other(16)], text=text)
        self.assertEqual(done.status, 0, done.errors)
        self.assertEqual(done.of("plain"), [])
        self.assertEqual(done.one("fork_server")["arguments"], ["--batch", "8"])
        starts = [measured(size, text=text, fork="0").output for size in (8, 16)]
        self.assertEqual(done.output, "".join(starts))

    def test_there_are_none_where_the_arguments_were_read_before_torch_was_imported(self):
        done = measured(8, text="import sys\nsys.argv[1:]\n" + SCRIPT % "")
        self.assertEqual(done.status, 0, done.errors)
        self.assertEqual(done.of("fork_server"), [])
        self.assertIn("read before torch was imported", done.one("plain")["message"])


if __name__ == "__main__":
    unittest.main()
