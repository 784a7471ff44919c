"""PPO with the loop of CleanRL: minibatches cut from a buffer by hand, several epochs of them."""
import os

import torch
from torch import nn
from torch.distributions import Categorical


class Agent(nn.Module):
    def __init__(self):
        super().__init__()
        self.critic = nn.Sequential(nn.Linear(16, 512), nn.Tanh(), nn.Linear(512, 512), nn.Tanh(), nn.Linear(512, 1))
        self.actor = nn.Sequential(nn.Linear(16, 512), nn.Tanh(), nn.Linear(512, 512), nn.Tanh(), nn.Linear(512, 4))

    def get_value(self, x):
        return self.critic(x)

    def get_action_and_value(self, x, action=None):
        probabilities = Categorical(logits=self.actor(x))
        if action is None:
            action = probabilities.sample()
        return action, probabilities.log_prob(action), probabilities.entropy(), self.critic(x)


torch.manual_seed(0)
batch_size = 16384
minibatch_size = int(os.environ.get("BATCH", 8192))
agent = Agent()
optimizer = torch.optim.Adam(agent.parameters(), lr=2.5e-4, eps=1e-5)
world = nn.Linear(20, 16)
for iteration in range(2):
    obs = torch.zeros(64, batch_size // 64, 16)
    actions, logprobs, rewards, values = (torch.zeros(64, batch_size // 64) for _ in range(4))
    state = torch.randn(batch_size // 64, 16)
    for step in range(64):
        obs[step] = state
        with torch.no_grad():
            action, logprob, _, value = agent.get_action_and_value(state)
            actions[step], logprobs[step], values[step] = action, logprob, value.flatten()
            rewards[step] = state[:, 0]
            state = world(torch.cat((state, nn.functional.one_hot(action, 4).float()), 1)).tanh()
    returns = rewards.flip(0).cumsum(0).flip(0)
    advantages = returns - values
    b_obs, b_actions, b_logprobs = obs.reshape(-1, 16), actions.reshape(-1), logprobs.reshape(-1)
    b_advantages, b_returns = advantages.reshape(-1), returns.reshape(-1)
    for epoch in range(2):
        b_inds = torch.randperm(batch_size)
        for start in range(0, batch_size, minibatch_size):
            end = start + minibatch_size
            mb_inds = b_inds[start:end]
            _, newlogprob, entropy, newvalue = agent.get_action_and_value(b_obs[mb_inds], b_actions.long()[mb_inds])
            ratio = (newlogprob - b_logprobs[mb_inds]).exp()
            mb_advantages = b_advantages[mb_inds]
            mb_advantages = (mb_advantages - mb_advantages.mean()) / (mb_advantages.std() + 1e-8)
            pg_loss = torch.max(-mb_advantages * ratio, -mb_advantages * ratio.clamp(0.8, 1.2)).mean()
            v_loss = 0.5 * ((newvalue.view(-1) - b_returns[mb_inds]) ** 2).mean()
            loss = pg_loss - 0.01 * entropy.mean() + 0.5 * v_loss
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(agent.parameters(), 0.5)
            optimizer.step()
torch.save(agent.state_dict(), "weights.pt")
