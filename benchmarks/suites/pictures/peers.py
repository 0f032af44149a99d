"""Stable-Baselines3 on pictures, with the same network and settings; a call makes one slice."""

from __future__ import annotations

from typing import Any

from suites.dqn_speed.peers import sliced
from suites.processes import peer, torch


def model(case: Any) -> Any:
    """Return the model of a case: `CnnPolicy`, whose network is that of Mnih et al. 2015."""
    config = case.config()
    shared = {
        "learning_rate": config.learning_rate, "gamma": config.gamma, "device": "cpu", "seed": 0,
        "max_grad_norm": config.max_gradient_norm or float("inf"),
    }  # fmt: skip
    if case.trainer == "dqn":
        return peer("stable_baselines3").DQN(
            "CnnPolicy", config.env.partition(":")[2], buffer_size=config.buffer_size,
            learning_starts=config.learning_starts, batch_size=config.batch_size,
            train_freq=config.train_every, gradient_steps=config.updates,
            target_update_interval=config.target_every,
            exploration_initial_eps=config.explore_start,
            exploration_final_eps=config.explore_end, **shared,
        )  # fmt: skip
    make_envs = peer("stable_baselines3.common.env_util").make_vec_env
    return peer("stable_baselines3").PPO(
        "CnnPolicy", make_envs(config.env.partition(":")[2], config.envs),
        n_steps=config.horizon, batch_size=config.rollout_size // config.minibatches,
        n_epochs=config.epochs, gae_lambda=config.gae_lambda, clip_range=config.clip,
        ent_coef=config.entropy_coefficient, vf_coef=config.value_coefficient, **shared,
    )  # fmt: skip


def slices(case: Any, cores: int) -> Any:
    """Return a function that makes one slice, on so many cores, and returns its gradient steps."""
    import suites.pictures.worlds  # noqa: F401 (registers the environments)

    torch.set_num_threads(cores)
    config, is_dqn = case.config(), case.trainer == "dqn"
    first = config.learning_starts + config.train_every if is_dqn else config.rollout_size
    return sliced(model(case), case, first, 1 if is_dqn else config.minibatches).run
