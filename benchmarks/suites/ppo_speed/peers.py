"""Other libraries' PPO with the same settings; each call of `learn` makes one slice."""

from __future__ import annotations

from typing import Any

from loopless.bench.contest import Call
from suites.dqn_speed.peers import contenders, sliced
from suites.dqn_speed.slices import PPOTraining
from suites.processes import peer


def options(case: PPOTraining) -> dict[str, Any]:
    """Return the settings of both libraries, without the environments."""
    config = case.config()
    return {
        "learning_rate": config.learning_rate,
        "n_steps": config.horizon,
        "batch_size": config.rollout_size // config.minibatches,
        "n_epochs": config.epochs,
        "gamma": config.gamma,
        "gae_lambda": config.gae_lambda,
        "clip_range": config.clip,
        "clip_range_vf": config.value_clip,
        "normalize_advantage": config.normalize_advantages == "minibatch",
        "ent_coef": config.entropy_coefficient,
        "vf_coef": config.value_coefficient,
        "max_grad_norm": config.max_gradient_norm,
        "policy_kwargs": {"net_arch": list(config.hidden)},  # tanh, as ours
        "device": "cpu",
        "seed": 0,
    }


def _ppo(module: str, case: PPOTraining) -> Call:
    make_envs = peer("stable_baselines3.common.env_util").make_vec_env
    envs = make_envs(case.config().env, case.envs)  # stepped in turn, in this process
    model = peer(module).PPO("MlpPolicy", envs, **options(case))
    return sliced(model, case, case.rows, counted=case.minibatches)  # they count epochs


CONTENDERS = contenders(
    _ppo,
    "PPO.learn, DummyVecEnv: with its monitor, its logger has no outputs",
    "PPO.learn: as Stable-Baselines3",
)
