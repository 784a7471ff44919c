"""A probe goes on until the caching allocator has come to rest."""

import gzip
import json
import os
import sys
import time
import unittest
from types import SimpleNamespace
from unittest import mock

import torch
from support import PATH, probe, run

sys.path[:0] = PATH.split(":")

from oomtune.hook.probe import needed_memory
from oomtune.hook.probe.batch_factory import find_factory
from oomtune.hook.probe.measurement import AllocatorHistory, Measurement
from oomtune.hook.probe.needed_memory import NeededMemory, need_of
from oomtune.hook.watch.cudnn import chooses, libraries

LOOP = """
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
model = nn.Linear(4, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in DataLoader(TensorDataset(torch.randn(400, 4), torch.randn(400, 2)), batch_size=8):
    print('batch', len(x), flush=True)
    optimizer.zero_grad()
    nn.functional.mse_loss(model(x), y).backward()
    optimizer.step()
"""


class Allocator:
    """Stands in for a GPU's meter: what the allocator held, had asked for and had to give back, step by step."""

    def __init__(self, *steps):
        self._steps = list(steps)

    def reserved(self):
        return self._steps[0][:2]

    def retries(self):
        return self._steps.pop(0)[2]


def rest(*steps):
    result = AllocatorHistory(Allocator(*steps))
    for _ in steps:
        result.step_done()
    return result


class Text(torch.utils.data.Dataset):
    def __len__(self):
        return 320

    def __getitem__(self, index):
        return torch.ones(index // 8 % 10 + 1)


class Pictures(torch.utils.data.Dataset):
    """All of one size, and slow to read."""

    def __init__(self):
        self.read = []

    def __len__(self):
        return 1000

    def __getitem__(self, index):
        time.sleep(0.02)
        self.read.append(index)
        return torch.ones(3)


class Lengths(unittest.TestCase):
    def test_samples_that_are_alike_and_slow_to_read_are_repeated_early(self):
        loader = torch.utils.data.DataLoader(Pictures(), batch_size=8)
        source = find_factory(torch, loader, lambda: iter(loader), False)
        self.assertEqual(source.make(200).shape, (200, 3))
        self.assertEqual(len(loader.dataset.read), 24)

    def test_each_drawn_batch_has_another_length_where_lengths_cannot_be_mixed(self):
        loader = torch.utils.data.DataLoader(Text(), batch_size=8, collate_fn=torch.stack)
        source = find_factory(torch, loader, lambda: iter(loader), False)
        drawn = [source.draw(5, turn).shape for turn in range(12)]
        self.assertEqual({rows for rows, _ in drawn}, {5})
        self.assertGreater(len({length for _, length in drawn}), 3)


def took(address, size):
    return {"action": "alloc", "addr": address, "size": size}


def gave(address, size):
    return {"action": "free_requested", "addr": address, "size": size}


def more(size):
    return {"action": "segment_map", "addr": 9, "size": size}


def less(size):
    return {"action": "segment_unmap", "addr": 9, "size": size}


class Needed(unittest.TestCase):
    """Of a history as torch's allocator keeps it."""

    MIB = 1 << 20

    def peak(self, *events):
        return need_of(events, 100 * self.MIB, 0)[0] // self.MIB

    def test_what_is_given_back_at_once_is_not_needed(self):
        m = self.MIB
        mapped = {"action": "segment_map", "addr": 9, "size": 900 * m}
        convolution = [took(1, 30 * m), mapped, took(2, 700 * m), gave(2, 700 * m), took(3, 20 * m)]
        self.assertEqual(self.peak(*convolution), 150)
        self.assertEqual(self.peak(*convolution, gave(1, 30 * m), took(4, 40 * m)), 160)

    def test_what_is_there_while_something_else_is_taken_is_needed(self):
        m = self.MIB
        self.assertEqual(self.peak(took(1, 300 * m), took(2, 20 * m), gave(1, 300 * m), gave(2, 20 * m)), 420)
        self.assertEqual(self.peak(took(1, 300 * m), gave(7, 50 * m), gave(1, 300 * m)), 400)

    def test_what_is_small_is(self):
        self.assertEqual(need_of([took(1, 900), gave(1, 900)], 0, 0)[0], 900)
        self.assertEqual(self.peak(), 100)

    def test_what_it_still_holds_but_has_not_allocated_when_it_has_given_back_its_cache_lies_in_pieces(self):
        m = self.MIB
        short = [gave(1, 60 * m), less(20 * m), less(10 * m), more(40 * m), took(2, 70 * m)]
        # 130 MiB held and 40 allocated, then 160 and 100.
        self.assertEqual(need_of(short, 100 * m, 160 * m), (110 * m, 90 * m))
        again = [*short, less(5 * m), more(30 * m)]
        self.assertEqual(need_of(again, 100 * m, 160 * m)[1], 90 * m)
        self.assertIsNone(need_of([took(1, m), more(5 * m), gave(1, m)], 100 * m, 160 * m)[1])

    def test_whole_segments_that_are_given_back_tell_nothing_of_pieces(self):
        m = self.MIB
        whole = [{"action": "segment_free", "addr": 1, "size": 20 * m}, took(1, 5 * m)]
        self.assertIsNone(need_of(whole, 100 * m, 160 * m)[1])

    def test_recorded_histories_tell_which_sizes_last(self):
        """Nine steps of a fresh process each on an H100, of programs of others; which lasted, 70 steps have shown (bench/results/checks.md)."""
        folder = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "fixtures", "allocator")
        for name, needed, pieces, lasts in (
            ("acgan-1135", 2252, 75, True),
            ("deep-residual-network-2047", 2298, 39, True),
            ("infogan-1132", 2253, 127, False),
            # It leaves 15 MiB more than nine steps show, and ran out of memory before its twentieth.
            ("sgan-1134", 2252, 108, True),
        ):
            with gzip.open(os.path.join(folder, name + ".json.gz")) as file:
                recorded = json.load(file)
            events = ({"action": action, "addr": at, "size": size} for action, at, size in recorded["events"])
            found, left = need_of(events, recorded["allocated"], recorded["reserved"])
            self.assertEqual((found // self.MIB, left // self.MIB), (needed, pieces), name)
            self.assertEqual(found + left <= recorded["room"], lasts, name)

    def test_it_is_read_from_torchs_own_history(self):
        memory = Recorded([took(1, 64), took(2, 5 << 20), gave(2, 5 << 20)])
        needed = NeededMemory(memory.torch(), memory, memory)
        self.assertEqual(needed.end(), (None, None))
        with mock.patch.object(needed_memory, "may_do_with_less", lambda torch, modules: True):
            needed.begin()
            needed.begin()
            self.assertEqual(needed.end(), (7 * self.MIB + 64, None))
            self.assertEqual(memory.asked, ["all", None])

    def test_where_no_library_does_with_less_only_what_lies_in_pieces_is_told(self):
        m = self.MIB
        memory = Recorded([took(1, 64), took(2, 5 * m), gave(2, 5 * m), less(2 * m), took(3, m)])
        needed = NeededMemory(memory.torch(), memory, memory)
        with mock.patch.object(needed_memory, "may_do_with_less", lambda torch, modules: False):
            needed.begin()
        # Of 20 MiB that it held it gave back two; 7 and 64 bytes were allocated.
        self.assertEqual(needed.end(), (None, 11 * m - 64))

    def test_what_a_probe_that_goes_on_needs_more_is_needed(self):
        m = self.MIB
        memory = Recorded([took(1, 5 * m)], then=[took(1, 3 * m), less(2 * m), took(2, m)])
        needed = NeededMemory(memory.torch(), memory, memory)
        with mock.patch.object(needed_memory, "may_do_with_less", lambda torch, modules: True):
            needed.begin()
            self.assertEqual(needed.end(), (12 * m, None))
            needed.begin()
            self.assertEqual(needed.end(), (12 * m, 8 * m))
        self.assertEqual(memory.asked, ["all", None, "all", None])

    def test_the_scripts_own_history_is_left_alone_and_recurrent_layers_need_what_they_take(self):
        for recording, recurrent in ((True, False), (False, True)):
            memory = Recorded([], recording, recurrent)
            needed = NeededMemory(memory.torch(), memory, memory)
            with mock.patch.object(needed_memory, "may_do_with_less", lambda torch, modules: True):
                needed.begin()
            self.assertEqual(needed.end(), (None, None))
            self.assertEqual(memory.asked, [])


class Recorded:
    """Stands in for torch on a GPU, its modules and the meter: an allocator that keeps a history, and what was asked of it."""

    def __init__(self, events, recording=False, recurrent=False, then=()):
        self._histories = [events, then]
        self._recording = recording
        self._recurrent = recurrent
        self.asked = []

    def torch(self):
        memory = SimpleNamespace(
            _record_memory_history=self._record, _snapshot=lambda: {"device_traces": [self._histories.pop(0)]}
        )
        cuda = SimpleNamespace(memory=memory, current_device=lambda: 0)
        return SimpleNamespace(
            cuda=cuda, nn=torch.nn, _C=SimpleNamespace(_cuda_isHistoryEnabled=lambda: self._recording)
        )

    def _record(self, enabled, **options):
        self.asked.append(enabled)

    def any_of(self, *kinds):
        return self._recurrent

    def live(self):
        return 7 << 20

    def reserved(self):
        return 20 << 20, 900 << 20


class Refusing:
    """Stands in for a GPU's meter: how many allocations torch's allocator has failed at."""

    def __init__(self):
        self.refused = 3

    def failures(self):
        return self.refused

    def retries(self):
        return 0

    def synchronize(self):
        pass

    def may_do_with_less(self):
        return True

    def reserved(self):
        return None

    def reset(self):
        pass

    def measure(self):
        pass

    def peaks(self):
        return (None, None, None)

    def figures(self):
        return {}


class Workspaces(unittest.TestCase):
    def test_were_refused_where_an_allocation_failed_and_the_step_went_on(self):
        for failing, told in ((0, False), (2, True)):
            memory = Refusing()
            measurement = Measurement(memory, memory, 2)
            measurement.start_clock()
            memory.refused += failing
            measurement.step_done()
            self.assertIs(measurement.costs()["workspaces_refused"], told)

    def test_are_chosen_for_convolutions_and_recurrent_layers_alone(self):
        attention = "graph heuristic engines_precompiled engines_runtime_compiled"
        # What processes had loaded after three steps on an H100, torch 2.11; those by functions, of ViT and of cuDNN 8 are made up.
        for name, loaded, layers, chosen in (
            ("perceptron", "", False, False),
            ("GPT-2, single precision: the version was asked for", "graph", False, False),
            ("ViT's first layer, the version asked for", "graph", True, False),
            ("BERT, bf16: attention of cuDNN", attention, False, False),
            ("ResNet-50, bf16", attention, True, True),
            ("ResNet-50 by functions, single precision", attention + " ops", False, True),
            ("LSTM", "adv graph ops", True, True),
            ("convolutions of cuDNN 8", "cnn_infer cnn_train ops_infer", False, True),
        ):
            lines = ["7f00-7f01 r-xp 00000000 fe:00 1 /lib/libcudnn.so.9\n"]
            lines += ["7f00-7f01 r-xp 00000000 fe:00 1 /lib/libcudnn_%s.so.9\n" % part for part in loaded.split()]
            with self.subTest(name):
                self.assertIs(chooses(libraries(lines), lambda layers=layers: layers), chosen)

    def test_are_of_no_choice_on_the_host(self):
        result = run(LOOP, "probe", [probe(8), {"t": "end"}])
        self.assertEqual([message["flexible_workspaces"] for message in result.of("measured")], [False])


class Benchmarks(unittest.TestCase):
    """Of cuDNN: the first step of each new shape tries all of its algorithms where the script asks for that."""

    def test_small_sizes_do_without(self):
        loop = LOOP.replace("import nn\n", "import nn\ntorch.backends.cudnn.benchmark = True\n", 1)
        loop = loop.replace("'batch', len(x)", "len(x), torch.backends.cudnn.benchmark")
        result = run(loop, "probe", [probe(4, benchmark=False), probe(6, benchmark=False), probe(8), {"t": "go"}])
        self.assertEqual(result.status, 0, result.errors)
        told = [line.split() for line in result.output.splitlines()]
        self.assertEqual(told[:9], [["4", "False"]] * 3 + [["6", "False"]] * 3 + [["8", "True"]] * 3)

    def test_afterwards_it_is_as_the_script_has_it(self):
        for own in (True, False):
            loop = LOOP.replace("import nn\n", "import nn\ntorch.backends.cudnn.benchmark = %s\n" % own, 1)
            loop = loop.replace("'batch', len(x)", "torch.backends.cudnn.benchmark")
            result = run(loop, "probe", [probe(4, benchmark=False), {"t": "go"}])
            self.assertEqual(result.output.split()[:3], ["False"] * 3, result.errors)
            self.assertEqual(set(result.output.split()[3:]), {str(own)})


class Resting(unittest.TestCase):
    def test_is_quiet_for_the_steps_that_asked_for_nothing(self):
        self.assertEqual(rest((10, 10, 0)).quiet_steps(), 0)
        self.assertEqual(rest((10, 10, 0), (12, 12, 0), (12, 12, 0), (12, 12, 0)).quiet_steps(), 2)

    def test_is_not_quiet_where_the_cache_was_given_back(self):
        self.assertEqual(rest((12, 12, 0), (12, 14, 1), (12, 16, 2)).quiet_steps(), 0)

    def test_creeps_by_what_the_later_steps_added(self):
        held = [10, 20, 30, 31, 32, 33, 34]
        self.assertEqual(rest(*((bytes, bytes, 0) for bytes in held)).creep(), 1)
        self.assertIsNone(rest((10, 10, 0), (12, 12, 0)).creep())

    def test_where_there_is_no_such_allocator_nothing_is_told(self):
        class Host:
            def reserved(self):
                return None

        result = AllocatorHistory(Host())
        result.step_done()
        self.assertEqual((result.quiet_steps(), result.creep()), (None, None))


class GoingOn(unittest.TestCase):
    def test_a_probe_goes_on_where_it_was(self):
        result = run(LOOP, "probe", [probe(4), {"t": "more", "steps": 2}, probe(6)])
        self.assertEqual((result.status, result.output), (0, "batch 4\n" * 5 + "batch 6\n" * 3), result.errors)
        told = [(m["micro_batch"], m["steps"], m["quiet_steps"]) for m in result.of("measured")]
        self.assertEqual(told, [(4, 3, None), (4, 5, None), (6, 3, None)])

    def test_a_measured_script_goes_on_with_its_own_batches(self):
        result = run(LOOP, "measure", [{"t": "more", "steps": 2}], OOMTUNE_MICRO_BATCH=8)
        self.assertEqual((result.status, result.output), (0, "batch 8\n" * 5), result.errors)
        self.assertEqual([m["steps"] for m in result.of("measured")], [3, 5])


#: Texts of 1 to 40 tokens; a caching allocator, which the CPU does not have, is pretended.
TEXTS = """
import torch
from torch import nn
from torch.utils.data import DataLoader
import oomtune.hook.watch.memory
oomtune.hook.watch.memory.CpuMemory.reserved = lambda self: (1, 1)
def pad(texts):
    return nn.utils.rnn.pad_sequence(texts, batch_first=True)
model = nn.Embedding(9, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
texts = [torch.ones(1 + n % 40, dtype=torch.long) for n in range(400)]
for batch in DataLoader(texts, batch_size=8, shuffle=True, collate_fn=pad):
    print(*batch.shape, flush=True)
    optimizer.zero_grad()
    model(batch).sum().backward()
    optimizer.step()
"""


class Varying(unittest.TestCase):
    def shapes(self, *answers):
        result = run(TEXTS, "probe", answers)
        self.assertEqual(result.status, 0, result.errors)
        return [tuple(map(int, line.split())) for line in result.output.splitlines()], result.of("measured")

    def test_a_verification_has_other_samples_than_the_longest_in_every_other_step(self):
        shapes, measured = self.shapes(probe(4, vary=True))
        self.assertEqual(shapes[::2], [(4, 40)] * 3)
        self.assertEqual([count for count, _ in shapes], [4] * 6)
        self.assertGreater(len({length for _, length in shapes[1::2]} - {40}), 1)
        self.assertEqual((measured[0]["steps"], len(measured[0]["step_s"]), measured[0]["quiet_steps"]), (6, 3, None))

    def test_other_probes_have_the_longest_alone(self):
        shapes, measured = self.shapes(probe(4))
        self.assertEqual(shapes, [(4, 40)] * 3)
        self.assertEqual(measured[0]["steps"], 3)

    def test_samples_of_one_length_need_no_change(self):
        result = run(TEXTS.replace("1 + n % 40", "40"), "probe", [probe(4, vary=True)])
        self.assertEqual((result.status, result.output), (0, "4 40\n" * 3), result.errors)

    def test_a_step_that_ends_a_pass_has_what_is_left_of_the_data(self):
        texts = TEXTS.replace("1 + n % 40", "40").replace("range(400)", "range(36)")
        result = run(texts, "probe", [probe(14, vary=True), {"t": "more", "steps": 4}])
        self.assertEqual((result.status, result.output), (0, ("14 40\n" * 2 + "8 40\n") * 2 + "14 40\n"), result.errors)
        first, all_of_them = result.of("measured")
        self.assertEqual((first["steps"], len(first["step_s"])), (3, 2))
        self.assertEqual((all_of_them["steps"], len(all_of_them["step_s"])), (7, 5))
        # Not where no more than their speed is asked for, and not where the script's own batches leave nothing or leave it out.
        for text, asked in (
            (texts, probe(14)),
            (texts.replace("range(36)", "range(40)"), probe(14, vary=True)),
            (texts.replace("batch_size=8", "batch_size=8, drop_last=True"), probe(14, vary=True)),
        ):
            self.assertEqual(run(text, "probe", [asked]).output, "14 40\n" * 3)

    def test_where_the_cache_is_given_back_one_comes_soon(self):
        texts = TEXTS.replace("1 + n % 40", "40").replace("range(400)", "range(100)")
        short = "import itertools\ncounted = itertools.count()\noomtune.hook.watch.memory.CpuMemory.retries = lambda self: next(counted)\n"
        for text, early in ((texts, 12), (texts.replace("def pad", short + "def pad"), 4)):
            result = run(text, "probe", [probe(12, vary=True), {"t": "more", "steps": 4}])
            rows = [12] * 4 + [early] + [12] * 2
            self.assertEqual((result.status, result.output), (0, "".join("%d 40\n" % n for n in rows)), result.errors)


if __name__ == "__main__":
    unittest.main()
