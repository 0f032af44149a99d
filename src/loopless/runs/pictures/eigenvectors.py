"""Pictures of learned eigenvectors: beside the true ones on the grid, and how they came about.

Curves come from the log, all else from the run's snapshots, which may hold

    step, learned [seeds, states, d]                            always
    walls [height, width], cells [states, 2], visits [states]   of a grid
    truth [states, k ≥ d], spaces [k], weights [states], similarities [seeds, d],
    kernel_eigenvalues [≥ d]                                    where the truth is known
    eigenvalues [seeds, d], duals [seeds, d]                    by the multipliers; β_jj alone

What has no part in it is not drawn. The first seed is shown on the grid, all of them in curves.
Imports matplotlib; the film of the same vectors is `eigenvector_film`. Tests:
`tests/runs/test_eigenvectors.py`.
"""

from __future__ import annotations

import math
import tomllib
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.ticker import PercentFormatter

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
LEAST = 1e-7  # of a distance in float32
_NOTHING = 1e-7  # a length that is none, in float32


def on_grid(snapshot: Snapshot, values: np.ndarray) -> np.ndarray:
    """`values` [states] laid out as [height, width], NaN on walls."""
    laid = np.full(snapshot["walls"].shape, np.nan)
    laid[tuple(snapshot["cells"].T)] = values
    return laid


def align(snapshot: Snapshot) -> tuple[np.ndarray, np.ndarray | None]:
    """Of the first seed: learned vectors of unit length, and the true ones with their signs.

    Of an eigenspace of several dimensions any basis is as true as another: the one that comes
    nearest to what was learned is shown.
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
    # What has nothing in common with its space is shown beside some vector of it.
    some = lengths > _NOTHING
    nearest = np.where(some, nearest / np.where(some, lengths, 1.0), truth[:, :count])
    # The true ones keep their signs, where they have one, so that pictures can be compared.
    signs = np.where((nearest * truth[:, :count] * weights[:, None]).sum(0) < 0, -1.0, 1.0)
    return learned * signs, nearest * signs


def _lengths(vectors: np.ndarray, weights: np.ndarray) -> np.ndarray:
    return np.sqrt((weights[:, None] * vectors**2).sum(0))


def side_by_side(run: Run) -> Figure | None:
    """Each learned vector above the true one, on one scale of colours; walls grey."""
    snapshot = _newest(run.folder)
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
    """The number of a vector, how near it is, and its eigenvalue."""
    said = [f"{at + 1}"]
    if "similarities" in snapshot:
        said.append(f"similarity {snapshot['similarities'][0, at]:.4f}")
    first = " · ".join(said)
    if "eigenvalues" not in snapshot:
        return first
    values = f"λ {snapshot['eigenvalues'][0, at]:.4f}"
    if "kernel_eigenvalues" in snapshot:
        values += f" ({snapshot['kernel_eigenvalues'][at]:.4f})"
    return f"{first}\n{values}"


def eigenvalues(run: Run) -> Figure | None:
    """The eigenvalues that the multipliers stand for, over time, beside the true ones."""
    logged, snapshot = _logged(run, "eigenvalue"), _newest(run.folder)
    if logged is None:
        return None
    figure, axes = look.new_axes("Eigenvalues by the multipliers", run.name)
    steps, values = logged
    colours = _shades(values.shape[2])
    _lines(axes, steps, values, colours, linewidth=1.4)
    _key(axes, "learned: −c (β + 2bE)", "-", 1.4)
    with_duals = [one for one in snapshots.history(run.folder) if "duals" in one]
    if with_duals:
        at = np.array([int(one["step"]) for one in with_duals])
        duals = np.stack([one["duals"] for one in with_duals])[:, :1]
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
    """How far each component is from its eigenspace, over time: 1 − similarity, on a log scale."""
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
    """How often each cell was visited, as a share of all observations."""
    snapshot = _newest(run.folder)
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


def _newest(folder: Path) -> Snapshot | None:
    found = snapshots.paths(folder)
    return snapshots.read(found[-1]) if found else None


def _logged(run: Run, metric: str) -> tuple[np.ndarray, np.ndarray] | None:
    """Steps [rows] and a metric [rows, seeds, d], of the rows that have it."""
    values = run.train.get(metric)
    if values is None or values.ndim != 3:
        return None
    seen = np.isfinite(values).all((1, 2))
    return (run.train["step"][seen], values[seen]) if seen.any() else None


def _factor(run: Run) -> float:
    """c of λ = −cβ, by the scale of the objective that the run was told."""
    with suppress(OSError, ValueError):
        told = tomllib.loads((run.folder / "config.toml").read_text())
        return 0.25 if told.get("scale") == "full" else 0.5
    return 0.5


def _lines(axes: Axes, steps: np.ndarray, values: np.ndarray, colours: Any, **style: Any) -> None:
    """A line for each seed [rows, seeds, d] of each component, in the component's colour."""
    for at, colour in enumerate(colours):
        axes.plot(steps, values[:, :, at], color=colour, **style)


def _shades(count: int) -> list[Any]:
    """One colour a component, from the first to the last; the palest yellow is left out."""
    return [matplotlib.colormaps[SHADES](x) for x in np.linspace(0, 0.88, count)]


def _key(axes: Axes, label: str, style: Any, width: float) -> None:
    axes.plot([], [], color=look.INK, linestyle=style, linewidth=width, label=label)


def _over_steps(figure: Figure, axes: Axes, run: Run, steps: np.ndarray) -> Figure:
    look.mark_events(axes, run.events)
    look.fit_steps(axes, float(steps[0]), float(steps[-1]))
    look.legend_above(axes)
    return figure


def _titled(title: str, subtitle: str, size: tuple[float, float]) -> Figure:
    """A figure without axes yet, titled as all are."""
    below = (0, 0, 1, 1 - 0.36 / size[1])
    layout = ConstrainedLayoutEngine(h_pad=0.03, hspace=0.0, rect=below)
    figure = Figure(figsize=size, layout=layout)
    FigureCanvasAgg(figure)
    top = 1 - 0.07 / size[1]
    style = {"fontsize": 13, "fontweight": "bold"}
    figure.suptitle(title, x=0.012, y=top, ha="left", va="top", **style)
    room = int(11 * size[0] - 1.3 * len(title))  # letters that fit beside the title
    said = look.literal(subtitle, max(12, room))
    at = top - 0.035 / size[1]
    figure.text(0.985, at, said, ha="right", va="top", color=look.FAINT, fontsize=9)
    return figure
