"""The suite `allo_learning`: the ALLO paper's results on Laplacian representations, over seeds.

The tasks are in `tasks.py`. `suites.dqn_learning.runs` makes the runs, and makes none twice.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from operator import itemgetter
from pathlib import Path
from typing import Any

import numpy as np

from loopless.bench.result import Measurement, Result, Target
from loopless.bench.suites import Options, Say
from loopless.bench.targets import at_least, at_most
from pages import Lines, markdown_table, outcome_cells
from suites.allo_learning.tasks import MAZES, QUICK, Task, tasks
from suites.dqn_learning.runs import Outcome, Outcomes, Runs, make_runs, row_of_jobs

TITLES = {
    "result 1": "Mazes of corridors that ALLO learns and GGDO does not: similarity to the truth",
    "result 2": "Rooms and mazes: similarity to the true eigenvectors",
    "result 3": "Eigenvalues by the multipliers",
    "result 4": "Outputs permuted midway, and barriers from 0.1 to 10",
    "result 5": "One-way doors: similarity to the correct vectors of the asymmetric walk",
    "result 6": "From pixels",
}


def run(options: Options, result: Result, say: Say) -> None:
    """Train everything. Rows are updated as runs end; Ctrl-C passes through."""
    result.settings |= {"cores_for_a_run": 1, "layouts_of_the_paper": options.grids is not None}
    runs = Runs.of(result, options.threads, evaluation=evaluate)
    if options.grids is None:
        say(f"allo_learning: without --grids DIR the paper's {' and '.join(MAZES)} are left out")
    wanted = QUICK if options.quick else tasks(options.grids)
    make_runs(
        runs,
        [[task.job for task in wanted]],
        lambda outcomes: [row_of(task, outcomes) for task in wanted],
        lambda outcome: ", ".join(f"{score:.4f}" for score in outcome.final) + " at the end",
        options,
        result,
        say,
    )


def page(result: Result) -> list[Lines]:
    """Lay out the results page: how every task ended, and by which command."""
    head = ["learned", "by", "agents", "similarity", "agents' range", "seconds", "command"]
    rows = [outcome_cells(row, 4, itemgetter("wall_s")) for row in result.measurements]
    return [markdown_table(head, rows, "llrrrrl")]


def row_of(task: Task, outcomes: Outcomes) -> Measurement | None:
    """Return a task's row, if its run has ended."""
    section = f"result {task.number}"
    row = Measurement(section, task.label, task.agent, "loopless", "ours", unit="similarity")
    row = row_of_jobs(row, [task.job], outcomes, _describe)
    if row is None or row.value is None:
        return row
    return replace(row, targets=tuple(targets(task, row.details)))


def _describe(made: list[Outcome]) -> tuple[dict[str, Any], Sequence[float]]:
    (outcome,) = made
    details = {
        "settings": outcome.settings,
        "commit": outcome.commit,
        "wall_s": round(outcome.wall_s, 1),
        "final": outcome.final,
        "best": outcome.best,
        "curve_steps": outcome.curve_steps,
        "curves": outcome.curve_returns,
        **outcome.details,
    }
    return details, outcome.final


def targets(task: Task, details: Mapping[str, Any]) -> Iterator[Target]:
    """Yield the targets of a run that has ended; similarities are in per cent, to be readable."""
    final = [100 * score for score in details["final"]]
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
        yield at_most(task.percent, 100 * worst_error(details), what)
    if task.first is not None:
        first = max(abs(values[0]) for values in details["eigenvalue"])
        yield at_most(1000 * task.first, 1000 * first, f"{task.first:g} × 1000, eigenvalue 1")


def worst_error(details: Mapping[str, Any]) -> float:
    """Return the largest relative error of an eigenvalue after the first."""
    truth = details["true_eigenvalue"]
    return max(
        abs(value - true) / true
        for values in details["eigenvalue"]
        for value, true in list(zip(values, truth, strict=True))[1:]
    )


def evaluate(path: str, episodes: int = 0) -> dict[str, Any]:
    """Return each agent's similarity at the end and at its best, its curve, and eigenvalues.

    There are no episodes: the log has all of it.
    """
    from loopless.runs.metrics import columns, read
    from loopless.runs.pictures import snapshots

    folder = Path(path)
    log = columns(read(folder / "metrics.jsonl"))
    curves = log["similarity"].mean(2)  # [rows, agents]
    truth = snapshots.history(folder)[-1]["kernel_eigenvalues"]
    eigenvalues = log["eigenvalue"][-1]
    return {
        "final": curves[-1].tolist(),
        "best": np.nanmax(curves, 0).tolist(),
        "curve_steps": log["step"].tolist(),
        "curve_returns": np.round(curves.T, 5).tolist(),
        "details": {
            "similarity": np.round(log["similarity"][-1], 5).tolist(),
            "eigenvalue": eigenvalues.tolist(),
            "true_eigenvalue": truth[: eigenvalues.shape[1]].tolist(),
            "barrier": np.atleast_1d(log["barrier"][-1]).tolist(),
        },
    }
