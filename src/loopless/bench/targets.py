"""Judge promises: compare measured numbers with limits. Nothing here measures.

Each suite's own promises are in its `suite.py`, as tables of limits and as functions that take
rows and return them with targets attached.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from loopless.bench.result import Measurement, Target

Rows = Sequence[Measurement]


def at_most(limit: float, measured: float | None, what: str) -> Target:
    """Return the target that the measured number is `limit` or less."""
    return Target(f"≤ {what}", measured, None if measured is None else measured <= limit)


def at_least(limit: float, measured: float | None, what: str) -> Target:
    """Return the target that the measured number is `limit` or more."""
    return Target(f"≥ {what}", measured, None if measured is None else measured >= limit)


def stated(measured: float | None, what: str) -> Target:
    """Return a target without a limit: a number worth knowing, about which nothing was promised."""
    return Target(f"stated: {what}", measured, None)


def ratio(value: float | None, other: float | None) -> float | None:
    """Return value / other, or None where either was not measured."""
    return value / other if value and other else None


def attach(rows: Rows, name: str, targets: Iterable[Target]) -> list[Measurement]:
    """Return the rows, with these targets added to those of the contender `name`."""
    targets = tuple(targets)
    return [
        replace(row, targets=(*row.targets, *targets)) if row.contender == name else row
        for row in rows
    ]


def values(rows: Rows) -> dict[str, float | None]:
    """Return the measured number of each contender."""
    return {row.contender: row.value for row in rows}


def speeds(rows: Rows) -> dict[str, float | None]:
    """Return how fast each contender was: its rate, or one over its time."""
    return {
        row.contender: row.value if not row.value or row.unit != "s" else 1 / row.value
        for row in rows
    }


def as_fast(rows: Rows, name: str, factors: Mapping[str, float]) -> list[Target]:
    """Return the targets that `name` is `factors[other]` times as fast as each `other`."""
    speed = speeds(rows)
    return [
        at_least(
            factor, ratio(speed.get(name), speed.get(other)), f"{factor:g} × as fast as {other}"
        )
        for other, factor in factors.items()
    ]


def beside(rows: Rows, name: str, others: Iterable[str], what: str = "") -> list[Target]:
    """Return, as targets without a limit, how many times as fast `name` is as each of `others`."""
    speed = speeds(rows)
    return [
        stated(ratio(speed.get(name), speed.get(other)), f"{what}× as fast as {other}")
        for other in others
    ]


def as_rate(row: Measurement, count: int, unit: str) -> Measurement:
    """Convert seconds per call to a rate: `count` things are done in a call."""
    if row.value is None or row.unit != "s":
        return row
    low, high = row.lower_quartile, row.upper_quartile
    return replace(
        row,
        unit=unit,
        value=count / row.value,
        lower_quartile=None if high is None else count / high,
        upper_quartile=None if low is None else count / low,
    )
