"""torchvision's RetinaNet, which takes lists of images and of targets and makes its losses by itself."""
import os

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset
from torchvision.models.detection import RetinaNet
from torchvision.models.detection.anchor_utils import AnchorGenerator


class Pictures(Dataset):
    def __len__(self):
        return 192

    def __getitem__(self, index):
        generator = torch.Generator().manual_seed(index)
        corner = torch.randint(0, 24, (3 if os.environ.get("LONGEST") else 1 + index % 3, 2), generator=generator).float()
        boxes = torch.cat((corner, corner + 24), 1)
        return torch.rand(3, 64, 64, generator=generator), {"boxes": boxes, "labels": torch.ones(len(boxes), dtype=torch.long)}


@torch.inference_mode()
def evaluate(model, data_loader):
    model.eval()
    for images, targets in data_loader:
        model(list(images))


torch.manual_seed(0)
body = nn.Sequential(nn.Conv2d(3, 16, 3, 2, 1), nn.ReLU(), nn.Conv2d(16, 32, 3, 2, 1), nn.ReLU(), nn.Conv2d(32, 32, 3, 2, 1))
body.out_channels = 32
model = RetinaNet(body, 2, min_size=64, max_size=64, anchor_generator=AnchorGenerator(((16, 24, 32),), ((0.5, 1.0, 2.0),)))
loader = DataLoader(Pictures(), int(os.environ.get("BATCH", 96)), shuffle=True, collate_fn=lambda samples: tuple(zip(*samples)))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
for images, targets in loader:
    losses = model([image for image in images], [dict(target) for target in targets])
    optimizer.zero_grad()
    sum(losses.values()).backward()
    optimizer.step()
if "TROUBLE" in os.environ:
    evaluate(model, loader)
torch.save(model.state_dict(), "weights.pt")
