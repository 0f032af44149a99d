"""`dqn_before.py` made faster: the lines that acted, stored and updated are replaced.

python examples/adopt/dqn_after.py --steps 100000
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

GAMMA, LEARNING_RATE, BATCH_SIZE, BUFFER_SIZE = 0.99, 2.5e-4, 128, 10_000
LEARNING_STARTS, TRAIN_EVERY, TARGET_EVERY = 1_000, 10, 500
EPSILON_START, EPSILON_END, EXPLORE_FRACTION = 1.0, 0.05, 0.5


class QNetwork(nn.Module):
    def __init__(self, inputs, actions):
        super().__init__()
        self.network = nn.Sequential(
            nn.Linear(inputs, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU(), nn.Linear(84, actions)
        )

    def forward(self, x):
        return self.network(x)


class Agent:
    def __init__(self, inputs, actions):
        self.q_network, self.target = QNetwork(inputs, actions), QNetwork(inputs, actions)
        self.target.load_state_dict(self.q_network.state_dict())
        self.optimizer = optim.Adam(self.q_network.parameters(), lr=LEARNING_RATE, fused=True)
        self.actions = actions
        self.forward = ll.forward(self.q_network)
        self.step = ll.fuse(self.loss, self.q_network, self.optimizer)

    def act(self, obs, epsilon):
        if random.random() < epsilon:
            return random.randrange(self.actions)
        return int(self.forward(obs).argmax())

    def loss(self, q_network, batch, target):
        with torch.no_grad():
            best = target(batch["next_obs"]).max(1).values
            td_target = batch["reward"] + GAMMA * best * (1 - batch["done"])
        q = q_network(batch["obs"]).gather(1, batch["action"][:, None]).squeeze(1)
        return F.mse_loss(q, td_target)

    def update(self, batch):
        return self.step(batch, self.target)


class Memory:
    def __init__(self, inputs):
        numbers, number = ((inputs,), np.float32), ((), np.float32)
        fields = {"obs": numbers, "action": ((), np.int64), "reward": number}
        fields |= {"next_obs": numbers, "done": number}
        self.transitions = ll.ReplayBuffer(BUFFER_SIZE, fields, seed=random.getrandbits(31))

    def add(self, obs, action, reward, next_obs, done):
        self.transitions.add(obs=obs, action=action, reward=reward, next_obs=next_obs, done=done)

    def sample(self):
        return self.transitions.sample(BATCH_SIZE)


def epsilon_at(step, steps):
    slope = (EPSILON_END - EPSILON_START) / (EXPLORE_FRACTION * steps)
    return max(EPSILON_END, EPSILON_START + slope * step)


def train(steps, seed):
    """Return steps per second after the first update, and the last hundred returns."""
    random.seed(seed), torch.manual_seed(seed)
    env = gym.make("CartPole-v1")
    inputs, actions = env.observation_space.shape[0], int(env.action_space.n)
    agent, memory = Agent(inputs, actions), Memory(inputs)
    obs, _ = env.reset(seed=seed)
    returns, total, started = deque(maxlen=100), 0.0, (time.perf_counter(), 0)
    for step in range(1, steps + 1):
        action = agent.act(obs, epsilon_at(step, steps))
        next_obs, reward, terminated, truncated, _ = env.step(action)
        memory.add(obs, action, reward, next_obs, terminated)
        obs, total = next_obs, total + float(reward)
        if terminated or truncated:
            returns.append(total)
            (obs, _), total = env.reset(), 0.0
        if step >= LEARNING_STARTS and step % TRAIN_EVERY == 0:
            agent.update(memory.sample())
            if step - LEARNING_STARTS < TRAIN_EVERY:
                started = time.perf_counter(), step
        if step % TARGET_EVERY == 0:
            agent.target.load_state_dict(agent.q_network.state_dict())
    return (steps - started[1]) / (time.perf_counter() - started[0]), returns


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    torch.set_num_threads(1)
    speed, returns = train(options.steps, options.seed)
    print(f"{speed:.0f} steps/s, mean return {np.mean(returns or [0]):.1f}")
