"""A PPO of Stable-Baselines3 on CartPole-v1, with the settings that rl-zoo has for it.

python examples/adopt/sb3_ppo_before.py --steps 100000
"""

import argparse
import time

import gymnasium as gym
import numpy as np
import torch
from stable_baselines3 import PPO
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.monitor import Monitor
from stable_baselines3.common.utils import LinearSchedule
from stable_baselines3.common.vec_env import DummyVecEnv

ENVS, ROLLOUT, BATCH_SIZE = 8, 32, 256


class Clock(BaseCallback):
    """Notes when the first updates were over."""

    started = None

    def _on_rollout_start(self):
        if self.started is None and self.model._n_updates:
            self.started = time.perf_counter(), self.num_timesteps

    def _on_step(self):
        return True


def make_model(seed):
    return PPO(
        "MlpPolicy",
        DummyVecEnv([lambda: Monitor(gym.make("CartPole-v1"))] * ENVS),
        n_steps=ROLLOUT,
        batch_size=BATCH_SIZE,
        n_epochs=20,
        gae_lambda=0.8,
        gamma=0.98,
        ent_coef=0.0,
        learning_rate=LinearSchedule(1e-3, 0.0, 1.0),
        clip_range=LinearSchedule(0.2, 0.0, 1.0),
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
    parser.add_argument("--steps", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    torch.set_num_threads(1)
    speed, returns = train(options.steps, options.seed)
    print(f"{speed:.0f} steps/s, mean return {np.mean(returns or [0]):.1f}")
