"""auto_micro_batch(): the weights are those of the whole batch, and memory that runs out is met by smaller micro-batches."""

import os
import subprocess
import sys
import tempfile
import unittest

import torch
from support import RANK_ENDS, ROOT, environment, start, start_ranks
from torch import nn

sys.path.insert(0, os.path.join(ROOT, "python"))

import oomtune
from oomtune.micro_batches import micro_batch_of


def model():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 3)).double()


def train(net, seen=None, steps=4):
    """Trains; the sizes that the first layer's forward pass saw go into `seen`."""
    torch.manual_seed(1)
    if seen is not None:
        net[1].register_forward_hook(lambda _, inputs, __: seen.append(len(inputs[0])))
    optimizer = torch.optim.Adam(net.parameters(), lr=0.05)
    for _ in range(steps):
        x, y = torch.randn(12, 6).double(), torch.randint(3, (12,))
        optimizer.zero_grad()
        nn.functional.cross_entropy(net(x), y).backward()
        optimizer.step()
    return [weight.detach().clone() for weight in net.parameters()]


#: What needs to know of all ranks, before and after a script has made their group.
RANKS = """
import os, torch, oomtune
import torch.distributed as dist
net = torch.nn.Linear(4, 1)
def told(call):
    try: return call()
    except oomtune.OomtuneError as error: return error.code
found = [oomtune.config(4, 2).effective_batch]
oomtune.auto_micro_batch(net)
dist.init_process_group('gloo', rank=int(os.environ['SLURM_PROCID']), world_size=int(os.environ['SLURM_NTASKS']))
found += [told(lambda: net(torch.randn(8, 4))), told(lambda: oomtune.auto_micro_batch(net))]
found += [told(oomtune.keep_effective_batch(8)(lambda micro_batch, accumulation: 'trained')), oomtune.config(4, 2).effective_batch]
dist.barrier()  # the other is connected, too, before this one ends
print(*found, flush=True)
"""

#: Trains under a limit on the process's memory, as a device's: prints the sizes that ran, and a digest of the weights.
LIMITED = """
import ctypes, resource, sys, torch, oomtune
ctypes.CDLL(None).mallopt(-3, 1 << 20)  # M_MMAP_THRESHOLD: what is freed is given back, as a device's is, and leaves no holes in the heap
from torch import nn
torch.manual_seed(0)
torch.set_num_threads(1)
hidden = 2 ** int(sys.argv[3])
net = nn.Sequential(nn.Linear(4, hidden), nn.Tanh(), nn.Tanh(), nn.Linear(hidden, 1))
seen = []
net[1].register_forward_hook(lambda _, inputs, __: seen.append(len(inputs[0])))
x = torch.randn(1024, 4)
def step(rows, optimizer):
    optimizer.zero_grad(); net(x[:rows]).square().mean().backward(); optimizer.step()
optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
# OpenBLAS waits for ever where it cannot have the buffer that it takes at its first use.
nn.Linear(4, hidden)(x[: 2 ** 24 // hidden]).square().mean().backward()
# The limit is for training: it leaves room for what is imported before.
if sys.argv[2] == "cut":
    assert oomtune.auto_micro_batch(net) is net
held = int(next(line for line in open("/proc/self/status") if line.startswith("VmSize")).split()[1]) * 1024
if sys.argv[1] != "none":
    resource.setrlimit(resource.RLIMIT_AS, (held + int(sys.argv[1]) * 2 ** 20, -1))
try:
    for _ in range(2): step(1024, optimizer)
except (RuntimeError, MemoryError) as error:
    print(type(error).__name__, getattr(error, "code", "memory" if "memory" in str(error) else error))
print(sorted(set(seen), reverse=True))
resource.setrlimit(resource.RLIMIT_AS, (-1, -1))
print(" ".join("%.6e" % float(p.double().norm()) for p in net.parameters()))
"""


class Cut(unittest.TestCase):
    def test_the_weights_are_those_of_the_whole_batch(self):
        whole = train(model())
        seen = []
        net = model()
        self.assertIs(oomtune.auto_micro_batch(net, 5), net)
        for one, other in zip(whole, train(net, seen)):
            self.assertTrue(torch.allclose(one, other, rtol=1e-9, atol=1e-12))
        # The model is first looked at with three samples.
        self.assertEqual(max(seen), 5)
        self.assertEqual(micro_batch_of(net), 5)

    def test_a_batch_that_fits_is_left_whole(self):
        seen = []
        for micro in (12, 100, None):
            net = oomtune.auto_micro_batch(model(), micro)
            for one, other in zip(train(model()), train(net, seen)):
                self.assertTrue(torch.equal(one, other))
            self.assertEqual(set(seen), {12})
            self.assertIsNone(micro_batch_of(net))

    def test_two_models_have_sizes_of_their_own(self):
        sizes = {}
        for micro in (3, 4):
            sizes[micro] = []
        nets = {micro: oomtune.auto_micro_batch(model(), micro) for micro in (3, 4)}
        for micro, net in nets.items():
            train(net, sizes[micro])
        self.assertEqual({micro: max(seen) for micro, seen in sizes.items()}, {3: 3, 4: 4})

    def test_a_second_call_changes_the_size(self):
        net = oomtune.auto_micro_batch(model(), 6)
        seen = []
        train(net, steps=1)
        self.assertIs(oomtune.auto_micro_batch(net, 4), net)
        train(net, seen, steps=1)
        self.assertEqual(max(seen), 4)

    def test_evaluation_is_not_cut(self):
        net = oomtune.auto_micro_batch(model(), 4)
        seen = []
        train(net, steps=1)
        net[1].register_forward_hook(lambda _, inputs, __: seen.append(len(inputs[0])))
        with torch.no_grad():
            net(torch.randn(12, 6).double())
        net.eval()
        net(torch.randn(12, 6).double())
        self.assertEqual(seen, [12, 12])

    def test_training_in_evaluation_mode_is_cut(self):
        net = oomtune.auto_micro_batch(model().eval(), 4)
        seen = []
        net[1].register_forward_hook(lambda _, inputs, __: seen.append(len(inputs[0])))
        net(torch.randn(12, 6).double()).sum().backward()
        self.assertEqual(max(seen), 4)

    def test_a_model_that_cannot_be_cut_says_so(self):
        class Ranks(nn.Module):
            def __init__(self):
                super().__init__()
                self.layer = nn.Linear(6, 3)

            def forward(self, x):
                return self.layer(x - x.mean(0))

        net = oomtune.auto_micro_batch(Ranks(), 4)
        with self.assertRaisesRegex(oomtune.OomtuneError, "cannot be cut.*OOMTUNE_NO_KNOB"):
            net(torch.randn(12, 6)).sum().backward()

    def test_batch_norm_is_warned_of(self):
        net = nn.Sequential(nn.Linear(6, 4), nn.Dropout(0.5), nn.Linear(4, 1))
        oomtune.auto_micro_batch(net, 4)
        with self.assertWarnsRegex(UserWarning, "random_draws"):
            net(torch.randn(12, 6)).sum().backward()

    def test_wrong_sizes_are_refused(self):
        with self.assertRaises(ValueError):
            oomtune.auto_micro_batch(model(), 0)


class Limited(unittest.TestCase):
    def limited(self, megabytes, how="cut", hidden=14):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "limited.py")
            with open(path, "w") as file:
                file.write(LIMITED)
            done = start(path, [str(megabytes), how, str(hidden)], env=environment(), timeout=200)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout.splitlines()

    def test_out_of_memory_is_met_by_a_smaller_micro_batch(self):
        whole, weights = self.limited("none", "whole")
        self.assertEqual(whole, "[1024]")
        self.assertEqual(self.limited(175, "whole")[0], "RuntimeError memory")  # it does not fit by itself
        sizes, cut = self.limited(175)
        # What failed, what ran, and the few samples of the look at the model.
        ran = [int(size) for size in sizes.strip("[]").split(", ") if 3 < int(size) < 1024]
        self.assertTrue(ran and max(ran) >= 128, sizes)
        for one, other in zip(weights.split(), cut.split()):
            self.assertAlmostEqual(float(one), float(other), delta=1e-5 * abs(float(one)))

    def test_one_sample_that_does_not_fit_is_told(self):
        # What is refused is large: a thread or a library that cannot have a few KiB would end the process.
        self.assertEqual(self.limited(24, hidden=20)[0], "OomtuneError OOMTUNE_EXHAUSTED")


class Ranks(unittest.TestCase):
    def test_several_ranks_need_a_size(self):
        text = "import oomtune\ntry: oomtune.auto_micro_batch(None)\nexcept oomtune.OomtuneError as e: print(e.code)"
        command = [sys.executable, "-c", text]
        done = subprocess.run(command, env=environment(WORLD_SIZE=2), stdout=subprocess.PIPE, universal_newlines=True)
        self.assertEqual(done.stdout, "OOMTUNE_USAGE\n")

    @unittest.skipUnless(torch.distributed.is_available(), "this torch has no torch.distributed")
    def test_ranks_that_tell_torch_themselves_which_they_are(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "ranks.py")
            with open(path, "w") as file:
                file.write(RANKS + RANK_ENDS)
            done = start_ranks(2, path, [], folder, environment(BY_SLURM=1))
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(done.stdout.split(), ["8", *["OOMTUNE_USAGE"] * 3, "16"] * 2)

    def test_the_hook_decides_where_it_cuts(self):
        text = (
            "import torch, oomtune\nfrom torch import nn\nfrom torch.utils.data import DataLoader, TensorDataset\n"
            "net = nn.Linear(4, 1)\nassert oomtune.auto_micro_batch(net, 1) is net\n"
            "seen = []\nnet.register_forward_hook(lambda _, i, __: seen.append(len(i[0])))\n"
            "optimizer = torch.optim.SGD(net.parameters(), lr=0.1)\n"
            "for x, in DataLoader(TensorDataset(torch.randn(12, 4)), batch_size=12):\n"
            "    net(x).mean().backward(); optimizer.step()\n"
            "print(max(seen))\n"
        )
        with tempfile.TemporaryDirectory() as folder:
            from support import run

            result = run(
                text,
                "apply",
                cwd=folder,
                OOMTUNE_MICRO_BATCH=4,
                OOMTUNE_ACCUMULATION=3,
                OOMTUNE_HOOK_KNOBS="micro_batch,accumulation",
            )
        self.assertEqual(result.output, "4\n", result.errors)


if __name__ == "__main__":
    unittest.main()
