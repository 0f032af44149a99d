"""What the suite `learning` runs: every task over its seeds, then both modes against each other.

Half an hour and more: the JSON is written after each run, and finished runs are not made again
(`runs`). Imports the shared core. Tests: `tests/bench/learning/test_bench_learning.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from loopless.bench import machine
from loopless.bench.learning import promises
from loopless.bench.learning.runs import Outcome, RunFailed, Runs
from loopless.bench.learning.tasks import (
    COMPILED_JOB,
    EPISODES,
    HOSTED_JOBS,
    QUICK,
    RUNS,
    TASKS,
    Job,
    Task,
)
from loopless.bench.result import Result, save
from loopless.bench.suites import Options, Say


def run(options: Options, result: Result, say: Say) -> None:
    """Train everything. Rows are renewed as runs end; Ctrl-C passes through."""
    result.settings |= {"episodes": EPISODES, "cores_for_a_run": 1}
    result.machine = machine.describe()
    commit = (result.machine["commit"] or {}).get("id", "installed")
    runs = Runs(Path.cwd() / RUNS / commit[:9], options.threads, commit[:9])
    if options.quick:
        train(runs, [QUICK], False, options, result, say)
    else:
        train(runs, TASKS, True, options, result, say)


def train(
    runs: Runs, tasks: Sequence[Task], modes: bool, options: Options, result: Result, say: Say
) -> None:
    """Make the runs of the tasks, and if asked for those that compare the modes.

    After each run the rows are made anew of all that have ended, and written.
    """
    jobs = [job for task in tasks for job in task.jobs]
    jobs = dict.fromkeys([*jobs, *((*HOSTED_JOBS, COMPILED_JOB) if modes else ())])
    outcomes: dict[Job, Outcome | RunFailed] = {}
    say(f"learning: {len(jobs)} run(s), {options.threads} at once")
    for job, outcome in runs.outcomes(jobs):
        outcomes[job] = outcome
        say(f"{len(outcomes)}/{len(jobs)} {told(job, outcome)}")
        rows = [promises.row_of(task, outcomes) for task in tasks]
        rows += promises.mode_rows(TASKS[0].label, outcomes) if modes else []
        result.measurements = [row for row in rows if row is not None]
        if options.json:
            save(result, options.json)


def told(job: Job, outcome: Outcome | RunFailed) -> str:
    if isinstance(outcome, RunFailed):
        return str(outcome)
    final = ", ".join(f"{score:.2f}" for score in outcome.final)
    return f"{job.name}: {final} at the end, {outcome.wall_s:.0f} s. {job.command}"
