"""Several ranks of one job go in step."""

import os
import sys
import unittest

import torch

from support import FIXTURES, probe, run

SCRIPT = """
import atexit, os, torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset
torch.manual_seed(0)
dist.init_process_group('gloo')
atexit.register(dist.destroy_process_group)  # else torch 2.15 now and then aborts at the end of the process
model = nn.parallel.DistributedDataParallel(nn.Linear(4, 2))
data = TensorDataset(torch.randn(88, 4), torch.randn(88, 2))
sampler = DistributedSampler(data)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(2):
    sampler.set_epoch(epoch)
    for x, y in DataLoader(data, batch_size=8, sampler=sampler):
        optimizer.zero_grad()
        nn.functional.mse_loss(model(x), y).backward()
        optimizer.step()
if dist.get_rank() == 0:
    print('weights', model.module.weight.flatten().tolist())
"""
LAUNCH = [sys.executable, os.path.join(FIXTURES, "ranks.py")]


try:
    import torch.distributed.fsdp

    NO_SHARDS = "" if hasattr(torch.distributed.fsdp, "fully_shard") else "this torch (%s) has no fully_shard" % torch.__version__
except (ImportError, ValueError) as error:
    NO_SHARDS = "no FSDP with torch %s on this Python (%s)" % (torch.__version__, error)

KNOBS = {"OOMTUNE_MICRO_BATCH": 2, "OOMTUNE_ACCUMULATION": 4, "OOMTUNE_HOOK_KNOBS": "micro_batch,accumulation"}
SHARDED = {
    "FSDP": "from torch.distributed.fsdp import FullyShardedDataParallel as FSDP\n"
    "model = FSDP(nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2)), device_id=torch.device('cpu'))\n",
    "fully_shard": "from torch.distributed.fsdp import fully_shard\n"
    "from torch.distributed.device_mesh import init_device_mesh\n"
    "model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2))\n"
    "fully_shard(model, mesh=init_device_mesh('cpu', (2,)))\n",
}


def sharded(kind):
    head, loop = SCRIPT.split("model = nn.parallel.DistributedDataParallel(nn.Linear(4, 2))\n")
    loop = loop[: loop.index("if dist.get_rank()")]
    # Each rank has the whole of some rows: both tell theirs.
    own = "[p.to_local() if hasattr(p, 'to_local') else p for p in model.parameters()]"
    tell = "mine = torch.cat([p.detach().flatten() for p in %s]).tolist()\n" % own
    gather = "every = [None, None]\ndist.all_gather_object(every, mine)\nif dist.get_rank() == 0: print(*every[0], *every[1])\n"
    return head + SHARDED[kind] + loop + tell + gather


@unittest.skipIf(NO_SHARDS, NO_SHARDS)
class Shards(unittest.TestCase):
    """Weights that are sharded between ranks: the cut at the model's call stops, that at the loader trains the same."""

    def test_the_cut_stops_and_names_the_option(self):
        for kind in SHARDED:
            with self.subTest(kind):
                result = run(sharded(kind), "apply", command=LAUNCH, **KNOBS)
                self.assertNotEqual(result.status, 0)
                self.assertEqual(result.output, "")
                self.assertIn("sharded between ranks (FSDP)", result.errors)
                self.assertIn("--cut loader", result.errors)
                self.assertEqual({message["reason"] for message in result.of("bye")}, {"uncut"})

    def test_the_loaders_batches_are_cut_where_that_is_asked_for(self):
        for kind in SHARDED:
            with self.subTest(kind):
                bare = run(sharded(kind), "apply", command=LAUNCH)
                tuned = run(sharded(kind), "apply", command=LAUNCH, OOMTUNE_CUT="loader", **KNOBS)
                self.assertEqual((bare.status, tuned.status), (0, 0), tuned.errors)
                one, other = ([float(word) for word in each.output.split()] for each in (bare, tuned))
                self.assertEqual(len(one), len(other))
                self.assertGreater(len(one), 40)
                for a, b in zip(one, other):
                    self.assertAlmostEqual(a, b, delta=1e-5)
                self.assertEqual({message["cut"] for message in tuned.of("cut")}, {"loader"})


@unittest.skipUnless(torch.distributed.is_available(), "this torch has no torch.distributed")
class Ranks(unittest.TestCase):
    def test_each_rank_connects_and_is_driven(self):
        result = run(SCRIPT, "probe", [probe(3), probe(5)], command=LAUNCH)
        self.assertEqual(result.status, 0, result.errors)
        hellos = sorted((m["rank"], m["local_rank"], m["world_size"]) for m in result.of("hello"))
        self.assertEqual(hellos, [(0, 0, 2), (1, 1, 2)])
        self.assertEqual(sorted(m["micro_batch"] for m in result.of("measured")), [3, 3, 5, 5])
        self.assertEqual(result.output, "")

    def test_accumulated_micro_batches_end_at_the_same_weights(self):
        def weights(**env):
            result = run(SCRIPT, "apply", command=LAUNCH, **env)
            self.assertEqual(result.status, 0, result.errors)
            return [float(word.strip("[],")) for word in result.output.split()[1:]]

        bare = weights()
        tuned = weights(OOMTUNE_MICRO_BATCH=2, OOMTUNE_ACCUMULATION=4, OOMTUNE_HOOK_KNOBS="micro_batch,accumulation")
        for one, other in zip(bare, tuned):
            self.assertAlmostEqual(one, other, delta=1e-5 * max(abs(value) for value in bare))

    def test_ranks_exchange_their_gradients_once_a_step(self):
        count = (
            "calls = []\n"
            "def exchange(state, bucket):\n"
            "    calls.append(1)\n"
            "    return dist.all_reduce(bucket.buffer(), async_op=True).get_future().then(lambda f: f.value()[0] / 2)\n"
            "model.register_comm_hook(None, exchange)\n"
            "data ="
        )
        text = SCRIPT.replace("data =", count, 1) + "    print('exchanges', len(calls))\n"
        knobs = {"OOMTUNE_MICRO_BATCH": 2, "OOMTUNE_ACCUMULATION": 4, "OOMTUNE_HOOK_KNOBS": "micro_batch,accumulation"}
        result = run(text, "apply", command=LAUNCH, **knobs)
        self.assertEqual(result.status, 0, result.errors)
        # Two epochs of six batches each, in one bucket.
        self.assertEqual(result.output.split()[-2:], ["exchanges", "12"])


if __name__ == "__main__":
    unittest.main()
