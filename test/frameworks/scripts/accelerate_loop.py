"""A loop with accelerate that accumulates, clips and validates."""
import os

import torch
from accelerate import Accelerator
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def main():
    torch.manual_seed(0)
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2)
    data = TensorDataset(torch.randn(8192, 256), torch.randn(8192, 16))
    model = nn.Sequential(nn.Linear(256, 4096), nn.GELU(), nn.Linear(4096, 16))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    train = DataLoader(data, batch_size=int(os.environ.get("BATCH", 2048)), shuffle=True, drop_last=True)
    valid = DataLoader(data, batch_size=64)
    model, optimizer, train, valid = accelerator.prepare(model, optimizer, train, valid)
    for _ in range(2):
        model.train()
        for inputs, targets in train:
            with accelerator.accumulate(model):
                loss = nn.functional.mse_loss(model(inputs), targets)
                accelerator.backward(loss)
                if accelerator.sync_gradients:
                    accelerator.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                optimizer.zero_grad()
        model.eval()
        with torch.no_grad():
            for inputs, targets in valid:
                nn.functional.mse_loss(model(inputs), targets)
        if "TROUBLE" in os.environ:
            accelerator.save_state("state")
    torch.save(accelerator.unwrap_model(model).state_dict(), "weights.pt")


main()
