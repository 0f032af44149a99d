"""Other libraries' DQN with the same settings; each call of `learn` makes one slice."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from loopless.bench.contest import Call, Contender
from suites.dqn_speed.slices import ENV, Slice, Training
from suites.processes import peer
from suites.q_learning.peers import BASELINES, SBX, even_width

LIBRARIES = {"stable_baselines3": (BASELINES, "stable-baselines3"), "sbx": (SBX, "sbx-rl")}


def options(case: Training) -> dict[str, Any]:
    """Return the settings of both libraries."""
    config = case.config()
    return {
        "env": ENV,
        "learning_rate": config.learning_rate,
        "gamma": config.gamma,
        "buffer_size": config.buffer_size,
        "learning_starts": config.learning_starts,
        "batch_size": config.batch_size,
        "train_freq": config.train_every,
        "gradient_steps": config.updates,
        "target_update_interval": config.target_every,
        "exploration_initial_eps": config.explore_start,
        "exploration_final_eps": config.explore_end,
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


def dqn_model(module: str, case: Training) -> Any:
    """Return the DQN of a library; SBX has two layers of one width, and does not clip."""
    more: dict[str, Any] = {"policy_kwargs": {"net_arch": [even_width(*case.hidden)]}}
    if module != "sbx":
        more = {"policy_kwargs": {"net_arch": list(case.hidden)}}
        more["max_grad_norm"] = case.config().max_gradient_norm or float("inf")
    return peer(module).DQN("MlpPolicy", **more, **options(case))


def _dqn(module: str, case: Training) -> Call:
    return sliced(dqn_model(module, case), case, case.config().learning_starts + case.every)


def contenders(prepare: Callable[[str, Any], Call], *notes: str) -> tuple[Contender, ...]:
    """Return a contender for each library; prepare(module, case) makes its call."""
    return tuple(
        Contender(*LIBRARIES[module], "peer", partial(prepare, module), note=note)
        for module, note in zip(LIBRARIES, notes, strict=True)
    )


CONTENDERS = contenders(
    _dqn,
    "DQN.learn: with its monitor, its logger has no outputs",
    "DQN.learn: as Stable-Baselines3, no clipping, two layers of one width with as many products "
    "(its network has no others)",
)
