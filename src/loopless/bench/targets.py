"""How a promise is judged: a limit, what was measured, and whether it holds. Nothing here measures.

What each suite promises stands in its `promises`. Imports `result`. Tests: those of the suites'
promises, such as `tests/suites/replay/test_bench_replay_promises.py`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from loopless.bench.result import Measurement, Target

Rows = Sequence[Measurement]


def at_most(limit: float, measured: float | None, what: str) -> Target:
    return Target(f"≤ {what}", measured, None if measured is None else measured <= limit)


def at_least(limit: float, measured: float | None, what: str) -> Target:
    return Target(f"≥ {what}", measured, None if measured is None else measured >= limit)


def stated(measured: float | None, what: str) -> Target:
    """A number worth knowing of which nothing was promised."""
    return Target(f"stated: {what}", measured, None)


def ratio(value: float | None, other: float | None) -> float | None:
    return value / other if value and other else None


def hang(rows: Rows, name: str, targets: Sequence[Target]) -> list[Measurement]:
    """The rows, with these targets on the contender `name`, after those it has already."""
    return [
        replace(row, targets=(*row.targets, *targets)) if row.contender == name else row
        for row in rows
    ]


def speeds(rows: Rows) -> dict[str, float | None]:
    """How fast each contender was: its rate, or one over its time."""
    return {row.contender: _speed(row) for row in rows}


def _speed(row: Measurement) -> float | None:
    if not row.value:
        return None
    return 1 / row.value if row.unit == "s" else row.value


def as_fast(rows: Rows, name: str, factors: Mapping[str, float]) -> list[Target]:
    """So many times as fast as each of these."""
    found = speeds(rows)
    return [
        at_least(
            factor, ratio(found.get(name), found.get(other)), f"{factor:g} × as fast as {other}"
        )
        for other, factor in factors.items()
    ]


def as_rate(row: Measurement, count: int, unit: str) -> Measurement:
    """A row of seconds a call as one of so many things a second, `count` of them in a call."""
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
