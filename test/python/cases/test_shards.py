"""The cut under FSDP: ranks that hold a part of the model each."""

import unittest

import torch
from support import run
from test_ranks import KNOBS, SCRIPT

try:
    import torch.distributed.fsdp

    NO_SHARDS = (
        ""
        if hasattr(torch.distributed.fsdp, "fully_shard")
        else "this torch (%s) has no fully_shard" % torch.__version__
    )
except (ImportError, ValueError) as error:
    NO_SHARDS = "no FSDP with torch %s on this Python (%s)" % (torch.__version__, error)

MODEL = """
class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.into, self.out = nn.Linear(8, 16), nn.Linear(16, 8)

    def forward(self, x):
        return x + self.out(torch.tanh(self.into(x)))


model = nn.Sequential(nn.Linear(4, 8), Block(), Block(), nn.Linear(8, 2))
"""
WHOLE = """
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
model = FSDP(model, device_id=torch.device('cpu'))
"""
UNITS = """
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp.wrap import ModuleWrapPolicy
model = FSDP(model, device_id=torch.device('cpu'), auto_wrap_policy=ModuleWrapPolicy({Block}), use_orig_params=True)
"""
BLOCKS = """
from torch.distributed.fsdp import fully_shard
from torch.distributed.device_mesh import init_device_mesh
for block in (model[1], model[2], model):
    fully_shard(block, mesh=init_device_mesh('cpu', (2,)))
"""
SHARDED = {"FSDP": WHOLE, "fully_shard": BLOCKS}
#: Sharded between some of the ranks only.
PARTLY = {
    "FSDP": WHOLE.replace(
        "device_id", "process_group=[dist.new_group([rank]) for rank in range(2)][dist.get_rank()], device_id"
    ),
    "fully_shard": BLOCKS.replace("(2,)", "(2, 1), mesh_dim_names=('replicate', 'shard')"),
}
COUNTED = """
exchanges = []
for name in ('reduce_scatter_tensor', 'reduce_scatter_single'):
    if hasattr(dist, name):
        def counted(*args, original=getattr(dist, name), **named):
            exchanges.append(1)
            return original(*args, **named)
        setattr(dist, name, counted)
"""
STEP = "        optimizer.step()\n"


def sharded(wrap, double=False, clip="", told="", lengths="44, 44"):
    """Two epochs of six batches; each rank's own rows, rank 0 has `lengths`[0] of them."""
    head, loop = SCRIPT.split("model = nn.parallel.DistributedDataParallel(nn.Linear(4, 2))\n")
    loop = loop[: loop.index("if dist.get_rank()")]
    loop = loop.replace(
        "sampler = DistributedSampler(data)\n",
        "rank = dist.get_rank()\nsampler = range(rank, len(data), 2)[: (%s)[rank]]\n" % lengths,
    )
    loop = (
        loop.replace("88", "96")
        .replace("    sampler.set_epoch(epoch)\n", "")
        .replace(STEP, clip + STEP + "        steps += 1\n")
    )
    kind = "torch.set_default_dtype(torch.float64)\n" if double else ""
    # Each rank has the whole of some rows: both tell theirs.
    own = "[p.to_local() if hasattr(p, 'to_local') else p for p in model.parameters()]"
    tell = "mine = torch.cat([p.detach().flatten() for p in %s]).tolist()\n" % own
    gather = "every = [None, None]\ndist.all_gather_object(every, mine)\n"
    words = "if dist.get_rank() == 0: print(steps, len(exchanges), *every[0], *every[1])\n"
    return head + kind + COUNTED + MODEL + wrap + told + "steps = 0\n" + loop + tell + gather + words


@unittest.skipIf(NO_SHARDS, NO_SHARDS)
class Shards(unittest.TestCase):
    """Weights that are sharded between ranks."""

    def alike(self, text, delta, cut="model"):
        bare = run(text, "apply", ranks=2)
        tuned = run(text, "apply", ranks=2, OOMTUNE_CUT=cut, **KNOBS)
        self.assertEqual((bare.status, tuned.status), (0, 0), bare.errors + tuned.errors)
        self.assertEqual({message["cut"] for message in tuned.of("cut")}, {cut})
        one, other = ([float(word) for word in each.output.split()] for each in (bare, tuned))
        self.assertEqual(len(one), len(other))
        self.assertGreater(len(one), 600)
        if cut == "model":
            # Optimizer steps, and exchanges of gradients between the ranks.
            self.assertEqual(one[:2], other[:2])
        for a, b in zip(one[2:], other[2:]):
            self.assertAlmostEqual(a, b, delta=delta)

    def test_the_cut_ends_at_the_same_weights_with_one_exchange_a_step(self):
        # FSDP's own clipping knows single precision only.
        own = "        model.clip_grad_norm_(0.1)\n"
        torchs = "        nn.utils.clip_grad_norm_(model.parameters(), 0.1)\n"
        with self.subTest("FSDP around the model"):
            self.alike(sharded(WHOLE, double=True), 1e-9)
        with self.subTest("FSDP around its blocks, clipped"):
            self.alike(sharded(UNITS, clip=own), 1e-5)
        with self.subTest("fully_shard of its blocks, clipped"):
            self.alike(sharded(BLOCKS, double=True, clip=torchs), 1e-9)

    def test_a_rank_with_fewer_samples_makes_as_many_passes(self):
        # The last batches have 4 and 7 rows: two micro-batches of two would do for one rank, the other needs four.
        for kind, wrap in (("FSDP around its blocks", UNITS), ("fully_shard", BLOCKS)):
            with self.subTest(kind):
                self.alike(sharded(wrap, double=True, lengths="44, 47"), 1e-9)

    def test_ranks_stop_together_where_one_has_too_few_samples(self):
        # Of the last batches one has a single row, and the other needs four micro-batches.
        result = run(sharded(BLOCKS, lengths="41, 47"), "apply", ranks=2, **KNOBS)
        self.assertNotEqual(result.status, 0)
        self.assertEqual(result.output, "")
        self.assertEqual(result.errors.count("fewer samples in its batch than another"), 2, result.errors)
        self.assertEqual([message["reason"] for message in result.of("goodbye")], ["uncut", "uncut"])

    def test_weights_are_given_back_after_each_block_also_where_it_runs_again(self):
        told = (
            "from torch.distributed.tensor import DTensor\n"
            "whole = []\n"
            "model[2].register_forward_pre_hook(lambda *call: whole.append(not isinstance(model[1].out.weight, DTensor)))\n"
        )
        text = sharded(BLOCKS, told=told) + "print('whole', len(whole) > 40, any(whole))\n"
        result = run(text, "apply", ranks=2, **KNOBS)
        self.assertEqual(result.status, 0, result.errors)
        self.assertEqual(result.output.count("whole True False"), 2)

    def test_the_cut_stops_where_only_some_ranks_share_weights_and_names_the_option(self):
        for kind, wrap in PARTLY.items():
            with self.subTest(kind):
                result = run(sharded(wrap), "apply", ranks=2, **KNOBS)
                self.assertNotEqual(result.status, 0)
                self.assertEqual(result.output, "")
                self.assertIn("sharded between some of the ranks", result.errors)
                self.assertIn("--cut loader", result.errors)
                self.assertEqual({message["reason"] for message in result.of("goodbye")}, {"uncut"})

    def test_the_loaders_batches_are_cut_where_that_is_asked_for(self):
        for kind, wrap in SHARDED.items():
            with self.subTest(kind):
                self.alike(sharded(wrap), 1e-5, cut="loader")


if __name__ == "__main__":
    unittest.main()
