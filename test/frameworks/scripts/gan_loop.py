"""A GAN with two optimizers that step in turn, the critic five times as often, as WGAN does."""
import os

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
generator = nn.Sequential(nn.Linear(8, 512), nn.LeakyReLU(0.2), nn.Linear(512, 512), nn.LeakyReLU(0.2), nn.Linear(512, 32), nn.Tanh())
critic = nn.Sequential(nn.Linear(32, 512), nn.LeakyReLU(0.2), nn.Linear(512, 512), nn.LeakyReLU(0.2), nn.Linear(512, 1))
ahead = torch.optim.Adam(generator.parameters(), lr=2e-4, betas=(0.5, 0.999))
judge = torch.optim.Adam(critic.parameters(), lr=2e-4, betas=(0.5, 0.999))
loader = DataLoader(TensorDataset(torch.randn(24576, 32)), batch_size=int(os.environ.get("BATCH", 4096)), shuffle=True)
for number, (real,) in enumerate(loader):
    judge.zero_grad()
    fake = generator(torch.randn(len(real), 8)).detach()
    (critic(fake).mean() - critic(real).mean()).backward()
    judge.step()
    for p in critic.parameters():
        p.data.clamp_(-0.05, 0.05)
    if number % 5 == 0:
        ahead.zero_grad()
        (-critic(generator(torch.randn(len(real), 8))).mean()).backward()
        ahead.step()
    if "TROUBLE" in os.environ:
        generator.eval()
        with torch.no_grad():
            samples = generator(torch.randn(64, 8))
        generator.train()
torch.save({**generator.state_dict(prefix="generator."), **critic.state_dict(prefix="critic.")}, "weights.pt")
