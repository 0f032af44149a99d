"""Solve CartPole with Stable-Baselines3, or with SBX, whose interface is the same.

    python sb3.py stable_baselines3 ppo 0

PPO has the settings of `loopless train ppo`, DQN those of RL Baselines3 Zoo for CartPole-v1 (SBX's
networks have layers of one width, given as one number, and it does not clip). The last line says
whether ten greedy episodes, played every 5,000 steps, reached 475 on average, and when.
"""

import sys
from importlib import import_module

from stable_baselines3.common.callbacks import EvalCallback, StopTrainingOnRewardThreshold
from stable_baselines3.common.env_util import make_vec_env

library, name, seed = sys.argv[1], sys.argv[2], int(sys.argv[3])
envs = make_vec_env("CartPole-v1", 4 if name == "ppo" else 1, seed=seed)
check = EvalCallback(
    make_vec_env("CartPole-v1", 1, seed=seed + 100),
    callback_on_new_best=StopTrainingOnRewardThreshold(475, verbose=0),
    eval_freq=5_000 // envs.num_envs,
    n_eval_episodes=10,
    verbose=0,
)
if name == "ppo":
    model = import_module(library).PPO(
        "MlpPolicy", envs, learning_rate=lambda left: 1e-3 * left, n_steps=128, batch_size=128,
        n_epochs=4, gamma=0.99, gae_lambda=0.95, clip_range=0.2, ent_coef=0.0, vf_coef=0.5,
        max_grad_norm=0.5, policy_kwargs={"net_arch": [64, 64]}, device="cpu", seed=seed,
    )  # fmt: skip
else:
    model = import_module(library).DQN(
        "MlpPolicy", envs, learning_rate=2.3e-3, buffer_size=100_000, learning_starts=1_000,
        batch_size=64, gamma=0.99, train_freq=256, gradient_steps=128, target_update_interval=10,
        exploration_fraction=0.08, exploration_final_eps=0.04,
        policy_kwargs={"net_arch": [256] if library == "sbx" else [256, 256]},
        device="cpu", seed=seed,
    )  # fmt: skip
model.learn(300_000 if name == "ppo" else 100_000, callback=check)
print(
    f"solved {model.num_timesteps}" if check.best_mean_reward >= 475 else "not solved", flush=True
)
