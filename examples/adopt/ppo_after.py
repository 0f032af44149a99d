"""`ppo_before.py` made faster: the lines that acted, estimated and updated are replaced.

python examples/adopt/ppo_after.py --steps 100000
"""

import argparse
import time
from collections import deque

import gymnasium as gym
import numpy as np
import torch
from torch import nn, optim
from torch.distributions import Categorical

import loopless as ll

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

        self.act = ll.actor(self.agent.actor, "categorical", value=self.agent.critic)
        self.step = ll.fuse(ppo_loss, self.agent, self.optimizer, max_gradient_norm=MAX_NORM)

    def advantages(self, rollout, last_value, last_done):
        """Return GAE's advantages; done[t] says that the observation at t begins an episode."""
        reward, value, done = rollout["reward"], rollout["value"], rollout["done"]
        ends, next_value = np.vstack([done[1:], last_done]), np.vstack([value[1:], last_value])
        cut = np.zeros_like(ends)
        return ll.gae(reward, value, next_value, ends, cut, gamma=GAMMA, lambda_=GAE_LAMBDA)[0]

    def update(self, rollout, minibatches):
        """Make an update for each minibatch, a list of rows of the rollout."""
        self.step.many(rollout, indices=minibatches)


def make_rollout(inputs):
    fields = {
        name: np.zeros((ROLLOUT, ENVS), np.float32) for name in ("log_prob", "value", "reward")
    }
    action, done = np.zeros((ROLLOUT, ENVS), np.int64), np.zeros((ROLLOUT, ENVS), bool)
    obs = np.zeros((ROLLOUT, ENVS, inputs), np.float32)
    return fields | {"obs": obs, "action": action, "done": done}


def shuffle():
    return torch.cat([torch.randperm(BATCH_SIZE).view(MINIBATCHES, -1) for _ in range(EPOCHS)])


def train(steps, seed):
    """Return steps per second after the first rollout, and the last hundred returns."""
    torch.manual_seed(seed)
    envs = gym.vector.SyncVectorEnv([lambda: gym.make("CartPole-v1")] * ENVS)
    inputs, actions = envs.single_observation_space.shape[0], int(envs.single_action_space.n)
    learner, rollout, updates = Learner(inputs, actions), make_rollout(inputs), steps // BATCH_SIZE
    (obs, _), done, totals = envs.reset(seed=seed), np.zeros(ENVS, bool), np.zeros(ENVS)
    returns, started = deque(maxlen=100), time.perf_counter()
    for update in range(updates):
        learner.optimizer.param_groups[0]["lr"] = (1 - update / updates) * LEARNING_RATE
        for t in range(ROLLOUT):
            rollout["obs"][t], rollout["done"][t] = obs, done
            action, rollout["log_prob"][t], rollout["value"][t] = learner.act(obs)
            obs, reward, terminated, truncated, _ = envs.step(action)
            rollout["action"][t], rollout["reward"][t] = action, reward
            done, totals = terminated | truncated, totals + reward
            returns.extend(totals[done])
            totals[done] = 0
        advantage = learner.advantages(rollout, learner.act(obs)[2], done)
        data = rollout | {"advantage": advantage, "return": advantage + rollout["value"]}
        learner.update(
            {name: x.reshape(BATCH_SIZE, *x.shape[2:]) for name, x in data.items()}, shuffle()
        )
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
