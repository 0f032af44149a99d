"""`sb3_dqn_before.py` made faster: the line that imports DQN is replaced.

python examples/adopt/sb3_dqn_after.py --steps 50000
"""

import argparse
import time

import gymnasium as gym
import numpy as np
import torch
from stable_baselines3.common.callbacks import BaseCallback

from loopless.adapters.sb3 import DQN

LEARNING_STARTS = 1_000


class Clock(BaseCallback):
    """Notes when the first updates were over."""

    started = None

    def _on_rollout_start(self):
        if self.started is None and self.model._n_updates:
            self.started = time.perf_counter(), self.num_timesteps

    def _on_step(self):
        return True


def make_model(seed):
    return DQN(
        "MlpPolicy",
        gym.make("CartPole-v1"),
        learning_rate=2.3e-3,
        batch_size=64,
        buffer_size=100_000,
        learning_starts=LEARNING_STARTS,
        gamma=0.99,
        target_update_interval=10,
        train_freq=256,
        gradient_steps=128,
        exploration_fraction=0.16,
        exploration_final_eps=0.04,
        policy_kwargs={"net_arch": [256, 256]},
        seed=seed,
        device="cpu",
    )


def train(steps, seed):
    """Return steps per second after the first updates, and the last hundred returns."""
    model, clock = make_model(seed), Clock()
    model.learn(steps, callback=clock)
    seconds, before = clock.started or (time.perf_counter() - 1, 0)
    speed = (model.num_timesteps - before) / (time.perf_counter() - seconds)
    return speed, [episode["r"] for episode in model.ep_info_buffer]


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=50_000)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    torch.set_num_threads(1)
    speed, returns = train(options.steps, options.seed)
    print(f"{speed:.0f} steps/s, mean return {np.mean(returns or [0]):.1f}")
