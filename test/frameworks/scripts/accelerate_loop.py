"""A loop with accelerate that accumulates, clips and validates."""
import torch
from accelerate import Accelerator
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def main():
    torch.manual_seed(0)
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2)
    data = TensorDataset(torch.randn(384, 256), torch.randn(384, 16))
    model = nn.Sequential(nn.Linear(256, 2048), nn.GELU(), nn.Linear(2048, 2048), nn.GELU(), nn.Linear(2048, 16))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    train = DataLoader(data, batch_size=96, shuffle=True)
    valid = DataLoader(data, batch_size=64)
    model, optimizer, train, valid = accelerator.prepare(model, optimizer, train, valid)
    for _ in range(3):
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
    torch.save(accelerator.unwrap_model(model).state_dict(), "weights.pt")


main()
