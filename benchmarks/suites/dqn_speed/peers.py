"""Other libraries' DQN with the same settings; each call of `learn` makes one slice."""

from __future__ import annotations

from typing import Any

from loopless.bench.contest import Call, Contender
from suites.dqn_speed.slices import (
    BUFFER,
    ENV,
    EPSILON,
    RULES,
    STARTS,
    TARGET_EVERY,
    Slice,
    Training,
)
from suites.processes import warnings_of_peers_ignored
from suites.q_learning.peers import BASELINES, SBX, even_width


def options(case: Training) -> dict[str, Any]:
    """Return the settings of both libraries."""
    return {
        "env": ENV,
        "learning_rate": RULES.rate,
        "gamma": RULES.gamma,
        "buffer_size": BUFFER,
        "learning_starts": STARTS,
        "batch_size": case.batch,
        "train_freq": case.every,
        "gradient_steps": case.updates,
        "target_update_interval": TARGET_EVERY,
        "exploration_initial_eps": EPSILON,
        "exploration_final_eps": EPSILON,
        "device": "cpu",
        "seed": 0,
    }


def sliced(model: Any, case: Slice, first: int, counted: int = 1) -> Call:
    """Return a call of the model's `learn` that makes one slice, after `first` steps untimed.

    Where the library counts one update, it makes `counted` gradient steps.
    """
    model.learn(first)  # includes the first gradient step, and its compilation

    def run() -> int:
        before = model._n_updates
        model.learn(case.steps, reset_num_timesteps=False)
        return counted * (model._n_updates - before)

    return Call(run, int)


def baselines_model(case: Training) -> Any:
    with warnings_of_peers_ignored():
        from stable_baselines3 import DQN

    widths = {"net_arch": list(case.hidden)}
    clip = RULES.max_norm or float("inf")
    return DQN("MlpPolicy", policy_kwargs=widths, max_grad_norm=clip, **options(case))


def _baselines(case: Training) -> Call:
    return sliced(baselines_model(case), case, STARTS + case.every)


def _sbx(case: Training) -> Call:
    with warnings_of_peers_ignored():
        from sbx import DQN

    first, second = case.hidden
    model = DQN(
        "MlpPolicy", policy_kwargs={"net_arch": [even_width(first, second)]}, **options(case)
    )
    return sliced(model, case, STARTS + case.every)


CONTENDERS = (
    Contender(
        BASELINES,
        "stable-baselines3",
        "peer",
        _baselines,
        note="DQN.learn: with its monitor, its logger has no outputs",
    ),
    Contender(
        SBX,
        "sbx-rl",
        "peer",
        _sbx,
        note="DQN.learn: as Stable-Baselines3, no clipping, two layers of one width with as many "
        "products (its network has no others)",
    ),
)
