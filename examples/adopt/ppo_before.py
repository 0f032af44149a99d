"""PPO on CartPole-v1 in plain PyTorch: 4 environments, 128 steps, 4 epochs of 4 minibatches.

`ppo_after.py` is the same program with the lines that take the time replaced.

    python examples/adopt/ppo_before.py --steps 100000
"""

import argparse
import time
from collections import deque

import gymnasium as gym
import numpy as np
import torch
from torch import nn, optim
from torch.distributions import Categorical

ENVS, ROLLOUT, EPOCHS, MINIBATCHES = 4, 128, 4, 4
GAMMA, GAE_LAMBDA, CLIP, ENTROPY, VALUE = 0.99, 0.95, 0.2, 0.01, 0.5
LEARNING_RATE, MAX_NORM = 2.5e-4, 0.5
BATCH_SIZE = ENVS * ROLLOUT


def layer(inputs, outputs, std=2**0.5):
    linear = nn.Linear(inputs, outputs)
    nn.init.orthogonal_(linear.weight, std)
    nn.init.constant_(linear.bias, 0.0)
    return linear


class Agent(nn.Module):
    def __init__(self, inputs, actions):
        super().__init__()
        self.critic = nn.Sequential(
            layer(inputs, 64), nn.Tanh(), layer(64, 64), nn.Tanh(), layer(64, 1, 1.0)
        )
        self.actor = nn.Sequential(
            layer(inputs, 64), nn.Tanh(), layer(64, 64), nn.Tanh(), layer(64, actions, 0.01)
        )

    def get_action_and_value(self, obs, action=None):
        distribution = Categorical(logits=self.actor(obs))
        action = distribution.sample() if action is None else action
        log_prob, entropy = distribution.log_prob(action), distribution.entropy()
        return action, log_prob, entropy, self.critic(obs).squeeze(-1)


def ppo_loss(agent, batch):
    _, log_prob, entropy, value = agent.get_action_and_value(batch["obs"], batch["action"])
    ratio = (log_prob - batch["log_prob"]).exp()
    advantage = batch["advantage"]
    advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
    clipped = advantage * ratio.clamp(1 - CLIP, 1 + CLIP)
    policy_loss = -torch.min(advantage * ratio, clipped).mean()
    near = batch["value"] + (value - batch["value"]).clamp(-CLIP, CLIP)
    errors = torch.max((value - batch["return"]) ** 2, (near - batch["return"]) ** 2)
    return policy_loss - ENTROPY * entropy.mean() + VALUE * 0.5 * errors.mean()


class Learner:
    def __init__(self, inputs, actions):
        self.agent = Agent(inputs, actions)
        self.optimizer = optim.Adam(self.agent.parameters(), lr=LEARNING_RATE, eps=1e-5, fused=True)

    def act(self, obs):
        with torch.no_grad():
            action, log_prob, _, value = self.agent.get_action_and_value(torch.as_tensor(obs))
        return action, log_prob, value

    def advantages(self, rollout, last_value, last_done):
        """Return GAE's advantages; done[t] says that the observation at t begins an episode."""
        reward, value, done = rollout["reward"], rollout["value"], rollout["done"]
        advantages, running = torch.zeros_like(reward), 0.0
        for t in reversed(range(ROLLOUT)):
            next_value = last_value if t == ROLLOUT - 1 else value[t + 1]
            alive = 1.0 - (last_done if t == ROLLOUT - 1 else done[t + 1])
            delta = reward[t] + GAMMA * next_value * alive - value[t]
            advantages[t] = running = delta + GAMMA * GAE_LAMBDA * alive * running
        return advantages

    def update(self, rollout, minibatches):
        """Make an update for each minibatch, a list of rows of the rollout."""
        for rows in minibatches:
            loss = ppo_loss(self.agent, {name: field[rows] for name, field in rollout.items()})
            self.optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(self.agent.parameters(), MAX_NORM)
            self.optimizer.step()


def make_rollout(inputs):
    fields = {name: torch.zeros(ROLLOUT, ENVS) for name in ("log_prob", "value", "reward", "done")}
    action = torch.zeros(ROLLOUT, ENVS, dtype=torch.int64)
    return fields | {"obs": torch.zeros(ROLLOUT, ENVS, inputs), "action": action}


def shuffle():
    return torch.cat([torch.randperm(BATCH_SIZE).view(MINIBATCHES, -1) for _ in range(EPOCHS)])


def train(steps, seed):
    """Return steps per second after the first rollout, and the last hundred returns."""
    torch.manual_seed(seed)
    envs = gym.vector.SyncVectorEnv([lambda: gym.make("CartPole-v1")] * ENVS)
    inputs, actions = envs.single_observation_space.shape[0], int(envs.single_action_space.n)
    learner, rollout, updates = Learner(inputs, actions), make_rollout(inputs), steps // BATCH_SIZE
    (obs, _), done, totals = envs.reset(seed=seed), torch.zeros(ENVS), np.zeros(ENVS)
    returns, started = deque(maxlen=100), time.perf_counter()
    for update in range(updates):
        learner.optimizer.param_groups[0]["lr"] = (1 - update / updates) * LEARNING_RATE
        for t in range(ROLLOUT):
            rollout["obs"][t], rollout["done"][t] = torch.as_tensor(obs), done
            action, rollout["log_prob"][t], rollout["value"][t] = learner.act(obs)
            obs, reward, terminated, truncated, _ = envs.step(action.numpy())
            rollout["action"][t], rollout["reward"][t] = action, torch.as_tensor(reward)
            ends, totals = terminated | truncated, totals + reward
            done = torch.as_tensor(ends).float()
            returns.extend(totals[ends])
            totals[ends] = 0
        advantage = learner.advantages(rollout, learner.act(obs)[2], done)
        data = rollout | {"advantage": advantage, "return": advantage + rollout["value"]}
        learner.update({name: x.flatten(0, 1) for name, x in data.items()}, shuffle())
        if update == 0:
            started = time.perf_counter()
    return (updates - 1) * BATCH_SIZE / (time.perf_counter() - started), returns


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    torch.set_num_threads(1)
    speed, returns = train(options.steps, options.seed)
    print(f"{speed:.0f} steps/s, mean return {np.mean(returns or [0]):.1f}")
