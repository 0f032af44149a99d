"""What the suite `learning` runs: every task over its seeds, then both modes against each other.

Half an hour and more: the JSON is written after each run, and finished runs are not made again
(`runs`). Imports the shared core. Tests: `tests/suites/dqn_learning/test_bench_learning.py`.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from pathlib import Path

from loopless.bench import machine
from loopless.bench.result import Measurement, Result, save
from loopless.bench.suites import Options, Say
from pages import NOT_RUN, Lines, command, markdown_table, section
from suites.dqn_learning import promises
from suites.dqn_learning.runs import Outcome, RunFailed, Runs
from suites.dqn_learning.tasks import EPISODES, MODES, QUICK, RUNS, TASKS, Job, Modes, Task

TITLES = {
    "learning": "Mean return of the last weights over 100 episodes, averaged over seeds",
    "modes": "Mean area under the learning curve",
}


def run(options: Options, result: Result, say: Say) -> None:
    """Train everything. Rows are renewed as runs end; Ctrl-C passes through."""
    run_tasks(TASKS, MODES, QUICK, options, result, say)


def run_tasks(
    tasks: Sequence[Task], modes: Modes, quick: Task, options: Options, result: Result, say: Say
) -> None:
    """The tasks of one trainer and the comparison of its modes; or one short task."""
    result.settings |= {"episodes": EPISODES, "cores_for_a_run": 1}
    result.machine = machine.describe()
    commit = (result.machine["commit"] or {}).get("id", "installed")
    folder = Path.cwd() / RUNS / result.suite / commit[:9]
    runs = Runs(folder, options.threads, commit[:9])
    if options.quick:
        train(runs, [quick], None, options, result, say)
    else:
        train(runs, tasks, modes, options, result, say)


def train(
    runs: Runs,
    tasks: Sequence[Task],
    modes: Modes | None,
    options: Options,
    result: Result,
    say: Say,
) -> None:
    """Make the runs of the tasks, and if there are any those that compare the modes.

    After each run the rows are made anew of all that have ended, and written.
    """
    jobs = [job for task in tasks for job in task.jobs]
    jobs = dict.fromkeys([*jobs, *(modes.jobs if modes else ())])
    outcomes: dict[Job, Outcome | RunFailed] = {}
    say(f"{result.suite}: {len(jobs)} run(s), {options.threads} at once")
    for job, outcome in runs.outcomes(jobs):
        outcomes[job] = outcome
        say(f"{len(outcomes)}/{len(jobs)} {told(job, outcome)}")
        rows = [promises.row_of(task, outcomes) for task in tasks]
        rows += promises.mode_rows(modes, outcomes) if modes else []
        result.measurements = [row for row in rows if row is not None]
        if options.json:
            save(result, options.json)


def told(job: Job, outcome: Outcome | RunFailed) -> str:
    if isinstance(outcome, RunFailed):
        return str(outcome)
    final = ", ".join(f"{score:.2f}" for score in outcome.final)
    return f"{job.name}: {final} at the end, {outcome.wall_s:.0f} s. {job.command}"


def page(result: Result) -> list[Lines]:
    """Lay out the results page: how every task ended, and by which command."""
    head = ["trained", "by", "seeds", "final return", "seeds' range", "seconds a run", "command"]
    return [markdown_table(head, map(_cells, section(result, "learning")), "llrrrrl")]


def _cells(row: Measurement) -> list[str]:
    if row.value is None:
        return [row.case, row.contender, NOT_RUN, row.status, NOT_RUN, NOT_RUN, command(row)]
    final, digits = row.details["final"], 2 if abs(row.value) < 10 else 1
    lowest, highest = f"{min(final):.{digits}f}", f"{max(final):.{digits}f}"
    seconds = f"{statistics.median(row.details['wall_s']):.0f}"
    mean = f"{row.value:.{digits}f}"
    shown = [str(len(final)), mean, f"{lowest} … {highest}", seconds]
    return [row.case, row.contender, *shown, command(row)]
