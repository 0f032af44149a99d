"""The suite `ppo_speed`: PPO against peers in steps a second, and how soon it solves CartPole.

It is built like `dqn_speed`, and uses its `slices.py`. The updates of one rollout, taken apart, are
in `pieces.py`; the loop written plainly is in `plain.py`, other libraries in `peers.py`.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import replace
from time import perf_counter
from typing import Any

import numpy as np

from loopless.bench.contest import Contest
from loopless.bench.result import Measurement, Result
from loopless.bench.suites import Options, Say
from loopless.bench.targets import Rows, at_most, attach, ratio, stated, values
from pages import Lines, grid, section
from suites.dqn_speed import slices
from suites.dqn_speed.slices import COMPILED, HOSTED, OVERLAPPED, PPOTraining, number_row
from suites.ppo_speed import peers
from suites.ppo_speed.pieces import FORWARD, GRADIENT, PIECES, RETURNS, WHOLE, Pieces
from suites.ppo_speed.plain import CONTENDER as EAGER_LOOP
from suites.processes import run_and_read

SLICE, QUICK_SLICE = PPOTraining(5_120), PPOTraining(1_024)  # whole rollouts
SEEDS = 5
COMMAND = "loopless train ppo"

TITLES = {
    "steps": "CartPole-v1 by PPO, learning as it goes: steps a second",
    "solve": "Seconds until CartPole-v1 is solved",
    "shares": "The updates of one rollout, and their pieces apart",
}
HEADLINES = slices.headlines("PPO", SLICE)

FASTER: slices.Factors = {HOSTED: 6.0, COMPILED: 30.0, OVERLAPPED: None}
COMPILED_S, COMMAND_S = 5.0, 20.0
SOLVED = 475.0
EPISODES = 100  # of an evaluation
IN_A_ROW = 5  # evaluations: an early policy may succeed once by luck


def run(options: Options, result: Result, say: Say) -> None:
    """Measure everything. Rows are added to `result` as they come; Ctrl-C passes through."""
    case = QUICK_SLICE if options.quick else SLICE
    settings = peers.options(case) | {"n_envs": case.envs}
    contest = slices.start(case, settings, options, result, say)
    measure_steps(case, contest)
    measure_shares(case, contest)
    if not options.quick:
        measure_solve(contest)


def page(result: Result) -> list[Lines]:
    """Lay out the results page: steps a second, seconds until solved, pieces of an update."""
    return [
        grid("CartPole-v1 by PPO", section(result, "steps")),
        grid("until solved", section(result, "solve"), "case", "contender"),
        grid("updates of one rollout", section(result, "shares")),
    ]


def measure_steps(case: PPOTraining, contest: Contest) -> None:
    slices.race_slices(case, [*peers.CONTENDERS, EAGER_LOOP], FASTER, contest)


def measure_shares(case: PPOTraining, contest: Contest) -> None:
    """Time an update and its pieces; the calls are short, and so are the samples."""
    budget = contest.budget
    contest = contest.with_budget(sample_s=budget.sample_s / 10, total_s=budget.total_s / 6)
    contest.run("shares", Pieces(case), PIECES, state_shares)


def measure_solve(contest: Contest) -> None:
    seconds: list[float] = []

    def slowest() -> float:
        seconds.extend(time_compiled(seed) for seed in range(SEEDS))
        return max(seconds)

    label = f"a mean of {SOLVED:g} over {EPISODES} episodes, {IN_A_ROW} times "
    row = number_row("solve", f"{label}in a row, compiled before", COMPILED, "loopless", "s")
    contest.keep([judge_compiled(contest.measure(row, slowest), seconds)])
    label = "the whole command, all cores, imports and compilation included"
    row = number_row("solve", label, COMMAND, "loopless", "s")
    contest.keep([judge_command(contest.measure(row, time_command))])


def judge_compiled(row: Measurement, seconds: Sequence[float]) -> Measurement:
    """Judge the slowest seed; the row's value becomes the median over seeds."""
    if row.value is None:
        return replace(row, targets=(at_most(COMPILED_S, None, f"{COMPILED_S:g} s"),))
    target = at_most(COMPILED_S, max(seconds), f"{COMPILED_S:g} s, the slowest seed")
    details, median = {"seconds": list(seconds)}, statistics.median(seconds)
    return replace(row, value=median, samples=len(seconds), targets=(target,), details=details)


def judge_command(row: Measurement) -> Measurement:
    return replace(row, targets=(at_most(COMMAND_S, row.value, f"{COMMAND_S:g} s"),))


def state_shares(rows: Rows) -> list[Measurement]:
    """State each piece's per cent of the whole; backward is the gradient less forward."""
    times = values(rows)
    forward, both = times.get(FORWARD), times.get(GRADIENT)
    backward = both - forward if both and forward else None
    pieces = {RETURNS: times.get(RETURNS), FORWARD: forward, "backward": backward}
    shares = {name: ratio(seconds, times.get(WHOLE)) for name, seconds in pieces.items()}
    return attach(
        rows,
        WHOLE,
        [stated(x and 100 * x, f"% of the whole: {name}") for name, x in shares.items()],
    )


def time_compiled(seed: int, **changes: Any) -> float:
    """Return the seconds of a run with default settings until it stays solved.

    Evaluations, one after every chunk, are included; everything has been compiled before.
    """
    from loopless.runs.checkpoint import Checkpoint
    from loopless.runs.progress.clock import Clock
    from loopless.train import ppo
    from loopless.train.ppo.config import PPO

    run = ppo.make(PPO(mode="compiled", seed=seed, eval_episodes=EPISODES, **changes))
    clock = Clock()
    arrays = {name: np.array(x) for name, x in run.arrays().items()}
    run.advance(clock)
    run.evaluate()
    run.restore(Checkpoint("start", 0, "full", arrays, {}))
    start, solved = perf_counter(), 0
    while run.step < run.total:
        run.advance(clock)
        solved = solved + 1 if np.mean(run.evaluate()["eval_return"]) >= SOLVED else 0
        if solved == IN_A_ROW:
            return perf_counter() - start
    raise RuntimeError(f"seed {seed} was not solved in {run.total:,} steps")


def time_command() -> float:
    """Return the seconds of `loopless train ppo` on all cores, from its start to its end."""
    seconds, log = run_and_read("train", "ppo", kind="eval")
    last = float(log["eval_return"][-1])
    if last < SOLVED:
        raise RuntimeError(f"the run ended with a return of {last:g}, not {SOLVED:g}")
    return seconds
