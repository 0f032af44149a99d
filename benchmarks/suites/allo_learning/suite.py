"""What the suite `allo_learning` runs: every result over its seeds, each run once.

By the code of `bench.learning`: what has ended is not made again. Imports that and the tasks.
Tests: `tests/suites/allo_learning/test_bench_allo_learning.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from loopless.bench import machine
from loopless.bench.result import Result, save
from loopless.bench.suites import Options, Say
from suites.allo_learning import promises
from suites.allo_learning.tasks import MAZES, QUICK, Task, tasks
from suites.dqn_learning.runs import Outcome, RunFailed, Runs
from suites.dqn_learning.tasks import RUNS

EVALUATION = "suites.allo_learning.evaluation"


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
