"""Rows from outcomes, and what they have to be. Nothing here trains.

Imports `targets` and `tasks`. Tests: `tests/suites/avatarl_learning/test_bench_text_learning.py`.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from loopless.bench.result import Measurement
from loopless.bench.targets import Rows, at_most, attach, stated
from suites.avatarl_learning.outcomes import Text
from suites.avatarl_learning.tasks import STUDENTS, Student, TextJob
from suites.dqn_learning.runs import RunFailed

Outcomes = Mapping[TextJob, Text | RunFailed]
CRITIC = "the critic: a language model of the same size"
CHARACTERS = "character trigram"
TOKENS = "trigram of the same tokens"
UNIT = "nats per character"
AVATARL, PLAIN = STUDENTS[0].label, STUDENTS[-1].label


def rows_of(
    case: str, critic: TextJob, students: Mapping[Student, Sequence[TextJob]], outcomes: Outcomes
) -> list[Measurement]:
    """All rows that can be made of what has ended."""
    found = [_row(case, CRITIC, [critic], outcomes)]
    found += [_row(case, each.label, jobs, outcomes) for each, jobs in students.items()]
    rows = [row for row in found if row is not None]
    made = [one for one in outcomes.values() if isinstance(one, Text)]
    if not made:
        return rows
    final = made[0].final
    for name, key in ((CHARACTERS, "character_trigram"), (TOKENS, "token_trigram")):
        row = Measurement("learning", case, name, "numpy", "yardstick", unit=UNIT)
        rows.append(replace(row, value=final.get(f"{key}_per_character"), samples=1))
    return judged(rows)


def judged(rows: Rows) -> list[Measurement]:
    """Everyone beats the trigram of characters; how far from plain cross-entropy is stated."""
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


def _row(case: str, name: str, jobs: Sequence[TextJob], outcomes: Outcomes) -> Measurement | None:
    ended = [outcomes[job] for job in jobs if job in outcomes]
    if not ended:
        return None
    row = Measurement("learning", case, name, "loopless", "ours", unit=UNIT, note=jobs[0].command)
    failed = [one for one in ended if isinstance(one, RunFailed)]
    if failed:
        return replace(row, status="failed", reason="; ".join(map(str, failed)))
    made = [one for one in ended if isinstance(one, Text)]
    losses = [one.final["validation_per_character"] for one in made]
    low, high = losses[0], losses[0]
    if len(losses) > 1:
        low, _, high = statistics.quantiles(losses, n=4, method="inclusive")
    return replace(
        row,
        value=statistics.fmean(losses),
        lower_quartile=low,
        upper_quartile=high,
        samples=len(losses),
        details=_details(made),
    )


def _details(made: Sequence[Text]) -> dict[str, Any]:
    return {
        "commands": [one.command for one in made],
        "settings": made[0].settings,
        "commits": [one.commit for one in made],
        "wall_s": [round(one.wall_s, 1) for one in made],
        "final": [one.final for one in made],
        "tokens_per_s": [round(one.tokens_per_s) for one in made],
        "curve_tokens": made[0].curve_tokens,
        "curve_losses": [one.curve_losses for one in made],
        "sample": made[0].sample,
    }
