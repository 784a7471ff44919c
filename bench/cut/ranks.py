"""The cut under DDP, FSDP and fully_shard on several devices: weights, and exchanges of gradients, cut beside uncut.

    python bench/cut/ranks.py                   # as many ranks as there are CUDA devices, NCCL, double precision
    python bench/cut/ranks.py --device cpu      # two ranks, gloo

A line for each; ends with status 1 where one does not hold. Needs torch, nothing that has to be built.
"""

import argparse
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "python"))

import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
from torch import nn  # noqa: E402

from cost import Bench  # noqa: E402

BATCH, MICRO, STEPS, WIDTH = 64, 16, 10, 64


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.attention = nn.MultiheadAttention(WIDTH, 4, batch_first=True)
        self.wide = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH))

    def forward(self, x):
        seen = self.norm(x)
        x = x + self.attention(seen, seen, seen, need_weights=False)[0]
        return x + self.wide(x)


def replicated(model, device):
    return nn.parallel.DistributedDataParallel(model, device_ids=[device.index] if device.type == "cuda" else None)


def whole(model, device):
    from torch.distributed.fsdp import FullyShardedDataParallel as FSDP

    return FSDP(model, device_id=device)


def units(model, device):
    from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
    from torch.distributed.fsdp.wrap import ModuleWrapPolicy

    return FSDP(model, device_id=device, auto_wrap_policy=ModuleWrapPolicy({Block}), use_orig_params=True)


def blocks(model, device):
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    mesh = init_device_mesh(device.type, (dist.get_world_size(),))
    for block in model:
        if isinstance(block, Block):
            fully_shard(block, mesh=mesh)
    return fully_shard(model, mesh=mesh)


KINDS = {"DDP": replicated, "FSDP, one unit": whole, "FSDP, a unit a block": units, "fully_shard of blocks": blocks}
#: What sums gradients between ranks; DDP's buckets are counted by its hook.
EXCHANGES = ("reduce_scatter_tensor", "reduce_scatter_single")


def counted(exchanges):
    for name in EXCHANGES:
        original = getattr(dist, name, None)
        if original is None:
            continue

        def count(*args, original=original, **named):
            exchanges.append(1)
            return original(*args, **named)

        setattr(dist, name, count)


def trained(cut, wrap, device, exchanges, micro):
    torch.manual_seed(0)
    model = wrap(nn.Sequential(nn.Linear(8, WIDTH), Block(), Block(), Block(), nn.Linear(WIDTH, 4)).double().to(device), device)
    if hasattr(model, "register_comm_hook") and isinstance(model, nn.parallel.DistributedDataParallel):

        def exchange(state, bucket):
            exchanges.append(1)
            ranks = dist.get_world_size()
            return dist.all_reduce(bucket.buffer(), async_op=True).get_future().then(lambda future: future.value()[0] / ranks)

        model.register_comm_hook(None, exchange)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    generator = torch.Generator().manual_seed(dist.get_rank())
    exchanges.clear()
    if micro:
        cut.engage(micro, BATCH)
    for _ in range(STEPS):
        x = torch.randn(BATCH, 12, 8, dtype=torch.float64, generator=generator).to(device)
        optimizer.zero_grad()
        (model(x) - x[:, :, :4].sin()).pow(2).mean().backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0) if wrap is blocks else None
        optimizer.step()
        if micro:
            cut.stepped()
    cut.release()
    own = [p.to_local() if hasattr(p, "to_local") else p for p in model.parameters()]
    return torch.cat([p.detach().flatten() for p in own]).cpu(), len(exchanges)


def rank(device):
    dist.init_process_group("nccl" if device == "cuda" else "gloo")
    place = torch.device("cuda", dist.get_rank()) if device == "cuda" else torch.device("cpu")
    if device == "cuda":
        torch.cuda.set_device(place)
    cut, exchanges, failed = Bench(device, 1).cut, [], False
    counted(exchanges)
    for name, wrap in KINDS.items():
        alone, once = trained(cut, wrap, place, exchanges, None)
        parts, cutting = trained(cut, wrap, place, exchanges, MICRO)
        apart = ((alone - parts).norm() / alone.norm()).item() if alone.numel() else 0.0
        worst = torch.tensor([apart], dtype=torch.float64, device=place)
        dist.all_reduce(worst, op=dist.ReduceOp.MAX)
        bad = not worst.item() <= 1e-9 or once != cutting or once == 0
        failed = failed or bad
        if dist.get_rank() == 0:
            words = (name, BATCH // MICRO, worst.item(), once, cutting, STEPS)
            print(("FAIL" if bad else "ok  ") + " %s in %d parts: weights %.1e apart, %d exchanges uncut and %d cut in %d steps" % words, flush=True)
    if dist.get_rank() == 0:
        what = torch.cuda.get_device_name() if device == "cuda" else "CPU"
        print("torch %s, %s, %d ranks, %s" % (torch.__version__, what, dist.get_world_size(), dist.get_backend()))
    dist.destroy_process_group()
    sys.exit(1 if failed else 0)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    parser.add_argument("--ranks", type=int, default=0)
    asked = parser.parse_args()
    if "RANK" in os.environ:
        rank(asked.device)
    ranks = asked.ranks or (torch.cuda.device_count() if asked.device == "cuda" else 2)
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks), os.path.abspath(__file__)]
    os.execv(sys.executable, launch + ["--device", asked.device])


if __name__ == "__main__":
    main()
