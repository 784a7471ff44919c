"""Lightning with manual optimization: a generator and its critic, an optimizer each, in one training_step."""
import os

import lightning
import torch
from torch import nn


def tower(inputs, outputs):
    return nn.Sequential(nn.Linear(inputs, 512), nn.Tanh(), nn.Linear(512, 512), nn.Tanh(), nn.Linear(512, outputs))


class Pair(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.automatic_optimization = False
        self.generator = tower(8, 16)
        self.critic = tower(16, 1)

    def training_step(self, batch, index):
        real, noise = batch
        ahead, judge = self.optimizers()
        valid = torch.ones(len(real), 1)
        fake = self.generator(noise)
        ahead.zero_grad()
        self.manual_backward(nn.functional.binary_cross_entropy_with_logits(self.critic(fake), valid))
        ahead.step()
        judge.zero_grad()
        loss = nn.functional.binary_cross_entropy_with_logits(self.critic(real), valid)
        loss = loss + nn.functional.binary_cross_entropy_with_logits(self.critic(fake.detach()), 1 - valid)
        self.manual_backward(loss)
        judge.step()

    def configure_optimizers(self):
        return [torch.optim.SGD(part.parameters(), lr=0.1) for part in (self.generator, self.critic)]


torch.manual_seed(0)
data = torch.utils.data.TensorDataset(torch.randn(8192, 16), torch.randn(8192, 8))
model = Pair()
trainer = lightning.Trainer(max_epochs=1, accelerator="cpu", logger=False, enable_checkpointing=False, enable_progress_bar=False)
trainer.fit(model, torch.utils.data.DataLoader(data, batch_size=int(os.environ.get("BATCH", 4096)), shuffle=True))
torch.save(model.state_dict(), "weights.pt")
