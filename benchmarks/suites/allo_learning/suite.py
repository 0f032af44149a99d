"""What the suite `allo_learning` runs: every result over its seeds, each run once.

By the code of `bench.learning`: what has ended is not made again. Imports that and the tasks.
Tests: `tests/suites/allo_learning/test_bench_allo_learning.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from loopless.bench import machine
from loopless.bench.result import Measurement, Result, save
from loopless.bench.suites import Options, Say
from pages import NOT_RUN, Lines, command, markdown_table
from suites.allo_learning import promises
from suites.allo_learning.tasks import MAZES, QUICK, Task, tasks
from suites.dqn_learning.runs import Outcome, RunFailed, Runs
from suites.dqn_learning.tasks import RUNS

EVALUATION = "suites.allo_learning.evaluation"

TITLES = {
    "result 1": "Mazes of corridors that ALLO learns and GGDO does not: similarity to the truth",
    "result 2": "Rooms and mazes: similarity to the true eigenvectors",
    "result 3": "Eigenvalues by the multipliers",
    "result 4": "Outputs permuted midway, and barriers from 0.1 to 10",
    "result 5": "One-way doors: similarity to the correct vectors of the asymmetric walk",
    "result 6": "From pixels",
}


def run(options: Options, result: Result, say: Say) -> None:
    """Train everything. Rows are renewed as runs end; Ctrl-C passes through."""
    result.settings |= {"cores_for_a_run": 1, "layouts_of_the_paper": options.grids is not None}
    result.machine = machine.describe()
    commit = (result.machine["commit"] or {}).get("id", "installed")[:9]
    folder = Path.cwd() / RUNS / result.suite / commit
    runs = Runs(folder, options.threads, commit, EVALUATION)
    if options.grids is None:
        say(f"allo_learning: without --grids DIR the paper's {' and '.join(MAZES)} are left out")
    train(runs, QUICK if options.quick else tasks(options.grids), options, result, say)


def train(runs: Runs, wanted: Sequence[Task], options: Options, result: Result, say: Say) -> None:
    """Make the runs of the tasks; after each the rows are made anew, and written."""
    jobs = dict.fromkeys(task.job for task in wanted)
    outcomes: dict = {}
    say(f"{result.suite}: {len(jobs)} run(s), {options.threads} at once")
    for job, outcome in runs.outcomes(jobs):
        outcomes[job] = outcome
        say(f"{len(outcomes)}/{len(jobs)} {told(job.name, outcome)}")
        rows = [promises.row_of(task, outcomes) for task in wanted]
        result.measurements = [row for row in rows if row is not None]
        if options.json:
            save(result, options.json)


def told(name: str, outcome: Outcome | RunFailed) -> str:
    if isinstance(outcome, RunFailed):
        return str(outcome)
    final = ", ".join(f"{score:.4f}" for score in outcome.final)
    return f"{name}: {final} at the end, {outcome.wall_s:.0f} s. {outcome.command}"


def page(result: Result) -> list[Lines]:
    """Lay out the results page: how every task ended, and by which command."""
    head = ["learned", "by", "agents", "similarity", "agents' range", "seconds", "command"]
    return [markdown_table(head, map(_cells, result.measurements), "llrrrrl")]


def _cells(row: Measurement) -> list[str]:
    if row.value is None:
        return [row.case, row.contender, NOT_RUN, row.status, NOT_RUN, NOT_RUN, command(row)]
    final, seconds = row.details["final"], f"{row.details['wall_s']:.0f}"
    scores = [f"{row.value:.4f}", f"{min(final):.4f} … {max(final):.4f}"]
    return [row.case, row.contender, str(len(final)), *scores, seconds, command(row)]
