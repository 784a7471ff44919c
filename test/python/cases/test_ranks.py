"""Several ranks of one job go in step."""

import unittest

import torch
from support import probe, run

SCRIPT = """
import os, torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset
torch.manual_seed(0)
dist.init_process_group('gloo')
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
#: The same where the script tells torch itself which rank it is.
BY_SLURM = SCRIPT.replace(
    "init_process_group('gloo')",
    "init_process_group('gloo', rank=int(os.environ['SLURM_PROCID']), world_size=int(os.environ['SLURM_NTASKS']))",
)
#: The same without a loader: each rank cuts its own batches by hand.
BY_HAND = (
    SCRIPT[: SCRIPT.index("sampler =")]
    + """
import argparse
args = argparse.Namespace(batch_size=8)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
x, y = data.tensors
x, y = x[dist.get_rank()::2], y[dist.get_rank()::2]
for epoch in range(2):
    for start in range(0, 40, args.batch_size):
        optimizer.zero_grad()
        chosen = slice(start, start + args.batch_size)
        nn.functional.mse_loss(model(x[chosen]), y[chosen]).backward()
        optimizer.step()
"""
    + SCRIPT[SCRIPT.index("if dist.get_rank()") :]
)

KNOBS = {"OOMTUNE_MICRO_BATCH": 2, "OOMTUNE_ACCUMULATION": 4, "OOMTUNE_HOOK_KNOBS": "micro_batch,accumulation"}


@unittest.skipUnless(torch.distributed.is_available(), "this torch has no torch.distributed")
class Ranks(unittest.TestCase):
    def test_each_rank_connects_and_is_driven(self):
        result = run(SCRIPT, "probe", [probe(3), probe(5)], ranks=2)
        self.assertEqual(result.status, 0, result.errors)
        hellos = sorted((m["rank"], m["world_size"]) for m in result.of("hello"))
        self.assertEqual(hellos, [(0, 2), (1, 2)])
        self.assertEqual(sorted(m["micro_batch"] for m in result.of("measured")), [3, 3, 5, 5])
        self.assertEqual(result.output, "")

    def test_ranks_that_tell_torch_themselves_which_they_are_are_driven_too(self):
        result = run(BY_SLURM, "probe", [probe(3), probe(5)], ranks=2, BY_SLURM=1)
        self.assertEqual(result.status, 0, result.errors)
        hellos = sorted((m["rank"], m["world_size"]) for m in result.of("hello"))
        self.assertEqual(hellos, [(0, 2), (1, 2)])

    def test_each_rank_is_driven_where_it_calls_its_model(self):
        result = run(BY_HAND.replace("DataLoader, ", ""), "probe", [probe(3), probe(30), probe(5)], ranks=2)
        self.assertEqual(result.status, 0, result.errors)
        self.assertEqual({m["place"] for m in result.of("loop")}, {"call"})
        self.assertEqual(sorted(m["micro_batch"] for m in result.of("measured")), [3, 3, 5, 5, 30, 30])

    def test_accumulated_micro_batches_end_at_the_same_weights(self):
        def weights(script, **env):
            result = run(script, "apply", ranks=2, **env)
            self.assertEqual(result.status, 0, result.errors)
            return [float(word.strip("[],")) for word in result.output.split()[1:]], result

        for script, more in ((SCRIPT, {}), (BY_HAND, {}), (BY_SLURM, {"BY_SLURM": 1})):
            bare, _ = weights(script, **more)
            tuned, result = weights(script, **KNOBS, **more)
            for one, other in zip(bare, tuned):
                self.assertAlmostEqual(one, other, delta=1e-5 * max(abs(value) for value in bare))
            self.assertEqual([m["cut"] for m in result.of("cut")], ["model"] * 2)

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
        result = run(text, "apply", ranks=2, **KNOBS)
        self.assertEqual(result.status, 0, result.errors)
        # Two epochs of six batches each, in one bucket.
        self.assertEqual(result.output.split()[-2:], ["exchanges", "12"])


if __name__ == "__main__":
    unittest.main()
