"""Rows from outcomes, and what they have to be. Nothing here trains.

Imports `targets` and `tasks`. Tests: `tests/bench/learning/test_bench_learning_promises.py`.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from loopless.bench.learning.runs import Outcome, RunFailed
from loopless.bench.learning.tasks import COMPILED_JOB, ENOUGH, HOSTED_JOBS, SEEDS, Job, Task
from loopless.bench.result import Measurement
from loopless.bench.targets import at_least, at_most, stated

Outcomes = Mapping[Job, Outcome | RunFailed]
HOSTED, COMPILED = "hosted", "compiled"
MODES = 10.0  # per cent that the areas may differ by


def row_of(task: Task, outcomes: Outcomes) -> Measurement | None:
    """A task's row from the jobs that have ended; None if none has."""
    row = _row("learning", task.label, task.agent, task.jobs, outcomes)
    if row is None or row.value is None:
        return row
    scores = row.details["final"]
    if len(scores) < SEEDS:
        return replace(row, targets=(stated(row.value, f"mean return of {len(scores)} run(s)"),))
    reached = sum(score >= task.threshold for score in scores)
    what = f"{ENOUGH} of {SEEDS} seeds at {task.threshold:g} or more"
    targets = [at_least(ENOUGH, reached, what)]
    if task.mean:
        targets.append(at_least(task.threshold, row.value, f"{task.threshold:g} on average"))
    if task.published:
        steps, score = task.published
        there = row.value if steps == task.steps else at_step(row, steps)
        what = f"{score:g} at {steps:,} steps, as published"
        targets.append(at_least(score, there, what))
    return replace(row, targets=tuple(targets))


def at_step(row: Measurement, steps: int) -> float | None:
    """The mean return of evaluations during training, read off the curves at so many steps."""
    at = row.details["curve_steps"]
    if not at or not at[0] <= steps <= at[-1]:
        return None
    return statistics.fmean(float(np.interp(steps, at, x)) for x in row.details["curve_returns"])


def mode_rows(case: str, outcomes: Outcomes) -> list[Measurement]:
    """Mean areas under the learning curves of both modes, and by how much they differ."""
    rows = []
    for name, jobs in ((HOSTED, HOSTED_JOBS), (COMPILED, (COMPILED_JOB,))):
        row = _row("modes", case, name, jobs, outcomes)
        if row is None:
            continue
        if row.value is not None:
            areas = [area(row.details["curve_steps"], x) for x in row.details["curve_returns"]]
            row = _spread(replace(row, details={**row.details, "areas": areas}), areas)
        rows.append(row)
    found = {row.contender: row for row in rows if row.value is not None}
    agents = [len(row.details["areas"]) for row in found.values()]
    if agents != [len(HOSTED_JOBS)] * 2:
        return rows
    one, other = found[HOSTED].value or 0.0, found[COMPILED].value or 0.0
    target = at_most(MODES, 100 * abs(one - other) / abs(one), f"{MODES:g} % from {HOSTED}")
    return [replace(r, targets=(target,)) if r.contender == COMPILED else r for r in rows]


def area(steps: Sequence[int], returns: Sequence[float]) -> float:
    """Under the curve, divided by its length: a mean return over training."""
    return float(np.trapezoid(returns, steps) / (steps[-1] - steps[0]))


def _row(
    section: str, case: str, name: str, jobs: Sequence[Job], outcomes: Outcomes
) -> Measurement | None:
    ended = [outcomes[job] for job in jobs if job in outcomes]
    made = [one for one in ended if isinstance(one, Outcome)]
    failed = [one for one in ended if isinstance(one, RunFailed)]
    if not ended:
        return None
    row = Measurement(section, case, name, "loopless", "ours", unit="return", note=jobs[0].command)
    if failed:
        return replace(row, status="failed", reason="; ".join(map(str, failed)))
    final = [score for one in made for score in one.final]
    details = {
        "commands": [one.command for one in made],
        "settings": made[0].settings,
        "commits": [one.commit for one in made],
        "wall_s": [round(one.wall_s, 1) for one in made],
        "final": final,
        "best": [score for one in made for score in one.best],
        "curve_steps": made[0].curve_steps,
        "curve_returns": [curve for one in made for curve in one.curve_returns],
    }
    return _spread(replace(row, details=details), final)


def _spread(row: Measurement, values: Sequence[float]) -> Measurement:
    """The mean of `values` as the row's, with their quartiles."""
    low, high = values[0], values[0]
    if len(values) > 1:
        low, _, high = statistics.quantiles(values, n=4, method="inclusive")
    mean = statistics.fmean(values)
    return replace(row, value=mean, lower_quartile=low, upper_quartile=high, samples=len(values))
