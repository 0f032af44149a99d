"""The suite `avatarl_learning`: train a critic, then students with every loss, over seeds.

This takes more than half an hour: the JSON is written after each run, and finished runs are not
made again (`suites.dqn_learning.runs`).
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from loopless.bench.result import Measurement, Result
from loopless.bench.suites import Options, Say
from loopless.bench.targets import Rows, at_most, attach, stated
from pages import NOT_RUN, Lines, markdown_table, section
from suites.dqn_learning import runs as making
from suites.dqn_learning.runs import Outcome, Outcomes, RunFailed, Runs
from suites.dqn_learning.tasks import PRESETS, Job

TITLES = {"learning": "Validation cross-entropy after equal tokens, averaged over seeds"}


CRITIC_RUN = "critic"  # the name of its run
SEEDS = 3
STEPS = 3000
QUICK_STEPS = 100
TOKENS_A_STEP = 8 * 64  # in the presets: windows of an update × tokens of a window


def text_job(
    name: str, preset: str, *flags: str, steps: int | None = None, critic: str = ""
) -> Job:
    """Return the job of a preset, a student's if it has a critic; `steps` is not the preset's."""
    path, trainer = PRESETS / "avatarl" / f"{preset}.toml", "avatarl" if critic else "lm"
    flags += ("--steps", str(steps)) if steps is not None else ()
    return Job(name, trainer, path, flags, critic=critic, placed=True)


@dataclass(frozen=True)
class Student:
    """A row: students with one loss, which differ by seed."""

    label: str
    name: str  # of its runs
    flags: tuple[str, ...]

    def jobs(self, seeds: int = SEEDS, steps: int | None = None) -> list[Job]:
        job = partial(text_job, steps=steps, critic=CRITIC_RUN)
        return [
            job(f"{self.name}-seed{seed}", "student", *self.flags, "--seed", str(seed))
            for seed in range(seeds)
        ]


def critic_job(steps: int | None = None) -> Job:
    return text_job(CRITIC_RUN, "critic", steps=steps)


STUDENTS = (
    Student("AvataRL, fixed", "fixed", ("--variant", "fixed")),
    Student("AvataRL, original", "original", ("--variant", "original")),
    Student("AvataRL, subset", "subset", ("--variant", "subset")),
    Student("AvataRL, full", "full", ("--variant", "full")),
    Student("cross-entropy to AvataRL's target", "soft", ("--loss", "soft")),
    Student("distillation of the critic", "distillation", ("--loss", "distillation")),
    Student("cross-entropy to the text", "ce", ("--loss", "ce")),
)


def run(options: Options, result: Result, say: Say) -> None:
    """Train critic and students. Rows are updated as runs end; Ctrl-C passes through."""
    runs = Runs.of(result, options.threads, quick=options.quick, evaluation=read_log)
    train(runs, options, result, say)


def train(runs: Runs, options: Options, result: Result, say: Say) -> None:
    """Train the critic, then the students, as many at once as there are threads."""
    steps = QUICK_STEPS if options.quick else None
    critic = critic_job(steps)
    seeds, students = (1, STUDENTS[:1]) if options.quick else (SEEDS, STUDENTS)
    jobs = {each.label: each.jobs(seeds, steps) for each in students}
    tokens = (steps or STEPS) * TOKENS_A_STEP
    case = f"0.2M parameters, {tokens / 1e6:.2g}M tokens"
    result.settings |= {"seeds": seeds, "tokens": tokens, "cores_for_a_run": 1}

    def rows(outcomes: Outcomes) -> list[Measurement]:
        for outcome in made(outcomes)[:1]:
            result.settings["corpus"] = outcome.details["corpus"]
        return rows_of(case, {CRITIC: [critic]} | jobs, outcomes)

    def describe(outcome: Outcome) -> str:
        return f"{outcome.final[0]['validation_per_character']:.3f} {UNIT}"

    groups = [critic], [job for of_student in jobs.values() for job in of_student]
    making.make_runs(runs, groups, rows, describe, options, result, say)


def made(outcomes: Outcomes) -> list[Outcome]:
    """Return the outcomes of the runs that did not fail."""
    return [outcome for outcome in outcomes.values() if isinstance(outcome, Outcome)]


def page(result: Result) -> list[Lines]:
    """Lay out the results page: how each contender ended, and on which text."""
    rows, corpus = section(result, "learning"), result.settings["corpus"]
    head = ["learned by", "seeds", "nats a character", "range", "nats a token", "tokens/s"]
    size, digest = f"{corpus['bytes'] / 1e6:.1f} MB", corpus["sha256"][:12]
    case = rows[0].case if rows else ""
    return [
        markdown_table(head, map(_cells, rows), "lrrrrr"),
        [f"{case}; {corpus['name']}, {size}, SHA-256 {digest}…."],
    ]


def _cells(row: Measurement) -> list[str]:
    final = row.details.get("final")
    if row.value is None or not final:
        value = row.status if row.value is None else f"{row.value:.3f}"
        return [row.contender, NOT_RUN, value, *[NOT_RUN] * 3]
    each = [score["validation_per_character"] for score in final]
    per_token = statistics.fmean(score["validation_loss"] for score in final)
    speed = statistics.median(row.details["tokens_per_s"])
    cells = [f"{row.value:.3f}", f"{min(each):.3f} … {max(each):.3f}", f"{per_token:.3f}"]
    return [row.contender, str(len(each)), *cells, f"{speed:,.0f}"]


CRITIC = "the critic: a language model of the same size"
CHARACTERS = "character trigram"
TOKEN_TRIGRAM = "trigram of the same tokens"
UNIT = "nats per character"
PLAIN = STUDENTS[-1].label


def rows_of(case: str, runs: Mapping[str, Sequence[Job]], outcomes: Outcomes) -> list[Measurement]:
    """Return the rows of all runs that have ended, and of the trigram models."""
    ended = [_row(case, name, jobs, outcomes) for name, jobs in runs.items()]
    rows = [row for row in ended if row is not None]
    if not made(outcomes):
        return rows
    (final,) = made(outcomes)[0].final
    for name, key in ((CHARACTERS, "character_trigram"), (TOKEN_TRIGRAM, "token_trigram")):
        row = Measurement("learning", case, name, "numpy", "yardstick", unit=UNIT)
        rows.append(replace(row, value=final.get(f"{key}_per_character"), samples=1))
    return judge(rows)


def judge(rows: Rows) -> list[Measurement]:
    """Judge that all beat the character trigram; state the distance to plain cross-entropy."""
    value = {row.contender: row.value for row in rows}
    known, plain = value.get(CHARACTERS), value.get(PLAIN)
    mine = [row.contender for row in rows if row.role == "ours" and row.value is not None]
    for name in mine:
        targets = []
        if known is not None:
            targets.append(at_most(known, value[name], f"{known:.3f}, the {CHARACTERS}"))
        if plain is not None and name not in (PLAIN, CRITIC):
            apart = (value[name] or 0.0) - plain
            targets.append(stated(apart, f"{UNIT} more than {PLAIN}"))
        rows = attach(rows, name, targets)
    return list(rows)


def _row(case: str, name: str, jobs: Sequence[Job], outcomes: Outcomes) -> Measurement | None:
    row = Measurement("learning", case, name, "loopless", "ours", unit=UNIT)
    return making.row_of_jobs(row, jobs, outcomes, _describe)


def _describe(made: list[Outcome]) -> tuple[dict[str, Any], Sequence[float]]:
    details = making.details_of(made) | {
        "tokens_per_s": [round(outcome.details["tokens_per_s"]) for outcome in made],
        "curve_tokens": made[0].curve_steps,
        "curve_losses": [losses for outcome in made for losses in outcome.curve_returns],
    }
    return details, [score["validation_per_character"] for score in details["final"]]


def read_log(path: str, episodes: int = 0) -> dict[str, Any]:
    """Return the fields of an outcome that a run's log and data tell; there are no episodes."""
    from loopless.runs.metrics import read
    from loopless.text.dataset import ABOUT
    from loopless.train.lm.data import FOLDER

    folder = Path(path)
    rows = list(read(folder / "metrics.jsonl"))
    validated = [row for row in rows if "validation_loss" in row]
    if not validated:
        raise RunFailed(f"{folder.name}: no validation in its log")
    speeds = [row["tokens_per_second"] for row in rows if "tokens_per_second" in row]
    last = validated[-1]
    return {
        "final": [{x: last[x] for x in last if x.endswith(("_loss", "_per_character"))}],
        "best": [],
        "curve_steps": [row["tokens"] for row in validated],
        "curve_returns": [[row["validation_loss"] for row in validated]],
        "details": {
            # The first chunk compiles.
            "tokens_per_s": statistics.median(speeds[1:] or speeds),
            "corpus": json.loads((folder / FOLDER / ABOUT).read_text(encoding="utf-8"))["corpus"],
        },
    }
