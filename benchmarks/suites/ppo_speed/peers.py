"""Other libraries' PPO with the same settings; each call makes one slice."""

from __future__ import annotations

from typing import Any

from loopless.bench.contest import Call, Contender
from suites.dqn_speed.peers import contenders, rejax_algorithm, rejax_slices, sliced
from suites.dqn_speed.slices import REJAX, PPOTraining
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


def _rejax(case: PPOTraining) -> Call:
    config = case.config()
    algorithm = rejax_algorithm(
        "PPO", case, num_envs=config.envs, num_steps=config.horizon, num_epochs=config.epochs,
        num_minibatches=config.minibatches, learning_rate=config.learning_rate,
        gamma=config.gamma, gae_lambda=config.gae_lambda, clip_eps=config.clip,
        vf_coef=config.value_coefficient, ent_coef=config.entropy_coefficient,
        max_grad_norm=config.max_gradient_norm,
        agent_kwargs={"activation": "tanh", "hidden_layer_sizes": case.hidden},
    )  # fmt: skip
    return rejax_slices(algorithm, "actor_ts")


COMPILED = Contender(
    REJAX, "rejax", "peer", _rejax,
    note="PPO.train on gymnax, jitted: clips the values too, and each gradient by its size",
)  # fmt: skip
