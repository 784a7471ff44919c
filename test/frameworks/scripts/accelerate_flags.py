"""A script of diffusers' kind: its batch and accumulation by flags, a schedule of the loader's length, noise for each batch, and a last
batch that is smaller."""
import argparse

import torch
from accelerate import Accelerator
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

parser = argparse.ArgumentParser()
parser.add_argument("--train_batch_size", type=int, default=16)
parser.add_argument("--gradient_accumulation_steps", type=int, default=1)
args = parser.parse_args()


def main():
    torch.manual_seed(0)
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=args.gradient_accumulation_steps)
    data = TensorDataset(torch.randn(9000, 256), torch.randn(9000, 16))
    model = nn.Sequential(nn.Linear(256, 4096), nn.GELU(), nn.Linear(4096, 16))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    train = DataLoader(data, batch_size=args.train_batch_size, shuffle=True)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step, steps=2 * len(train): 1 - step / steps)
    model, optimizer, train, schedule = accelerator.prepare(model, optimizer, train, schedule)
    for _ in range(2):
        for inputs, targets in train:
            with accelerator.accumulate(model):
                noise = torch.randn_like(targets)
                loss = nn.functional.mse_loss(model(inputs), targets + 0.1 * noise)
                accelerator.backward(loss)
                if accelerator.sync_gradients:
                    accelerator.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                schedule.step()
                optimizer.zero_grad()
    torch.save(accelerator.unwrap_model(model).state_dict(), "weights.pt")


main()
