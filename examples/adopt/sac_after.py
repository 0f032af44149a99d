"""`sac_before.py` made faster: the lines that acted, stored and updated are replaced.

python examples/adopt/sac_after.py --steps 20000
"""

import argparse
import random
import time
from collections import deque

import gymnasium as gym
import numpy as np
import torch
import torch.nn.functional as F
from torch import nn, optim

import loopless as ll

GAMMA, TAU, BATCH_SIZE, BUFFER_SIZE, LEARNING_STARTS = 0.99, 0.005, 128, 100_000, 1_000
ACTOR_RATE, CRITIC_RATE, HIDDEN = 3e-4, 1e-3, 64
LOG_STD_MIN, LOG_STD_MAX = -5, 2


def mlp(inputs, outputs):
    hidden = nn.Linear(inputs, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, HIDDEN), nn.ReLU()
    return nn.Sequential(*hidden, nn.Linear(HIDDEN, outputs))


class Actor(nn.Module):
    def __init__(self, inputs, actions, high):
        super().__init__()
        self.net, self.high = mlp(inputs, 2 * actions), high

    def forward(self, obs):
        mean, log_std = self.net(obs).chunk(2, dim=-1)
        log_std = torch.tanh(log_std)
        return mean, LOG_STD_MIN + 0.5 * (LOG_STD_MAX - LOG_STD_MIN) * (log_std + 1)

    def sample(self, obs, noise):
        """Return actions and their log-probabilities."""
        mean, log_std = self(obs)
        u = mean + log_std.exp() * noise
        log_prob = -0.5 * noise**2 - log_std - 0.5 * np.log(2 * np.pi)
        log_prob = log_prob - 2 * (np.log(2) - u - F.softplus(-2 * u)) - np.log(self.high)
        return self.high * torch.tanh(u), log_prob.sum(-1)


class Critics(nn.Module):
    def __init__(self, inputs, actions):
        super().__init__()
        self.first, self.second = mlp(inputs + actions, 1), mlp(inputs + actions, 1)

    def forward(self, obs, action):
        x = torch.cat([obs, action], dim=-1)
        return self.first(x).squeeze(-1), self.second(x).squeeze(-1)


class Agent:
    def __init__(self, inputs, actions, high):
        self.actor, self.actions = Actor(inputs, actions, high), actions
        self.critics, self.target = Critics(inputs, actions), Critics(inputs, actions)
        self.target.load_state_dict(self.critics.state_dict())
        self.log_alpha = torch.zeros(1, requires_grad=True)
        self.critic_optimizer = optim.Adam(self.critics.parameters(), lr=CRITIC_RATE, fused=True)
        self.actor_optimizer = optim.Adam(self.actor.parameters(), lr=ACTOR_RATE, fused=True)
        self.alpha_optimizer = optim.Adam([self.log_alpha], lr=CRITIC_RATE, fused=True)

        self.draw = ll.actor(self.actor, "squashed", bounds=(-high, high))
        stages = [
            (self.critic_loss, self.critics, self.critic_optimizer),
            (self.actor_loss, self.actor, self.actor_optimizer),
            (self.alpha_loss, self.log_alpha, self.alpha_optimizer),
        ]
        self.step = ll.fuse(stages, follow=[(self.target, self.critics, TAU)])

    def act(self, obs):
        return self.draw(obs)[0]

    def critic_loss(self, critics, batch):
        with torch.no_grad():
            action, log_prob = self.actor.sample(batch["next_obs"], batch["next_noise"])
            next_q = torch.min(*self.target(batch["next_obs"], action))
            next_q = next_q - self.log_alpha.exp() * log_prob
            target = batch["reward"] + GAMMA * (1 - batch["done"]) * next_q
        first, second = critics(batch["obs"], batch["action"])
        return F.mse_loss(first, target) + F.mse_loss(second, target)

    def actor_loss(self, actor, batch):
        action, log_prob = actor.sample(batch["obs"], batch["noise"])
        q = torch.min(*self.critics(batch["obs"], action))
        return (self.log_alpha.exp().detach() * log_prob - q).mean()

    def alpha_loss(self, log_alpha, batch):
        with torch.no_grad():
            _, log_prob = self.actor.sample(batch["obs"], batch["noise"])
        return -(log_alpha.exp() * (log_prob - self.actions)).mean()

    def update(self, batch):
        self.step(batch)


class Memory:
    def __init__(self, inputs, actions):
        numbers, number = ((inputs,), np.float32), ((), np.float32)
        fields = {"obs": numbers, "action": ((actions,), np.float32), "reward": number}
        fields |= {"next_obs": numbers, "done": number}
        self.transitions = ll.ReplayBuffer(BUFFER_SIZE, fields, seed=random.getrandbits(31))
        self.noise = (2, BATCH_SIZE, actions)

    def add(self, obs, action, reward, next_obs, done):
        reward = float(reward)
        self.transitions.add(obs=obs, action=action, reward=reward, next_obs=next_obs, done=done)

    def sample(self):
        noise, next_noise = torch.randn(self.noise)
        return self.transitions.sample(BATCH_SIZE) | {"noise": noise, "next_noise": next_noise}


def train(steps, seed):
    """Return steps per second after the first update, and the last hundred returns."""
    random.seed(seed), torch.manual_seed(seed)
    env = gym.make("Pendulum-v1")
    inputs, actions = env.observation_space.shape[0], env.action_space.shape[0]
    agent, memory = Agent(inputs, actions, float(env.action_space.high[0])), Memory(inputs, actions)
    (obs, _), total = env.reset(seed=seed), 0.0
    returns, started = deque(maxlen=100), (time.perf_counter(), 0)
    for step in range(1, steps + 1):
        action = agent.act(obs)
        next_obs, reward, terminated, truncated, _ = env.step(action)
        memory.add(obs, action, reward, next_obs, terminated)
        obs, total = next_obs, total + float(reward)
        if terminated or truncated:
            returns.append(total)
            (obs, _), total = env.reset(), 0.0
        if step >= LEARNING_STARTS:
            agent.update(memory.sample())
        if step == LEARNING_STARTS:
            started = time.perf_counter(), step
    return (steps - started[1]) / (time.perf_counter() - started[0]), returns


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    torch.set_num_threads(1)
    speed, returns = train(options.steps, options.seed)
    print(f"{speed:.0f} steps/s, mean return {np.mean(returns or [0]):.1f}")
