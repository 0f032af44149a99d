"""Judge rows by tables of limits: the promises that many suites make in the same words."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from loopless.bench.result import Measurement, Role
from loopless.bench.targets import Rows, as_rate, at_most, attach, ratio, speeds, stated, values


def limit(
    rows: Rows, limits: Mapping[str, float] | float, what: str, scale: float = 1.0, of: str = ""
) -> list[Measurement]:
    """Judge that each contender's number, times `scale`, is at most its limit, or one for all.

    With `of` the number is divided by that of the contender `of`. The target says the limit and
    `what`, for instance "2 × the floor".
    """
    measured = values(rows)
    if not isinstance(limits, Mapping):
        limits = dict.fromkeys(measured, limits)
    for name, most in limits.items():
        number = measured.get(name)
        number = ratio(number, measured.get(of)) if of else number
        target = at_most(most, number and scale * number, f"{most:g} {what}")
        rows = attach(rows, name, [target])
    return list(rows)


def fastest(rows: Rows, *roles: Role) -> tuple[str, float | None]:
    """Return the name and the seconds of the fastest contender with one of these roles."""
    times = {row.contender: row.value for row in rows if row.role in roles and row.value}
    name = min(times, key=lambda name: times[name], default="no peer was measured")
    return name, times.get(name)


def as_rates(rows: Rows, count: Callable[[str], int], unit: str) -> list[Measurement]:
    """Convert times of calls to rates: `count(contender)` things are done in a call."""
    return [as_rate(row, count(row.contender), unit) for row in rows]


def gains(rows: Rows, first: str, what: str) -> list[Measurement]:
    """State how many times as fast each contender is as `first`, which the targets call `what`."""
    speed = speeds(rows)
    for name in speed.keys() - {first}:
        gain = ratio(speed[name], speed.get(first))
        rows = attach(rows, name, [stated(gain, f"× as fast as {what}")])
    return list(rows)


def per_item(row: Measurement, count: int, extra_s: float = 0.0) -> Measurement:
    """Convert seconds per call to seconds per item, `count` of them in a call, plus `extra_s`."""

    def share(seconds: float | None) -> float | None:
        return None if seconds is None else seconds / count + extra_s

    low, high = share(row.lower_quartile), share(row.upper_quartile)
    return replace(row, value=share(row.value), lower_quartile=low, upper_quartile=high)
