"""The suite `ppo_learning`: PPO's presets over several seeds, and how well they end.

It runs by the code of `dqn_learning`, and is shown as that is.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from loopless.bench.result import Result
from loopless.bench.suites import Options, Say
from suites.dqn_learning.suite import TITLES, page, run_tasks
from suites.dqn_learning.tasks import SEEDS, Modes, Task

__all__ = ["TITLES", "page", "run"]

# What the founding project published stands beside ours; no more is asked than the thresholds.
_task = partial(Task, trainer="ppo", compiled=True, judged=False)

PPO, GRU, FORGETFUL = "PPO", "PPO, a GRU", "PPO, no memory"
# An agent without memory is right half the time. All agents play the same episodes: the mean of 100
# of them lies within three of its deviations, 0.05 each, of that.
CHANCE = 0.5 + 3 * 0.05

TASKS = (
    _task(
        "CartPole-v1", PPO, "cartpole", 300_000, 475, mean=False, enough=SEEDS,
        published=(200_000, 498.9),
    ),
    _task("Acrobot-v1", PPO, "acrobot", 300_000, -90, published=(300_000, -81.3)),
    _task("Pendulum-v1", PPO, "pendulum", 300_000, -250, published=(300_000, -174.9)),
    _task("MountainCarContinuous-v0", PPO, "mountaincar_continuous", 300_000, None),
    _task("loopless/Memory-v0", GRU, "memory_gru", 100_000, 0.98),
    _task("loopless/Memory-v0", FORGETFUL, "memory_forgetful", 100_000, None, most=CHANCE),
    _task(
        "LunarLander-v3", PPO, "lunarlander", 300_000, 180, published=(300_000, 183.3),
        needs="Box2D",
    ),
    # It was published without its steps.
    _task(
        "HalfCheetah-v5", PPO, "halfcheetah", 1_000_000, None, published=(1_000_000, 6241),
        needs="mujoco",
    ),
)  # fmt: skip

MODES = Modes.of(TASKS[0])
QUICK = replace(TASKS[0], steps=50_000, seeds=1, short=True)


def run(options: Options, result: Result, say: Say) -> None:
    """Train everything. Rows are renewed as runs end; Ctrl-C passes through."""
    run_tasks(TASKS, MODES, QUICK, options, result, say)
