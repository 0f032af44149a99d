"""What the suite `avatarl_learning` runs: a critic, then students of every loss over the seeds.

Half an hour and more: the JSON is written after each run, and finished runs are not made again
(`outcomes`). Imports the shared core. Tests:
`tests/suites/avatarl_learning/test_bench_text_learning.py`.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable
from pathlib import Path

from loopless.bench import machine
from loopless.bench.result import Measurement, Result, save
from loopless.bench.suites import Options, Say
from pages import NOT_RUN, Lines, markdown_table, section
from suites.avatarl_learning import promises, tasks
from suites.avatarl_learning.outcomes import Text, TextRuns
from suites.avatarl_learning.tasks import TextJob
from suites.dqn_learning.runs import RunFailed
from suites.dqn_learning.tasks import RUNS

TITLES = {"learning": "Validation cross-entropy after equal tokens, averaged over seeds"}
SAMPLED = 600  # characters of a sample that are shown


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


def page(result: Result) -> list[Lines]:
    """Lay out the results page: how everyone ended, and what the first students write."""
    rows, corpus = section(result, "learning"), result.settings["corpus"]
    head = ["learned by", "seeds", "nats a character", "range", "nats a token", "tokens/s"]
    size, digest = f"{corpus['bytes'] / 1e6:.1f} MB", corpus["sha256"][:12]
    case = rows[0].case if rows else ""
    parts = [
        markdown_table(head, map(_cells, rows), "lrrrrr"),
        [f"{case}; {corpus['name']}, {size}, SHA-256 {digest}…."],
    ]
    for row in rows:
        if sample := row.details.get("sample"):
            text = as_text(sample[:SAMPLED].rstrip())
            parts.append([f"{row.contender}, of the first seed:", "", "```python", text, "```"])
    return parts


def as_text(sample: str) -> str:
    """Return what a model wrote with control characters by their signs (␀ … ␟)."""
    shown = (c if c in "\n\t" or c >= " " else chr(0x2400 + ord(c)) for c in sample)
    return "".join(shown).replace("```", "'''")


def _cells(row: Measurement) -> list[str]:
    final = row.details.get("final")
    if row.value is None or not final:
        value = row.status if row.value is None else f"{row.value:.3f}"
        return [row.contender, NOT_RUN, value, *[NOT_RUN] * 3]
    each = [score["validation_per_character"] for score in final]
    per_token = statistics.fmean(score["validation_loss"] for score in final)
    speed = statistics.median(row.details["tokens_per_s"])
    span = f"{min(each):.3f} … {max(each):.3f}"
    return [
        row.contender,
        str(len(each)),
        f"{row.value:.3f}",
        span,
        f"{per_token:.3f}",
        f"{speed:,.0f}",
    ]
