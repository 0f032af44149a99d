"""Other libraries' PPO with the same settings; each call of `learn` makes one slice."""

from __future__ import annotations

from typing import Any

from loopless.bench.contest import Call, Contender
from suites.dqn_speed.peers import sliced
from suites.dqn_speed.slices import PPOTraining
from suites.processes import warnings_of_peers_ignored
from suites.q_learning.peers import BASELINES, SBX


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


def _learning(algorithm: Any, case: PPOTraining) -> Call:
    with warnings_of_peers_ignored():
        from stable_baselines3.common.env_util import make_vec_env
    envs = make_vec_env(case.config().env, case.envs)  # stepped in turn, in this process
    model = algorithm("MlpPolicy", envs, **options(case))
    return sliced(model, case, case.rows, counted=case.minibatches)  # they count epochs


def _baselines(case: PPOTraining) -> Call:
    with warnings_of_peers_ignored():
        from stable_baselines3 import PPO
    return _learning(PPO, case)


def _sbx(case: PPOTraining) -> Call:
    with warnings_of_peers_ignored():
        from sbx import PPO
    return _learning(PPO, case)


CONTENDERS = (
    Contender(
        BASELINES,
        "stable-baselines3",
        "peer",
        _baselines,
        note="PPO.learn, DummyVecEnv: with its monitor, its logger has no outputs",
    ),
    Contender(SBX, "sbx-rl", "peer", _sbx, note="PPO.learn: as Stable-Baselines3"),
)
