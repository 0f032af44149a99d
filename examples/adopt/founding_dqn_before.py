"""Double DQN on CartPole-v1 in the manner of SLM-Lab: 32 updates every four steps, small batches.

An event trains on eight batches, four updates on each. `founding_dqn_after.py` is the same program
with the lines that take the time replaced.

    python examples/adopt/founding_dqn_before.py --steps 10000
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

GAMMA, LEARNING_RATE, BATCH_SIZE, CAPACITY = 0.99, 5e-4, 32, 10_000
TRAIN_START, TRAIN_EVERY, BATCHES, UPDATES_PER_BATCH, TARGET_EVERY = 100, 4, 8, 4, 100
EPSILON_START, EPSILON_END, EXPLORE_STEPS, MAX_NORM = 1.0, 0.05, 4_000, 0.5


class Replay:
    """Keeps the last transitions, each field in an array."""

    def __init__(self, inputs):
        self.seen = 0
        self.fields = {
            "state": np.zeros((CAPACITY, inputs), np.float32),
            "action": np.zeros(CAPACITY, np.int64),
            "reward": np.zeros(CAPACITY, np.float32),
            "next_state": np.zeros((CAPACITY, inputs), np.float32),
            "done": np.zeros(CAPACITY, np.float32),
        }

    def add(self, **transition):
        for name, value in transition.items():
            self.fields[name][self.seen % CAPACITY] = value
        self.seen += 1

    def sample(self):
        rows = random.choices(range(min(self.seen, CAPACITY)), k=BATCH_SIZE)
        return {name: torch.from_numpy(array[rows]) for name, array in self.fields.items()}


class DoubleDQN:
    def __init__(self, inputs, actions):
        self.net, self.target_net = self.make_net(inputs, actions), self.make_net(inputs, actions)
        self.target_net.load_state_dict(self.net.state_dict())
        self.optimizer = optim.Adam(self.net.parameters(), lr=LEARNING_RATE, fused=True)
        self.actions = actions

    def make_net(self, inputs, actions):
        return nn.Sequential(nn.Linear(inputs, 64), nn.SELU(), nn.Linear(64, actions))

    def act(self, state, epsilon):
        if random.random() < epsilon:
            return random.randrange(self.actions)
        with torch.no_grad():
            return self.net(torch.from_numpy(state)).argmax().item()

    def calc_q_loss(self, net, batch, target_net):
        q_preds = net(batch["state"])
        with torch.no_grad():
            online_actions = net(batch["next_state"]).argmax(dim=-1, keepdim=True)
            next_q = target_net(batch["next_state"]).gather(-1, online_actions).squeeze(-1)
        act_q_preds = q_preds.gather(-1, batch["action"].unsqueeze(-1)).squeeze(-1)
        targets = batch["reward"] + GAMMA * (1 - batch["done"]) * next_q
        return F.smooth_l1_loss(act_q_preds, targets)

    def train_step(self, batch):
        loss = self.calc_q_loss(self.net, batch, self.target_net)
        self.optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(self.net.parameters(), MAX_NORM)
        self.optimizer.step()
        return loss

    def train(self, batches):
        """Make some updates on each batch, and return the mean loss."""
        losses = [self.train_step(batch) for batch in batches for _ in range(UPDATES_PER_BATCH)]
        return torch.stack(losses).mean()


def sample_event(memory):
    return [memory.sample() for _ in range(BATCHES)]


def run(steps, seed):
    """Return steps per second after the first event, and the last hundred returns."""
    random.seed(seed), torch.manual_seed(seed)
    env = gym.make("CartPole-v1")
    inputs, actions = env.observation_space.shape[0], int(env.action_space.n)
    agent, memory = DoubleDQN(inputs, actions), Replay(inputs)
    state, _ = env.reset(seed=seed)
    returns, total, started = deque(maxlen=100), 0.0, (time.perf_counter(), 0)
    for step in range(1, steps + 1):
        fraction = min(1.0, step / EXPLORE_STEPS)
        action = agent.act(state, EPSILON_START + fraction * (EPSILON_END - EPSILON_START))
        next_state, reward, terminated, truncated, _ = env.step(action)
        memory.add(
            state=state, action=action, reward=reward, next_state=next_state, done=terminated
        )
        state, total = next_state, total + float(reward)
        if terminated or truncated:
            returns.append(total)
            (state, _), total = env.reset(), 0.0
        if step >= TRAIN_START and step % TRAIN_EVERY == 0:
            agent.train(sample_event(memory))
            if step - TRAIN_START < TRAIN_EVERY:
                started = time.perf_counter(), step
        if step % TARGET_EVERY == 0:
            agent.target_net.load_state_dict(agent.net.state_dict())
    return (steps - started[1]) / (time.perf_counter() - started[0]), returns


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    torch.set_num_threads(1)
    speed, returns = run(options.steps, options.seed)
    print(f"{speed:.0f} steps/s, mean return {np.mean(returns or [0]):.1f}")
