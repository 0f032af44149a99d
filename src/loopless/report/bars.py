"""Bars on a logarithmic scale, in SVG: one chart a case, with a name and a number a bar.

Lengths are in per cent and names in HTML, so that a chart fits a phone without small print.
Imports `markup`, and `bench` for what a row is. Tests: `tests/report/test_report_charts.py`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from loopless.bench.result import Measurement
from loopless.bench.table import best, is_rate, quantity, ratio, times
from loopless.report.markup import Markup, join, tag

MOST_TICKS = 5
SHORTEST = 1.5  # per cent, so that the least bar can be seen


class Scale:
    """From the decade below the smallest number to the decade above the largest."""

    def __init__(self, values: Sequence[float]):
        logs = [math.log10(value) for value in values if value > 0] or [0.0]
        self.low = math.floor(min(logs) - 0.05)  # a bar at the edge would have no length
        self.high = max(math.ceil(max(logs)), self.low + 1)

    def at(self, value: float) -> float:
        """Where a number stands, in per cent."""
        place = (math.log10(value) - self.low) / (self.high - self.low) if value > 0 else 0.0
        return max(SHORTEST, min(100.0, 100 * place))

    def decades(self) -> list[float]:
        """Powers of ten that are marked, so many that their labels keep apart."""
        stride = math.ceil((self.high - self.low) / MOST_TICKS)
        return [10.0**power for power in range(self.low, self.high + 1, stride)]


def chart(rows: Sequence[Measurement], scale: Scale, of: str) -> Markup:
    """The bars of one case, in the order of its rows; `of` says in words what they show."""
    unit = next(row.unit for row in rows)
    ours = best(rows, "ours")
    bars = [_bar(row, ours, scale) for row in rows]
    better = "longer is better" if is_rate(unit) else "shorter is better"
    return tag(
        "div",
        tag("div", *bars, _axis(scale, unit), class_="bars", role="img", aria_label=of),
        tag("p", f"Logarithmic scale; {better}.", class_="faint"),
    )


def _bar(row: Measurement, ours: Measurement | None, scale: Scale) -> Markup:
    wrong = row.status == "disagrees"
    name = tag("span", row.contender, class_="name")
    if not row.value:
        said = f"{row.status}: {row.reason}" if row.reason else row.status
        return tag("div", name, tag("span", said, class_="reason"), class_="bar missing")
    width = f"{scale.at(row.value):.2f}%"
    drawn = tag(
        "svg",
        *(_line(scale, decade) for decade in scale.decades()),
        tag("rect", tag("title", _said(row)), x=0, y=3, height=10, width=width, rx=2),
        width="100%",
        height=16,
        aria_hidden="true",
    )
    beside = times(ratio(ours, row)) if ours and row.role not in ("ours", "floor") else None
    value = tag(
        "span",
        quantity(row.value, row.unit),
        " wrong" if wrong else None,
        tag("b", beside) if beside and not wrong else None,
        class_="value",
    )
    return tag("div", name, drawn, value, class_=f"bar {'wrong' if wrong else row.role}")


def _line(scale: Scale, decade: float) -> Markup:
    x = f"{100 * (math.log10(decade) - scale.low) / (scale.high - scale.low):.2f}%"
    return tag("line", x1=x, x2=x, y1=0, y2=16)


def _axis(scale: Scale, unit: str) -> Markup:
    labels = [
        tag(
            "span",
            _decade(decade, unit),
            style=f"left:{100 * (math.log10(decade) - scale.low) / (scale.high - scale.low):.2f}%",
            class_="last" if decade == 10.0**scale.high else None,
        )
        for decade in scale.decades()
    ]
    return tag("div", tag("span"), tag("div", join(labels), class_="ticks"), class_="bar axis")


def _decade(value: float, unit: str) -> str:
    """1 µs, 10 ms, 100k/s: a power of ten with its unit."""
    power = round(math.log10(value))
    if unit == "s":
        name, step = {-3: ("ns", -9), -2: ("µs", -6), -1: ("ms", -3)}.get(power // 3, ("s", 0))
        return f"{10 ** (power - step):,} {name}" if power >= step else f"{value:g} {name}"
    for name, step in (("G", 9), ("M", 6), ("k", 3)):
        if power >= step:
            return f"{10 ** (power - step)}{name}"
    return f"{value:g}"


def _said(row: Measurement) -> str:
    """All that was measured of a row."""
    assert row.value is not None
    parts = [f"{row.contender}: {quantity(row.value, row.unit)}"]
    if row.lower_quartile and row.upper_quartile and row.samples > 1:
        low, high = quantity(row.lower_quartile, row.unit), quantity(row.upper_quartile, row.unit)
        parts.append(f"quartiles {low} to {high} of {row.samples} samples")
    return "; ".join([*parts, *filter(None, (row.note, row.reason))])
