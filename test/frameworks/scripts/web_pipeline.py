"""A webdataset pipeline that makes its batches by itself, read by a loader with batch_size=None."""
import io
import os
import tarfile

import torch
import webdataset
from torch import nn


def make(path, samples):
    generator = torch.Generator().manual_seed(3)
    with tarfile.open(path, "w") as archive:
        for number in range(samples):
            for ending, value in (("x.pth", torch.randn(128, generator=generator)), ("y.pth", torch.randn(8, generator=generator))):
                buffer = io.BytesIO()
                torch.save(value, buffer)
                member = tarfile.TarInfo("%05d.%s" % (number, ending))
                member.size = buffer.tell()
                buffer.seek(0)
                archive.addfile(member, buffer)


make("shard-000000.tar", 1024)
torch.manual_seed(0)
data = webdataset.WebDataset("shard-000000.tar", shardshuffle=False).decode().to_tuple("x.pth", "y.pth").batched(int(os.environ.get("BATCH", 512)))
loader = webdataset.WebLoader(data, batch_size=None)
model = nn.Sequential(nn.Linear(128, 16384), nn.GELU(), nn.Linear(16384, 8))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
for _ in range(2):
    for inputs, targets in loader:
        loss = nn.functional.mse_loss(model(inputs), targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
torch.save(model.state_dict(), "weights.pt")
