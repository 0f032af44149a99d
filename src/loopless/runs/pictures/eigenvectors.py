"""Pictures of learned eigenvectors: beside the true ones on the grid, and how they formed.

Curves come from the log, all else from the run's snapshots, which may hold

    step, learned [seeds, states, d]                            always
    walls [height, width], cells [states, 2], visits [states]   of a grid
    truth [states, k ≥ d], spaces [k], weights [states], similarities [seeds, d],
    kernel_eigenvalues [≥ d]                                    where the truth is known
    eigenvalues [seeds, d], duals [seeds, d]                    from all multipliers; only β_jj

What is missing is not drawn. The first seed is shown on the grid, all of them in curves. The film
of the same vectors is in `film`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.ticker import PercentFormatter

from loopless.runs.folder import read_config
from loopless.runs.pictures import look, snapshots

if TYPE_CHECKING:
    from loopless.runs.pictures.plots import Run

Snapshot = Mapping[str, np.ndarray]

MOST = 18  # vectors in a picture
ACROSS = 6  # of them side by side
HEAD, CAPTION, GAP = 0.34, 0.42, 0.08  # inches
WALL = "#B8B8B8"
SIGNED = "RdBu_r"
SHADES = "viridis"
DASHED = (0, (4, 2))
LEAST = 1e-7  # the smallest distance that float32 can tell from 0
_NOTHING = 1e-7  # a length that counts as 0 in float32


def on_grid(snapshot: Snapshot, values: np.ndarray) -> np.ndarray:
    """Return `values` [states] laid out as [height, width], with NaN on walls."""
    laid = np.full(snapshot["walls"].shape, np.nan)
    laid[tuple(snapshot["cells"].T)] = values
    return laid


def align(snapshot: Snapshot) -> tuple[np.ndarray, np.ndarray | None]:
    """Return the first seed's learned vectors at unit length, and the true ones with their signs.

    In an eigenspace of several dimensions any basis is as true as another: the one nearest to the
    learned vectors is returned.
    """
    learned = snapshot["learned"][0].astype(np.float64)[:, :MOST]
    states, count = learned.shape
    weights = snapshot.get("weights", np.full(states, 1 / states)).astype(np.float64)
    learned = learned / np.maximum(_lengths(learned, weights), _NOTHING)
    if "truth" not in snapshot:
        largest = np.abs(learned).argmax(0)
        return learned * np.sign(learned[largest, np.arange(count)]), None
    truth = snapshot["truth"].astype(np.float64)
    spaces = snapshot.get("spaces", np.arange(truth.shape[1]))
    shares = truth.T @ (weights[:, None] * learned)  # [k, d]
    nearest = truth @ np.where(spaces[:, None] == spaces[:count], shares, 0.0)
    lengths = _lengths(nearest, weights)
    # A vector that is orthogonal to its space is shown beside some vector of the space.
    overlaps = lengths > _NOTHING
    nearest = np.where(overlaps, nearest / np.where(overlaps, lengths, 1.0), truth[:, :count])
    # The true vectors keep their signs, so that pictures can be compared.
    signs = np.where((nearest * truth[:, :count] * weights[:, None]).sum(0) < 0, -1.0, 1.0)
    return learned * signs, nearest * signs


def _lengths(vectors: np.ndarray, weights: np.ndarray) -> np.ndarray:
    return np.sqrt((weights[:, None] * vectors**2).sum(0))


def side_by_side(run: Run) -> Figure | None:
    """Draw each learned vector above the true one, on one scale of colours; walls are grey."""
    snapshot = snapshots.newest(run.folder)
    if snapshot is None or "walls" not in snapshot:
        return None
    learned, truth = align(snapshot)
    count, vectors = learned.shape[1], np.stack([learned] if truth is None else [learned, truth])
    blocks = math.ceil(count / ACROSS)
    across = math.ceil(count / blocks)
    height, width = snapshot["walls"].shape
    tall, wide = 1.52 * min(max(height / width, 0.5), 2.0), max(1.55, 6.5 / across)
    block = CAPTION + len(vectors) * tall
    size = (wide * across, HEAD + blocks * block)
    what = "Eigenvectors" if truth is None else "Eigenvectors: learned (above) and true (below)"
    figure = _titled(what, f"{run.name}, step {int(snapshot['step']):,}", size)
    figure.set_layout_engine("none")
    # One sheet for all, measured in inches: axes for each panel would take four times as long.
    sheet = figure.add_axes((0, 0, 1, 1))
    cell = (tall - GAP) / height if height / width >= 0.5 else (1.55 - GAP) / width
    colours = matplotlib.colormaps[SIGNED].with_extremes(bad=WALL)
    style = {"fontsize": 8.5, "color": look.INK, "linespacing": 1.3, "ha": "center", "va": "bottom"}
    for at in range(count):
        row, column = divmod(at, across)
        middle, top = (column + 0.5) * wide, HEAD + row * block + CAPTION
        sheet.text(middle, top - GAP / 2, _caption(snapshot, at), **style)
        most = float(np.abs(vectors[:, :, at]).max())
        for vector in vectors[:, :, at]:
            half = cell * width / 2
            sheet.imshow(
                on_grid(snapshot, vector), colours, vmin=-most, vmax=most, aspect="auto",
                extent=(middle - half, middle + half, top + cell * height, top),
                interpolation="nearest",
            )  # fmt: skip
            top += tall
    sheet.set(xlim=(0, size[0]), ylim=(size[1], 0))
    sheet.set_axis_off()
    return figure


def _caption(snapshot: Snapshot, at: int) -> str:
    """Return the number of a vector, its similarity, and its eigenvalue."""
    parts = [f"{at + 1}"]
    if "similarities" in snapshot:
        parts.append(f"similarity {snapshot['similarities'][0, at]:.4f}")
    first = " · ".join(parts)
    if "eigenvalues" not in snapshot:
        return first
    values = f"λ {snapshot['eigenvalues'][0, at]:.4f}"
    if "kernel_eigenvalues" in snapshot:
        values += f" ({snapshot['kernel_eigenvalues'][at]:.4f})"
    return f"{first}\n{values}"


def eigenvalues(run: Run) -> Figure | None:
    """Draw the eigenvalues that the multipliers imply, over time, beside the true ones."""
    logged, snapshot = _logged(run, "eigenvalue"), snapshots.newest(run.folder)
    if logged is None:
        return None
    figure, axes = look.new_axes("Eigenvalues by the multipliers", run.name)
    steps, values = logged
    colours = _shades(values.shape[2])
    _lines(axes, steps, values, colours, linewidth=1.4)
    _key(axes, "learned: −c (β + 2bE)", "-", 1.4)
    history = [snap for snap in snapshots.drawable(run.folder) if "duals" in snap]
    if history:
        at = np.array([int(snap["step"]) for snap in history])
        duals = np.stack([snap["duals"] for snap in history])[:, :1]
        _lines(axes, at, -_factor(run) * duals, colours, linewidth=0.7, alpha=0.6)
        _key(axes, "−cβ alone, which lags", "-", 0.7)
    if snapshot is not None and "kernel_eigenvalues" in snapshot:
        truth = snapshot["kernel_eigenvalues"][: len(colours)]
        for value, colour in zip(truth, colours, strict=False):
            axes.axhline(value, color=colour, linewidth=0.9, linestyle=DASHED)
        _key(axes, "true", DASHED, 0.9)
        top = float(truth.max())
        axes.set_ylim(min(-0.05 * top, -0.002), 1.35 * top + 0.01)
    axes.set_ylabel("eigenvalue")
    return _over_steps(figure, axes, run, steps)


def similarities(run: Run) -> Figure | None:
    """Draw how far each component is from its eigenspace: 1 − similarity, on a log scale."""
    logged = _logged(run, "similarity")
    if logged is None:
        return None
    steps, away = logged[0], np.maximum(1 - logged[1], LEAST)
    figure, axes = look.new_axes("Distance from the true eigenspaces", run.name)
    colours = _shades(away.shape[2])
    _lines(axes, steps, away, colours, linewidth=1.2)
    for at in sorted({0, len(colours) - 1}):
        axes.plot([], [], color=colours[at], linewidth=1.2, label=f"component {at + 1}")
    axes.plot(steps, away.mean((1, 2)), color=look.INK, linewidth=2.0, label="mean")
    axes.set_yscale("log")
    axes.set_ylabel("1 − similarity")
    return _over_steps(figure, axes, run, steps)


def visits(run: Run) -> Figure | None:
    """Draw how often each cell was visited, as a share of all observations."""
    snapshot = snapshots.newest(run.folder)
    if snapshot is None or "walls" not in snapshot or "visits" not in snapshot:
        return None
    share = snapshot["visits"] / max(1, snapshot["visits"].sum())
    figure = _titled(
        "Visits", f"{run.name}, {int(snapshot['visits'].sum()):,} observations", (6.4, 5)
    )
    axes = figure.subplots()
    axes.set_axis_off()
    colours = matplotlib.colormaps[SHADES].with_extremes(bad=WALL)
    image = axes.imshow(on_grid(snapshot, share), colours, vmin=0, interpolation="nearest")
    bar = figure.colorbar(image, ax=axes, shrink=0.85)
    bar.outline.set_visible(False)  # pyright: ignore[reportCallIssue]
    bar.ax.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=2))
    bar.set_label("share of observations")
    return figure


def _logged(run: Run, metric: str) -> tuple[np.ndarray, np.ndarray] | None:
    """Return steps [rows] and a metric [rows, seeds, d], of the rows that have it."""
    values = run.train.get(metric)
    if values is None or values.ndim != 3 or not values.size:
        return None
    logged = np.isfinite(values).all((1, 2))
    return (run.train["step"][logged], values[logged]) if logged.any() else None


def _factor(run: Run) -> float:
    """Return c of λ = −cβ, which depends on the scale of the run's objective."""
    with suppress(OSError, ValueError):
        settings = read_config(run.folder)
        return 0.25 if settings.get("scale") == "full" else 0.5
    return 0.5


def _lines(axes: Axes, steps: np.ndarray, values: np.ndarray, colours: Any, **style: Any) -> None:
    """Draw a line for each seed of each component, in the component's colour."""
    for at, colour in enumerate(colours):
        axes.plot(steps, values[:, :, at], color=colour, **style)


def _shades(count: int) -> list[Any]:
    """Return one colour for each component; the palest yellow is left out."""
    return [matplotlib.colormaps[SHADES](x) for x in np.linspace(0, 0.88, count)]


def _key(axes: Axes, label: str, style: Any, width: float) -> None:
    axes.plot([], [], color=look.INK, linestyle=style, linewidth=width, label=label)


def _over_steps(figure: Figure, axes: Axes, run: Run, steps: np.ndarray) -> Figure:
    look.mark_events(axes, run.events)
    look.fit_steps(axes, float(steps[0]), float(steps[-1]))
    look.legend_above(axes)
    return figure


def _titled(title: str, subtitle: str, size: tuple[float, float]) -> Figure:
    """Return a figure without axes, titled like all others."""
    below = (0, 0, 1, 1 - 0.36 / size[1])
    layout = ConstrainedLayoutEngine(h_pad=0.03, hspace=0.0, rect=below)
    figure = Figure(figsize=size, layout=layout)
    FigureCanvasAgg(figure)
    top = 1 - 0.07 / size[1]
    style = {"fontsize": 13, "fontweight": "bold"}
    figure.suptitle(title, x=0.012, y=top, ha="left", va="top", **style)
    room = int(11 * size[0] - 1.3 * len(title))  # letters that fit beside the title
    shown = look.literal(subtitle, max(12, room))
    at = top - 0.035 / size[1]
    figure.text(0.985, at, shown, ha="right", va="top", color=look.FAINT, fontsize=9)
    return figure
