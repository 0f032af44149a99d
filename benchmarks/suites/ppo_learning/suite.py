"""The suite `ppo_learning`: PPO's presets over several seeds, and how well they end.

It uses the code of `dqn_learning`, also for its page.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from loopless.bench.result import Result
from loopless.bench.suites import Options, Say
from suites.dqn_learning.suite import TITLES, page, run_tasks
from suites.dqn_learning.tasks import SEEDS, Task

__all__ = ["TITLES", "page", "run"]

# Published returns of the project that loopless began with are only stated beside ours: judged are
# the thresholds alone.
_task = partial(Task, trainer="ppo", compiled=True, judged=False)

PPO, GRU, FORGETFUL = "PPO", "PPO, a GRU", "PPO, no memory"
# An agent without memory is right half the time. All agents play the same 100 episodes, so the
# standard deviation of their mean is 0.05; three of them are allowed.
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
    # Its return was published without the number of steps.
    _task(
        "HalfCheetah-v5", PPO, "halfcheetah", 1_000_000, None, published=(1_000_000, 6241),
        needs="mujoco",
    ),
)  # fmt: skip

QUICK = replace(TASKS[0], steps=50_000, seeds=1, short=True)


def run(options: Options, result: Result, say: Say) -> None:
    """Train everything. Rows are updated as runs end; Ctrl-C passes through."""
    run_tasks(TASKS, QUICK, options, result, say)
