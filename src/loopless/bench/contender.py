"""A contender: something that computes GAE, its place in the table, and how to check it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any

from loopless.bench.result import Measurement, Role
from loopless.bench.rollout import Answers, Rollout, largest_error
from loopless.bench.timing import Budget, Race, Timing


@dataclass(frozen=True)
class Call:
    """What is timed, and how its output reads as NumPy (advantages, returns), both [T, B].

    `answers` is None for a call that answers nothing.
    """

    run: Callable[[], Any]
    answers: Callable[[Any], Answers] | None


@dataclass(frozen=True)
class Contender:
    """`prepare` imports what it needs and lays the arrays out as it likes them, untimed."""

    name: str
    library: str
    role: Role
    prepare: Callable[[Rollout], Call]
    tolerance: float = 2e-5
    note: str = ""
    claim: str = ""
    most_steps: int | None = None


@dataclass
class Entry:
    """A contender at the start line: its row so far, and its call if there is one to time."""

    row: Measurement
    call: Callable[[], Any] | None = None


def enter(contender: Contender, section: str, rollout: Rollout, right: Answers) -> Entry:
    """Prepare a contender and check its answers. Whatever goes wrong ends up in its row."""
    row = Measurement(
        section=section,
        steps=rollout.steps,
        envs=rollout.envs,
        contender=contender.name,
        library=contender.library,
        role=contender.role,
        note=contender.note,
        claim=contender.claim,
    )
    most = contender.most_steps
    if most is not None and rollout.steps * rollout.envs > most:
        return Entry(replace(row, status="skipped", reason=f"slow: not run over {most:,} steps"))
    try:
        call = contender.prepare(rollout)
        output = call.run()
        error = 0.0 if call.answers is None else largest_error(call.answers(output), right)
    except ImportError as problem:
        return Entry(replace(row, status="unavailable", reason=_first_line(problem)))
    except Exception as problem:
        reason = f"{type(problem).__name__}: {_first_line(problem)}"
        return Entry(replace(row, status="failed", reason=reason))
    if call.answers is None:
        return Entry(row, call.run)
    if error <= contender.tolerance:
        return Entry(replace(row, max_error=error), call.run)
    finite = error if math.isfinite(error) else None
    wrong = "not finite" if finite is None else f"off by up to {error:.2g}"
    reason = f"answers are {wrong}; {contender.tolerance:g} is allowed"
    return Entry(replace(row, status="disagrees", max_error=finite, reason=reason), call.run)


def race(
    entries: Iterable[Entry], budget: Budget, between: Callable[[], None] = lambda: None
) -> tuple[list[Measurement], bool]:
    """Time the entries against each other: their rows, and whether Ctrl-C ended it early."""
    entries = list(entries)
    calls = {e.row.contender: e.call for e in entries if e.call is not None}
    contest = Race(calls, budget, between=between)
    interrupted = False
    try:
        contest.run()
    except KeyboardInterrupt:
        interrupted = True
    timings = contest.timings()
    return [_timed(entry.row, timings.get(entry.row.contender)) for entry in entries], interrupted


def _timed(row: Measurement, timing: Timing | None) -> Measurement:
    if timing is None:
        return row
    return replace(
        row,
        value=timing.median,
        lower_quartile=timing.lower_quartile,
        upper_quartile=timing.upper_quartile,
        samples=timing.samples,
        calls_per_sample=timing.calls_per_sample,
    )


def _first_line(problem: BaseException) -> str:
    return (str(problem).strip() or type(problem).__name__).splitlines()[0]
