"""The suite `dqn_learning`: presets over several seeds.

This takes more than half an hour: the JSON is written after each run, and finished runs are not
made again (`runs.py`). The tasks are in `tasks.py`. The suite `ppo_learning` uses this code, too.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from loopless.bench.result import Measurement, Result, Target
from loopless.bench.suites import Options, Say
from loopless.bench.targets import at_least, at_most, stated
from pages import Lines, markdown_table, outcome_cells, section
from suites.dqn_learning import runs as making
from suites.dqn_learning.runs import Outcome, Outcomes, Runs
from suites.dqn_learning.tasks import EPISODES, QUICK, TASKS, Task

TITLES = {
    "learning": "Mean return of the last weights over 100 episodes, averaged over seeds",
}


def run(options: Options, result: Result, say: Say) -> None:
    """Train everything. Rows are updated as runs end; Ctrl-C passes through."""
    run_tasks(TASKS, QUICK, options, result, say)


def run_tasks(
    tasks: Sequence[Task], quick: Task, options: Options, result: Result, say: Say
) -> None:
    """Run a trainer's tasks; with --quick, only the task `quick`."""
    result.settings |= {"episodes": EPISODES, "cores_for_a_run": 1}
    train(
        Runs.of(result, options.threads), [quick] if options.quick else tasks, options, result, say
    )


def train(runs: Runs, tasks: Sequence[Task], options: Options, result: Result, say: Say) -> None:
    """Make the runs of the tasks."""

    def describe(outcome: Outcome) -> str:
        return ", ".join(f"{score:.2f}" for score in outcome.final) + " at the end"

    making.make_runs(
        runs,
        [[job for task in tasks for job in task.jobs]],
        lambda outcomes: [row_of(task, outcomes) for task in tasks],
        describe,
        options,
        result,
        say,
    )


def page(result: Result) -> list[Lines]:
    """Lay out the results page: how every task ended, and by which command."""
    head = ["trained", "by", "seeds", "final return", "seeds' range", "seconds a run", "command"]
    return [markdown_table(head, map(_cells, section(result, "learning")), "llrrrrl")]


def _cells(row: Measurement) -> list[str]:
    digits = 2 if abs(row.value or 0.0) < 10 else 1
    return outcome_cells(row, digits, lambda details: statistics.median(details["wall_s"]))


def row_of(task: Task, outcomes: Outcomes) -> Measurement | None:
    """Return a task's row from the jobs that have ended; None if none has."""
    row = Measurement("learning", task.label, task.agent, "loopless", "ours", unit="return")
    if task.missing:
        return replace(row, status="unavailable", reason=f"No module named {task.needs!r}")
    row = making.row_of_jobs(row, task.jobs, outcomes, _describe)
    if row is None or row.value is None:
        return row
    scores = row.details["final"]
    if len(scores) < max(task.seeds, task.enough):
        return replace(row, targets=(stated(row.value, f"mean return of {len(scores)} run(s)"),))
    return replace(row, targets=tuple(_targets(task, row)))


def _targets(task: Task, row: Measurement) -> Iterator[Target]:
    """Yield the targets of a row that has all its seeds."""
    scores, limit = row.details["final"], task.threshold
    if limit is not None:
        reached = sum(score >= limit for score in scores)
        what = f"{task.enough} of {task.seeds} seeds at {limit:g} or more"
        yield at_least(task.enough, reached, what)
    if limit is not None and task.mean:
        yield at_least(limit, row.value, f"{limit:g} on average")
    if task.most is not None:
        yield at_most(task.most, row.value, f"{task.most:g} on average")
    if task.published:
        steps, score = task.published
        there = row.value if steps == task.steps else at_step(row, steps)
        if task.judged:
            yield at_least(score, there, f"{score:g} at {steps:,} steps, as published")
        else:
            yield stated(there, f"mean return at {steps:,} steps; {score:g} is published")
    elif limit is None and task.most is None:
        yield stated(row.value, f"mean return of {len(scores)} seed(s)")


def at_step(row: Measurement, steps: int) -> float | None:
    """Return the mean evaluation return after `steps` steps, interpolated on the curves."""
    at = row.details["curve_steps"]
    if not at or not at[0] <= steps <= at[-1]:
        return None
    return statistics.fmean(float(np.interp(steps, at, x)) for x in row.details["curve_returns"])


def _describe(made: list[Outcome]) -> tuple[dict[str, Any], Sequence[float]]:
    details = making.details_of(made) | {
        "best": [score for outcome in made for score in outcome.best],
        "curve_steps": made[0].curve_steps,
        "curve_returns": [curve for outcome in made for curve in outcome.curve_returns],
    }
    return details, details["final"]
