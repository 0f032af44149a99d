"""How every picture looks: colours, axes, title, legend, marks of events, and how it is saved.

The colour-blind can tell the colours apart (Okabe and Ito 2008). Legends stand above the axes,
never on the data. Figures are made without pyplot, so that there is no global state and no window.
This imports matplotlib, so only the process that draws, `loopless plot` and `loopless report` load
it.
"""

from __future__ import annotations

import io
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.ticker import Formatter, MaxNLocator

from loopless.files import atomic
from loopless.runs.pictures.series import Curve

BLUE, VERMILLION, GREEN = "#0072B2", "#D55E00", "#009E73"
PURPLE, ORANGE, SKY, GREY = "#CC79A7", "#E69F00", "#56B4E9", "#999999"
COLOURS = (BLUE, VERMILLION, GREEN, PURPLE, ORANGE, SKY, GREY)
INK, FAINT = "#222222", "#777777"
FEW = 30  # curves with at most so many points show them as dots, too
LETTERS_AN_INCH = 13  # of a legend
EVENTS = {"resume": "#555555", "nan": "#CC0000"}

STYLE: dict[Any, Any] = {
    "figure.figsize": (8.0, 4.5),
    "figure.dpi": 120,
    "savefig.dpi": 120,
    "figure.facecolor": "white",
    "font.size": 10,
    "font.family": ["DejaVu Sans"],
    "text.color": INK,
    "axes.edgecolor": "#BBBBBB",
    "axes.labelcolor": FAINT,
    "axes.linewidth": 0.8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#E8E8E8",
    "grid.linewidth": 0.8,
    "xtick.color": FAINT,
    "ytick.color": FAINT,
    "xtick.major.size": 0,
    "xtick.major.pad": 7,  # keeps the labels at the corner apart
    "ytick.major.size": 0,
    "ytick.minor.size": 0,
    "legend.frameon": False,
    "legend.fontsize": 9,
    "legend.handlelength": 1.6,
    "legend.columnspacing": 1.6,
    "lines.linewidth": 1.8,
    "lines.solid_capstyle": "round",
    "lines.solid_joinstyle": "round",
}


@contextmanager
def styled(settings: Mapping[Any, Any] | None = None) -> Iterator[None]:
    """Apply our settings of matplotlib, and further `settings`, to what is drawn inside."""
    with matplotlib.rc_context({**STYLE, **(settings or {})}):
        yield


def new_axes(title: str, subtitle: str = "", **size: Any) -> tuple[Figure, Axes]:
    """Return a figure with a title and one axes over steps."""
    figure = Figure(layout=ConstrainedLayoutEngine(h_pad=0.08, w_pad=0.1), **size)
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    heading = figure.suptitle(title, x=0.012, ha="left", fontsize=13, fontweight="bold")
    if subtitle:
        axes.annotate(
            literal(subtitle),
            xy=(1.0, 0.5),
            xycoords=("figure fraction", heading),
            xytext=(-10, 0),
            textcoords="offset points",
            ha="right",
            va="center",
            color=FAINT,
            annotation_clip=False,
        ).set_in_layout(False)
    axes.set_xlabel("step")
    axes.xaxis.set_major_locator(MaxNLocator(nbins=8, steps=[1, 2, 5, 10], integer=True))
    axes.xaxis.set_major_formatter(ShortFormatter())
    axes.yaxis.set_major_locator(MaxNLocator(nbins=8, steps=[1, 2, 5, 10]))
    axes.yaxis.set_major_formatter(ShortFormatter())
    return figure, axes


def remove_title(figure: Figure) -> None:
    """Take title and subtitle off a figure that stands under a heading of its own."""
    figure.suptitle("")
    for text in list(figure.axes[0].texts):
        text.remove()


def literal(text: str, most: int = 60) -> str:
    """Return text that matplotlib prints as it is, cut to `most` letters.

    A dollar would begin a formula, and an underscore in front would hide it from legends.
    """
    text = text if len(text) <= most else f"{text[: most - 1]}…"
    hidden = "\N{NO-BREAK SPACE}" if text.startswith("_") else ""
    return hidden + text.replace("$", r"\$")


class ShortFormatter(Formatter):
    """Formats ticks as 50k, 1.5M, with one unit and as many digits as tell neighbours apart."""

    def __call__(self, x: float, pos: int | None = None) -> str:
        return self.format_ticks([x])[0]

    def format_ticks(self, values: Sequence[float]) -> list[str]:
        ticks = np.asarray(values, np.float64)
        largest = np.abs(ticks).max(initial=0.0)
        gap = np.diff(ticks).min(initial=largest) or 1.0
        unit, scale = "", 1.0
        # A larger unit is used if its ticks need no more digits than these.
        for name, size, digits in (("k", 1e3, 0), ("M", 1e6, 2), ("G", 1e9, 2)):
            if largest >= size and gap * 10**digits >= size:
                unit, scale = name, size
        digits = next((d for d in range(9) if _is_whole(gap / scale * 10**d)), 9)
        texts = [f"{tick / scale:,.{digits}f}{unit}" if tick else "0" for tick in ticks]
        return [text.replace("-", "\N{MINUS SIGN}") for text in texts]


def _is_whole(number: float) -> bool:
    return math.isclose(number, round(number), rel_tol=1e-6)


def draw(axes: Axes, curve: Curve, colour: str, label: str, **style: Any) -> None:
    """Draw one curve with its band, and its points if they are few."""
    if curve.raw is not None and curve.low is None:
        axes.plot(curve.steps, curve.raw, color=colour, alpha=0.25, linewidth=0.8)
    if curve.low is not None and curve.high is not None:
        edges = {"color": colour, "alpha": 0.16}
        if len(curve.steps) > 1:
            axes.fill_between(curve.steps, curve.low, curve.high, linewidth=0, **edges)
        else:  # a band over one point has no area
            axes.vlines(curve.steps, curve.low, curve.high, linewidth=6, **edges)
    marker = {"marker": "o", "markersize": 4} if len(curve.steps) <= FEW else {}
    axes.plot(curve.steps, curve.line, color=colour, label=label, **marker, **style)


def mark_events(axes: Axes, events: Sequence[Mapping[str, Any]]) -> None:
    """Draw a thin line where the run was resumed, or met a number that is not finite."""
    for kind, colour in EVENTS.items():
        steps = sorted({event["step"] for event in events if event.get("event") == kind})
        for step in steps:
            axes.axvline(step, color=colour, linewidth=1.0, linestyle=(0, (3, 2)), zorder=1.5)
        if steps:
            axes.plot([], [], color=colour, linewidth=1.0, linestyle=(0, (3, 2)), label=kind)


def legend_above(axes: Axes, least: int = 2) -> None:
    """Draw a legend between title and axes if it has at least `least` entries."""
    handles, labels = axes.get_legend_handles_labels()
    if len(handles) < least:
        return
    width = LETTERS_AN_INCH * axes.figure.bbox.width / axes.figure.dpi
    rows = math.ceil(sum(len(label) + 8 for label in labels) / width)
    axes.legend(
        handles,
        labels,
        loc="lower left",
        bbox_to_anchor=(-0.01, 1.0),
        ncols=math.ceil(len(handles) / rows),
        borderaxespad=0.2,
    )


def fit_steps(axes: Axes, first: float, last: float, margin: float = 0.012) -> None:
    """Let the axis run from the first to the last step; a single step gets room around it."""
    room = margin * (last - first) if last > first else 0.1 * abs(first) or 1.0
    axes.set_xlim(first - room, last + room)


def write(picture: Figure | bytes, path: Path) -> None:
    """Save a picture so that a reader finds the old one or the new one, never a part."""
    if isinstance(picture, Figure):
        image = io.BytesIO()
        with styled():
            picture.savefig(image, format=path.suffix.removeprefix("."))
        picture = image.getvalue()
    atomic.write_file(path, picture, flush=False)
