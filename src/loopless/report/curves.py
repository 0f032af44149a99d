"""Curves over steps, in SVG: lines, bands and axes that follow the theme and the width of a page.

The drawing is stretched to the room there is, its strokes are not; labels are HTML beside it.
Imports `markup` and `runs.series`. Tests: `tests/report/test_report_charts.py`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from loopless.report.markup import Markup, join, tag
from loopless.runs.pictures import series
from loopless.runs.progress.quantities import count, number

POINTS = 300
FEW = 30  # points that are drawn as points, too
WIDTH, HEIGHT = 1000.0, 400.0
COLOURS = 6


class Named(NamedTuple):
    """A curve and what it is called."""

    name: str
    curve: series.Curve


def chart(title: str, unit: str, named: Sequence[Named], *, logarithmic: bool = False) -> Markup:
    """One picture of curves that share a unit."""
    box = _Box(named, logarithmic)
    drawn = [piece for colour, one in enumerate(named) for piece in box.drawn(one.curve, colour)]
    y_labels = [
        tag("span", number_of(y), style=f"top:{100 * box.y(y) / HEIGHT:.2f}%") for y in box.y_ticks
    ]
    x_labels = [
        tag(
            "span",
            count(x),
            style=f"left:{100 * box.x(x) / WIDTH:.2f}%",
            class_="last" if box.x(x) > 0.96 * WIDTH else "first" if box.x(x) < 40 else None,
        )
        for x in box.x_ticks
    ]
    svg = tag(
        "svg",
        *(tag("line", x1=0, x2=WIDTH, y1=f"{box.y(y):.1f}", y2=f"{box.y(y):.1f}", class_="grid")
          for y in box.y_ticks),
        *drawn,
        viewBox=f"0 0 {WIDTH:.0f} {HEIGHT:.0f}",
        preserveAspectRatio="none",
        role="img",
        aria_label=_said(title, named),
    )  # fmt: skip
    return tag(
        "figure",
        tag("figcaption", tag("b", title), " ", tag("span", unit, class_="faint"), _legend(named)),
        tag(
            "div",
            tag("div", join(y_labels), class_="y"),
            svg,
            tag("div", join(x_labels), class_="x"),
            class_="plot",
        ),
        class_="curve",
    )


def number_of(value: float) -> str:
    """A number at a tick: 500, 0.25, 1.5k, 1e-05."""
    if value == 0 or 1e-3 <= abs(value) < 1000:
        return f"{value:.4g}"
    return f"{value:.0e}" if abs(value) < 1e-3 else count(value)


def ticks(low: float, high: float, most: int = 5) -> list[float]:
    """Round numbers between two, about evenly spread."""
    if not high > low:
        return [low]
    rough = (high - low) / most
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(k * power for k in (1, 2, 2.5, 5, 10) if k * power >= rough * 0.999)
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [k * step for k in range(first, last + 1)]


class _Box:
    """The room of a picture: from numbers to places in it."""

    def __init__(self, named: Sequence[Named], logarithmic: bool):
        curves = [one.curve for one in named]
        edges = [edge for c in curves for edge in (c.line, c.low, c.high) if edge is not None]
        values = np.concatenate(edges)
        values = values[np.isfinite(values)]
        low, high = float(values.min()), float(values.max())
        self.log = logarithmic and low > 0 and high > 50 * low
        if self.log:
            low, high = math.log10(low), math.log10(high)
        room = 0.05 * (high - low) or 0.05 * abs(high) or 1.0
        self.low, self.high = low - room, high + room
        self.first = float(min(c.steps[0] for c in curves))
        self.last = float(max(c.steps[-1] for c in curves))
        if self.last == self.first:
            self.first, self.last = self.first - 1, self.last + 1
        self.x_ticks = [x for x in ticks(self.first, self.last, 4) if x >= self.first]
        found = ticks(self.low, self.high, 4)
        self.y_ticks = self._decades() if self.log else found

    def _decades(self) -> list[float]:
        whole = range(math.ceil(self.low), math.floor(self.high) + 1)
        stride = math.ceil(len(whole) / 5) or 1
        return [10.0**power for power in whole[::stride]] or [10 ** ((self.low + self.high) / 2)]

    def x(self, step: float) -> float:
        return WIDTH * (step - self.first) / (self.last - self.first)

    def y(self, value: float) -> float:
        at = math.log10(value) if self.log else value
        return HEIGHT * (1 - (at - self.low) / (self.high - self.low))

    def points(self, steps: np.ndarray, values: np.ndarray) -> list[str]:
        return [
            f"{self.x(x):.1f},{self.y(y):.1f}"
            for x, y in zip(steps.tolist(), values.tolist(), strict=True)
            if math.isfinite(y) and not (self.log and y <= 0)
        ]

    def drawn(self, curve: series.Curve, colour: int) -> list[Markup]:
        """The band, the line, and the points if they are few."""
        steps, line = thinned(curve.steps), thinned(curve.line)
        shade, pieces = f"c{colour % COLOURS}", []
        if curve.low is not None and curve.high is not None:
            there = self.points(steps, thinned(curve.low))
            back = self.points(steps[::-1], thinned(curve.high)[::-1])
            pieces.append(tag("polygon", points=" ".join(there + back), class_=f"band {shade}"))
        points = self.points(steps, line)
        if len(points) <= FEW:
            # A stroke without length is a round dot whatever the picture is stretched to.
            dots = " ".join(f"M{point}h0" for point in points)
            pieces.append(tag("path", d=dots, class_=f"dots {shade}"))
        pieces.append(tag("polyline", points=" ".join(points), class_=f"line {shade}"))
        return pieces


def thinned(values: np.ndarray) -> np.ndarray:
    return series.thin(np.asarray(values, np.float64), POINTS)


def _legend(named: Sequence[Named]) -> Markup | None:
    if len(named) < 2 and not any(one.curve.band or one.curve.seeds > 1 for one in named):
        return None
    entries = [
        tag("span", tag("i", class_=f"c{colour % COLOURS}"), _name(one))
        for colour, one in enumerate(named)
    ]
    return tag("span", *entries, class_="legend")


def _name(one: Named) -> str:
    if one.curve.seeds > 1:
        return f"{one.name} (IQM of {one.curve.seeds} seeds, 95% band)"
    return f"{one.name} ({one.curve.band})" if one.curve.band else one.name


def _said(title: str, named: Sequence[Named]) -> str:
    ends = ", ".join(f"{one.name} ends at {number(float(one.curve.line[-1]))}" for one in named)
    return f"{title}: {ends}"
