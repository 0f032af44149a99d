"""Rows from outcomes, and what they have to be. Nothing here trains.

Imports `targets` and `tasks`. Tests:
`tests/suites/allo_learning/test_bench_allo_learning.py`.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from loopless.bench.result import Measurement, Target
from loopless.bench.targets import at_least, at_most
from suites.allo_learning.tasks import Task
from suites.dqn_learning.runs import Outcome, RunFailed

UNIT = "similarity"


def row_of(task: Task, outcomes: Mapping[Any, Outcome | RunFailed]) -> Measurement | None:
    """A task's row, if its run has ended."""
    outcome = outcomes.get(task.job)
    if outcome is None:
        return None
    section = f"result {task.number}"
    row = Measurement(section, task.label, task.agent, "loopless", "ours", unit=UNIT)
    row = replace(row, note=task.job.command)
    if isinstance(outcome, RunFailed):
        return replace(row, status="failed", reason=str(outcome))
    final = outcome.final
    low, high = final[0], final[0]
    if len(final) > 1:
        low, _, high = statistics.quantiles(final, n=4, method="inclusive")
    details = {
        "settings": outcome.settings,
        "commit": outcome.commit,
        "wall_s": round(outcome.wall_s, 1),
        "final": final,
        "best": outcome.best,
        "curve_steps": outcome.curve_steps,
        "curves": outcome.curve_returns,
        **outcome.details,
    }
    return replace(
        row, value=statistics.fmean(final), lower_quartile=low, upper_quartile=high,
        samples=len(final), details=details, targets=tuple(targets(task, outcome)),
    )  # fmt: skip


def targets(task: Task, outcome: Outcome) -> Iterator[Target]:
    """What is asked of a run that ended. Similarities are given in per cent, to be readable."""
    final = [100 * score for score in outcome.final]
    if task.each is not None:
        yield at_least(100 * task.each, min(final), f"{task.each:.1%} similar, each agent")
    if task.mean is not None:
        yield at_least(100 * task.mean, statistics.fmean(final), f"{task.mean:.1%}, on average")
    if task.most is not None:
        yield at_most(100 * task.most, statistics.fmean(final), f"{task.most:.1%}, on average")
    if task.spread is not None:
        apart = max(final) - min(final)
        yield at_most(100 * task.spread, apart, f"{100 * task.spread:g} points apart")
    if task.percent is not None:
        what = f"{task.percent:g} % error of eigenvalues 2 … d, the worst of all agents"
        yield at_most(task.percent, 100 * worst_error(outcome), what)
    if task.first is not None:
        first = max(abs(values[0]) for values in outcome.details["eigenvalue"])
        yield at_most(1000 * task.first, 1000 * first, f"{task.first:g} × 1000, eigenvalue 1")


def worst_error(outcome: Outcome) -> float:
    """The largest relative error of an eigenvalue after the first."""
    truth = outcome.details["true_eigenvalue"]
    return max(
        abs(value - true) / true
        for values in outcome.details["eigenvalue"]
        for value, true in list(zip(values, truth, strict=True))[1:]
    )
