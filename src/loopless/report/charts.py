"""Draw the charts of the page: curves by `runs.pictures`, and bars, as SVG in the page's theme.

Colours of a figure become the page's CSS variables, and text stays text. A chart is drawn at the
width of a phone; a large chart also at the width of a desktop, and the style sheet shows one of
the two.
"""

from __future__ import annotations

import io
import math
import re
from collections.abc import Callable, Sequence
from html import escape

import matplotlib
from matplotlib.figure import Figure
from matplotlib.ticker import NullLocator

from loopless.bench.result import Measurement
from loopless.bench.table import best, is_rate, quantity, ratio, times
from loopless.report.markup import Markup, tag
from loopless.runs.pictures import look

NARROW, WIDE = (4.4, 2.7), (9.4, 3.1)  # inches
ROW, AXIS = 0.4, 0.34  # height in inches of a bar with its name, and of the axis below all bars
MOST_TICKS = 5
SHORTEST = 0.015  # length of a bar, as a share of the axis
LONGEST_NAME = 42  # letters that fit above a bar, beside the value
BARS = {"ours": "#0B63A5", "reference": "#C4682B", "floor": "#D5D2CA"}
OTHER_BAR, WRONG = "#9AA3AA", "#B3341F"
THEME = {
    look.BLUE: "--c0", look.VERMILLION: "--c1", look.GREEN: "--c2", look.PURPLE: "--c3",
    look.ORANGE: "--c4", look.SKY: "--c5", look.GREY: "--peer", look.INK: "--ink",
    look.FAINT: "--faint", "#BBBBBB": "--line", "#E8E8E8": "--line", "#555555": "--faint",
    "#CCCCCC": "--floor", "#CC0000": "--bad", "#FFFFFF": "--card", BARS["ours"]: "--accent",
    BARS["reference"]: "--loop", BARS["floor"]: "--floor", OTHER_BAR: "--peer", WRONG: "--bad",
}  # fmt: skip
_VARIABLES = {colour.lower(): f"var({name})" for colour, name in THEME.items()}
_LEFT_OUT = re.compile(r"<metadata>.*?</metadata>|<style.*?</style>|<!--.*?-->", re.DOTALL)


def curves(
    title: str,
    unit: str,
    description: str,
    draw: Callable[[], Figure | bytes | None],
    *,
    large: bool,
) -> Markup | None:
    """Return the figure that `draw` makes, under its title; None if there is nothing to draw."""
    drawings = []
    for size, kind in ((NARROW, "narrow"), (WIDE, "wide"))[: 1 + large]:
        with look.styled({"figure.figsize": size}):
            figure = draw()
            if not isinstance(figure, Figure):
                return None
            look.remove_title(figure)
            figure.axes[0].set_ylabel("")
            image = svg(figure, title, description, f"{description} {kind}")
        drawings.append(tag("div", image, class_=kind if large else None))
    caption = tag("figcaption", tag("b", title), " ", tag("span", unit, class_="faint"))
    return tag("figure", caption, *drawings, class_="chart")


class Scale:
    """A logarithmic axis from the decade below the smallest value to the one above the largest."""

    def __init__(self, values: Sequence[float]):
        logarithms = [math.log10(value) for value in values if value > 0] or [0.0]
        low = math.floor(min(logarithms) - 0.05)  # a bar at the edge would have no length
        high = max(math.ceil(max(logarithms)), low + 1)
        self.low, self.high = 10.0**low, 10.0**high
        stride = math.ceil((high - low) / MOST_TICKS)
        self.decades = [10.0**power for power in range(low, high + 1, stride)]

    def clip(self, value: float) -> float:
        """Return where a bar ends: inside the axis, and long enough to be seen."""
        return min(max(value, self.low * (self.high / self.low) ** SHORTEST), self.high)


def bars(rows: Sequence[Measurement], scale: Scale, title: str) -> Markup:
    """Return one case: a bar for each row with a value, and a line of text for each without."""
    unit = rows[0].unit
    ours = best(rows, "ours")
    drawn = [row for row in rows if row.value]
    better = "longer is better" if is_rate(unit) else "shorter is better"
    with look.styled({"font.size": 8.5}):
        figure = _bars(drawn, ours, scale)
        image = svg(figure, title, _list(drawn), title, [_describe(row) for row in drawn])
    missing = [
        tag("li", row.contender, ": ", f"{row.status}: {row.reason}" if row.reason else row.status)
        for row in rows
        if not row.value
    ]
    note = tag("p", f"Logarithmic scale; {better}.", class_="faint")
    return tag("div", image, note, tag("ul", *missing) if missing else None, class_="bars")


def _bars(rows: Sequence[Measurement], ours: Measurement | None, scale: Scale) -> Figure:
    height = ROW * len(rows) + AXIS
    figure = Figure(figsize=(NARROW[0], height))
    axes = figure.add_axes((0.01, AXIS / height, 0.98, 1 - AXIS / height))
    axes.set(xscale="log", xlim=(scale.low, scale.high), ylim=(len(rows), 0))
    beside = axes.get_yaxis_transform()
    for at, row in enumerate(rows):
        assert row.value is not None
        wrong = row.status == "disagrees"
        colour = BARS.get(row.role, OTHER_BAR)
        length = scale.clip(row.value) - scale.low
        (bar,) = axes.barh(at + 0.72, length, 0.36, left=scale.low, color=colour)
        if wrong:
            bar.set(facecolor="none", edgecolor=WRONG, linestyle="--")
        bar.set_gid(f"bar-{at}")
        weight = "bold" if row.role == "ours" else "normal"
        name, text = look.literal(row.contender, LONGEST_NAME), quantity(row.value, row.unit)
        if wrong:
            text += " wrong"
        elif ours and row.role not in ("ours", "floor"):
            text += f"  {times(ratio(ours, row))}"
        ink = WRONG if wrong else look.INK
        axes.text(0, at + 0.47, name, transform=beside, weight=weight, va="bottom", color=look.INK)
        axes.text(1, at + 0.47, text, transform=beside, ha="right", va="bottom", color=ink)
    unit = rows[0].unit if rows else "s"
    axes.set_xticks(scale.decades, [format_decade(decade, unit) for decade in scale.decades])
    axes.xaxis.set_minor_locator(NullLocator())
    labels = axes.get_xticklabels()
    labels[0].set_horizontalalignment("left")
    if scale.decades[-1] == scale.high:
        labels[-1].set_horizontalalignment("right")
    axes.set_yticks([])
    axes.spines[:].set_visible(False)
    return figure


def format_decade(value: float, unit: str) -> str:
    """Format a power of ten with its unit: 1 µs, 10 ms, 100k."""
    power = round(math.log10(value))
    if unit == "s":
        name, step = {-3: ("ns", -9), -2: ("µs", -6), -1: ("ms", -3)}.get(power // 3, ("s", 0))
        return f"{10 ** (power - step):,} {name}" if power >= step else f"{value:g} {name}"
    for name, step in (("G", 9), ("M", 6), ("k", 3)):
        if power >= step:
            return f"{10 ** (power - step)}{name}"
    return f"{value:g}"


def _list(rows: Sequence[Measurement]) -> str:
    return "; ".join(f"{row.contender} {quantity(row.value or 0.0, row.unit)}" for row in rows)


def _describe(row: Measurement) -> str:
    """Return everything that was measured for a row, as the title of its bar."""
    parts = [f"{row.contender}: {quantity(row.value or 0.0, row.unit)}"]
    if row.lower_quartile and row.upper_quartile and row.samples > 1:
        low, high = quantity(row.lower_quartile, row.unit), quantity(row.upper_quartile, row.unit)
        parts.append(f"quartiles {low} to {high} of {row.samples} samples")
    return "; ".join([*parts, *filter(None, (row.note, row.reason))])


def svg(
    figure: Figure, title: str, description: str, unique: str, bar_titles: Sequence[str] = ()
) -> Markup:
    """Return a figure as SVG with a title and a description for screen readers.

    Ids inside the SVG are derived from `unique`, since all charts share one page.
    """
    output = io.StringIO()
    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": unique}):
        figure.savefig(output, format="svg", transparent=True)
    text = output.getvalue()
    text = _LEFT_OUT.sub("", text[text.index("<svg") :])
    text = re.sub("#[0-9a-f]{6}", lambda match: _VARIABLES.get(match[0], match[0]), text)
    for at, bar_title in enumerate(bar_titles):
        text = text.replace(f'<g id="bar-{at}">', f"<g><title>{escape(bar_title)}</title>")
    text = re.sub(r'<g id="[^"]*"', "<g", text)
    head, _, body = text.partition(">")
    box = re.search(r'viewBox="[^"]*"', head)
    assert box is not None
    label = f"<title>{escape(title)}</title><desc>{escape(description)}</desc>"
    return Markup(f'<svg {box[0]} role="img" aria-label="{escape(title)}">{label}{body.strip()}')
