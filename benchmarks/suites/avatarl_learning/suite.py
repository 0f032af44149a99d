"""What the suite `avatarl_learning` runs: a critic, then students of every loss over the seeds.

Half an hour and more: the JSON is written after each run, and finished runs are not made again
(`outcomes`). Imports the shared core. Tests:
`tests/suites/avatarl_learning/test_bench_text_learning.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from loopless.bench import machine
from loopless.bench.result import Result, save
from loopless.bench.suites import Options, Say
from suites.avatarl_learning import promises, tasks
from suites.avatarl_learning.outcomes import Text, TextRuns
from suites.avatarl_learning.tasks import TextJob
from suites.dqn_learning.runs import RunFailed
from suites.dqn_learning.tasks import RUNS


def run(options: Options, result: Result, say: Say) -> None:
    """Train everyone. Rows are renewed as runs end; Ctrl-C passes through."""
    result.machine = machine.describe()
    commit = (result.machine["commit"] or {}).get("id", "installed")[:9]
    folder = Path.cwd() / RUNS / result.suite / (f"{commit}-quick" if options.quick else commit)
    train(lambda: TextRuns(folder, options.threads, commit), options, result, say)


def train(new_runs: Callable[[], TextRuns], options: Options, result: Result, say: Say) -> None:
    """The critic, and once it is there the students, so many at once as there are threads."""
    steps = tasks.QUICK_STEPS if options.quick else None
    critic = tasks.critic(steps)
    seeds, students = (1, tasks.STUDENTS[:1]) if options.quick else (tasks.SEEDS, tasks.STUDENTS)
    jobs = {each: each.jobs(seeds, steps) for each in students}
    everyone = [critic, *(job for own in jobs.values() for job in own)]
    tokens = (steps or tasks.STEPS) * tasks.TOKENS_A_STEP
    case = f"0.2M parameters, {tokens / 1e6:.2g}M tokens"
    result.settings |= {"seeds": seeds, "tokens": tokens, "cores_for_a_run": 1}
    outcomes: dict[TextJob, Text | RunFailed] = {}
    say(f"{result.suite}: {len(everyone)} run(s), {options.threads} at once")
    for group in ([critic], everyone[1:]):
        for job, outcome in new_runs().text_outcomes(group):
            outcomes[job] = outcome
            say(f"{len(outcomes)}/{len(everyone)} {told(job, outcome)}")
            if isinstance(outcome, Text):
                result.settings["corpus"] = outcome.corpus
            result.measurements = promises.rows_of(case, critic, jobs, outcomes)
            if options.json:
                save(result, options.json)
        if isinstance(outcomes[critic], RunFailed):
            return


def told(job: TextJob, outcome: Text | RunFailed) -> str:
    if isinstance(outcome, RunFailed):
        return str(outcome)
    loss = outcome.final["validation_per_character"]
    return f"{job.name}: {loss:.3f} {promises.UNIT}, {outcome.wall_s:.0f} s. {job.command}"
