"""timm's parts as its train.py puts them together: loader, model, optimizer, schedule, moving average of the weights."""
import os

import torch
from timm.data import create_loader
from timm.models import create_model
from timm.optim import create_optimizer_v2
from timm.scheduler import create_scheduler_v2
from timm.utils import AverageMeter, CheckpointSaver, ModelEmaV3, accuracy
from torch import nn


class Images(torch.utils.data.Dataset):
    """Pictures as a data set of timm's gives them: bytes, channels first."""

    def __init__(self):
        generator = torch.Generator().manual_seed(1)
        self.pictures = torch.randint(256, (192, 3, 32, 32), generator=generator, dtype=torch.uint8)
        self.labels = torch.randint(10, (192,), generator=generator)

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, index):
        picture = self.pictures[index]
        return (self.transform(picture) if self.transform else picture), int(self.labels[index])


def validate(model, loader):
    top1 = AverageMeter()
    model.eval()
    with torch.inference_mode():
        for pictures, labels in loader:
            output = model(pictures)
            top1.update(accuracy(output, labels)[0].item(), pictures.size(0))
    return top1.avg


torch.manual_seed(0)
batch_size = int(os.environ.get("BATCH", 96))
loader = create_loader(
    Images(), (3, 32, 32), batch_size, is_training=True, no_aug=True, use_prefetcher=False, num_workers=0, device=torch.device("cpu"),
    persistent_workers=False,
)
loader.dataset.transform = lambda picture: picture.float().div(255)
model = create_model("vit_tiny_patch16_224", img_size=32, patch_size=8, depth=2, num_classes=10)
optimizer = create_optimizer_v2(model, opt="momentum", lr=0.01, weight_decay=0.05)
scheduler, epochs = create_scheduler_v2(optimizer, sched="cosine", num_epochs=2, updates_per_epoch=len(loader), warmup_epochs=0)
average = ModelEmaV3(model, decay=0.9)
saver = CheckpointSaver(model, optimizer, model_ema=average) if "TROUBLE" in os.environ else None
updates = 0
for epoch in range(2):
    model.train()
    for pictures, labels in loader:
        loss = nn.functional.cross_entropy(model(pictures), labels, label_smoothing=0.1)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        updates += 1
        average.update(model, step=updates)
        scheduler.step_update(num_updates=updates, metric=loss.item())
    if saver is not None:
        saver.save_checkpoint(epoch, metric=validate(model, loader))
    scheduler.step(epoch + 1)
torch.save({**model.state_dict(), **{"average." + name: value for name, value in average.module.state_dict().items()}}, "weights.pt")
