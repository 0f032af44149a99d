"""What the suite `ppo_training` measures, section by section.

The shape of it is that of `bench.training`. Imports its contenders and promises, and the shared
core. Tests: `tests/suites/ppo_speed/test_bench_ppo_training.py`.
"""

from __future__ import annotations

from functools import partial

from loopless.bench.contest import Contest
from loopless.bench.result import Headline, Result
from loopless.bench.suites import Options, Say
from loopless.bench.timing import Budget
from pages import Lines, grid, section
from suites.dqn_speed.ours import COMPILED
from suites.dqn_speed.promises import judge_steps
from suites.dqn_speed.sections import number, race
from suites.dqn_speed.settings import PPOTraining
from suites.ppo_speed import loop, peers, promises, shares, solve
from suites.processes import prepare_like_training

SLICE, QUICK_SLICE = PPOTraining(5_120), PPOTraining(1_024)  # whole rollouts
SEEDS = 5
COMMAND = "loopless train ppo"

TITLES = {
    "steps": "CartPole-v1 by PPO, learning as it goes: steps a second",
    "solve": "Seconds until CartPole-v1 is solved",
    "shares": "The updates of one rollout, and their pieces apart",
}
HEADLINES = tuple(
    Headline(
        f"PPO on CartPole, {what}", "steps", "[64, 64], 4 envs × 128 steps, 4 × 4 updates", ours,
        (("Stable-Baselines3", "Stable-Baselines3"), ("SBX", "SBX")),
    )
    for what, ours in (
        ("compiled", "loopless, compiled"),
        ("any Gymnasium environment", "loopless, hosted"),
    )
)  # fmt: skip


def run(options: Options, result: Result, say: Say) -> None:
    """Measure everything. Rows are added to `result` as they come; Ctrl-C passes through."""
    budget = Budget(sample_s=0.5, total_s=2.0) if options.quick else Budget(2.0, total_s=24.0)
    contest = Contest(result, budget, say)
    prepare_like_training(options.threads)
    case = QUICK_SLICE if options.quick else SLICE
    result.settings |= peers.options(case) | {"env": case.config().env, "n_envs": case.envs}
    result.settings |= {"steps_in_a_call": case.steps, "jax_async_dispatch": False}
    measure_steps(case, options, contest)
    measure_shares(case, contest)
    if not options.quick:
        measure_solve(contest)


def measure_steps(case: PPOTraining, options: Options, contest: Contest) -> None:
    others = [*peers.CONTENDERS, loop.CONTENDER] if options.peers else []
    race(case, others, partial(judge_steps, case, factors=promises.FASTER), contest)


def measure_shares(case: PPOTraining, contest: Contest) -> None:
    """Calls of some microseconds: they need no long samples."""
    budget = contest.budget
    contest = contest.with_budget(sample_s=budget.sample_s / 10, total_s=budget.total_s / 6)
    contest.run("shares", shares.Pieces(case), shares.CONTENDERS, promises.state_shares)


def measure_solve(contest: Contest) -> None:
    seconds: list[float] = []

    def slowest() -> float:
        seconds.extend(solve.compiled_s(seed) for seed in range(SEEDS))
        return max(seconds)

    label = f"a mean of {solve.SOLVED:g} over {solve.EPISODES} episodes, {solve.IN_A_ROW} times "
    label += "in a row, compiled before"
    row = number(contest, "solve", label, COMPILED, "loopless", slowest, "s")
    contest.result.measurements.append(promises.judge_compiled(row, seconds))
    label = "the whole command, all cores, imports and compilation included"
    row = number(contest, "solve", label, COMMAND, "loopless", solve.command_s, "s")
    contest.result.measurements.append(promises.judge_command(row))


def page(result: Result) -> list[Lines]:
    """Lay out the results page: steps a second, seconds until solved, pieces of an update."""
    return [
        grid("CartPole-v1 by PPO", section(result, "steps")),
        grid("until solved", section(result, "solve"), "case", "contender"),
        grid("updates of one rollout", section(result, "shares")),
    ]
