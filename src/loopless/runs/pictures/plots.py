"""The pictures of a run, by name: a trainer requests names, and this knows how to draw them.

Most follow from the table of metrics: which picture a metric belongs to, and whether it is a line,
the edge of a band or a layer. A picture of another kind is a function from a `Run` to a figure (or
to the bytes of a file), registered in a file of its own:

    @picture("eigenvectors")                          # plots/eigenvectors.png
    def eigenvectors(run: Run) -> Figure | None: ...  # None: nothing to draw yet

This imports matplotlib, so only the process that draws, `loopless plot` and `loopless report` load
it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter

from loopless.files import plain
from loopless.runs.columns import Log
from loopless.runs.failures import BadRun
from loopless.runs.glossary import METRICS
from loopless.runs.pictures import eigenvectors, film, look, series
from loopless.runs.pictures.series import LEVEL

LOGARITHMIC = {"loss", "td_error", "value_loss", "gradient_norm", "learning_rate"}
FROM_ZERO = {"speed", "exploration", "length", "approximate_kl", "clip_fraction"}
FROM_ZERO |= {"tokens_per_second", "actions"}
# These are exact, and smoothing would round their corners.
SCHEDULES = {"exploration", "learning_rate", "clip"}
TITLES = {
    "td_error": "TD error",
    "q_mean": "Q-values",
    "approximate_kl": "Approximate KL divergence",
    "clip": "Clip range",
    "validation": "Validation cross-entropy",
    "validation_characters": "Validation cross-entropy by characters",
    "reward": "Reward of the true token",
    "rewarded": "Positions whose true token is rewarded",
    "target_kl": "KL divergence from the target",
    "tokens_per_second": "Speed in tokens",
    "evaluation": "Evaluation return",
    "length": "Episode length",
    "speed": "Speed",
    "time": "Where the time goes",
}
LABELS = {
    "eval_return": "evaluation",
    "length_mean": "training",
    "td_error": "TD error",
    "q_mean": "Q-values",
    "validation_loss": "model",
    "critic_loss": "critic",
    "token_trigram_loss": "token trigram",
    "validation_per_character": "model",
    "critic_per_character": "critic",
    "token_trigram_per_character": "token trigram",
    "character_trigram_per_character": "character trigram",
    "kept": "rewarded",
    "actions": "weighed",
}
LAYERS = {
    "time_data": look.GREEN,
    "time_critic": look.VERMILLION,
    "time_env": look.BLUE,
    "time_act": look.SKY,
    "time_learn": look.ORANGE,
    "time_log": look.PURPLE,
    "time_other": "#CCCCCC",
}


@dataclass(frozen=True)
class Run:
    """What a picture is drawn from: the log as columns by name, and snapshots by name."""

    folder: Path
    train: Mapping[str, np.ndarray]
    evaluations: Mapping[str, np.ndarray]
    events: list[dict[str, Any]] = field(default_factory=list)
    snapshots: Mapping[str, Path] = field(default_factory=dict)

    @classmethod
    def read(cls, folder: Path, snapshots: Mapping[str, Path] | None = None) -> Run:
        """Read the run in `folder`; one without a log is an empty run."""
        log = read_log(Path(folder) / "metrics.jsonl")
        return cls(Path(folder), log.train, log.evaluations, log.events, snapshots or {})

    @property
    def name(self) -> str:
        return self.folder.resolve().name

    def columns_of(self, metric: str) -> Mapping[str, np.ndarray]:
        """Return the columns that hold a metric: of training or of evaluations."""
        return self.train if metric in self.train else self.evaluations


def curve_of(run: Run, metric: str) -> series.Curve | None:
    """Return a metric's curve with the band that the table gives it; None if nothing is logged."""
    columns = run.columns_of(metric)
    if metric not in columns:
        return None
    low, high, band = _band(columns, metric)
    return series.curve(
        columns["step"],
        columns[metric],
        low,
        high,
        band=band,
        smoothed=METRICS[metric].picture not in SCHEDULES,
    )


def read_log(path: Path) -> Log:
    """Return a log, read to its end; BadRun if it cannot be read."""
    log = Log(path)
    try:
        for _ in log.refresh():
            pass
    except OSError as error:
        raise BadRun(f"run: cannot read {path}: {error.strerror}.") from None
    return log


Draw = Callable[[Run], Figure | bytes | None]


@dataclass(frozen=True)
class Picture:
    """How one picture is drawn, and the kind of its file."""

    draw: Draw
    suffix: str = ".png"


PICTURES: dict[str, Picture] = {}


def picture(name: str, suffix: str = ".png") -> Callable[[Draw], Draw]:
    """Register a function that draws `plots/<name><suffix>`."""

    def register(draw: Draw) -> Draw:
        PICTURES[name] = Picture(draw, suffix)
        return draw

    return register


def draw(run: Run, name: str) -> Path | None:
    """Draw one picture into the run's `plots/`; None if there is nothing to draw."""
    if name not in PICTURES:
        raise ValueError(f'plots: there is no picture "{name}". Known: {", ".join(PICTURES)}.')
    chosen = PICTURES[name]
    with look.styled():
        image = chosen.draw(run)
        if image is None:
            return None
        path = run.folder / "plots" / f"{name}{chosen.suffix}"
        plain.make_folder(path.parent)
        look.write(image, path)
    return path


def lines(run: Run, name: str) -> Figure | None:
    """Draw a picture that the table describes: a line for each of its metrics that was logged."""
    wanted = [key for key, row in METRICS.items() if (row.picture, row.style) == (name, "line")]
    curves = {metric: curve for metric in wanted if (curve := curve_of(run, metric))}
    if not curves:
        return None
    figure, axes = look.new_axes(title_of(name), run.name)
    colours = look.COLOURS[1:] if name == "evaluation" else look.COLOURS  # as in `returns`
    for (metric, curve), colour in zip(curves.items(), colours, strict=False):
        look.draw(axes, curve, colour, _label(LABELS.get(metric, _words(metric)), curve))
    axes.set_ylabel(", ".join(dict.fromkeys(METRICS[metric].unit for metric in curves)))
    if name in LOGARITHMIC:
        _perhaps_logarithmic(axes, list(curves.values()))
    if name in FROM_ZERO:
        axes.set_ylim(bottom=0)
    return _finish(figure, axes, run, *curves.values())


@picture("return")
def returns(run: Run) -> Figure | None:
    """Draw the returns of training and evaluation in one picture."""
    curves = {
        label: (curve, colour)
        for label, metric, colour in (
            ("training", "return_mean", look.BLUE),
            ("evaluation", "eval_return", look.VERMILLION),
        )
        if (curve := curve_of(run, metric))
    }
    if not curves:
        return None
    figure, axes = look.new_axes("Return", run.name)
    for label, (curve, colour) in curves.items():
        look.draw(axes, curve, colour, _label(label, curve))
    axes.set_ylabel(METRICS["return_mean"].unit)
    return _finish(figure, axes, run, *(curve for curve, _ in curves.values()), least=1)


@picture("time")
def time_split(run: Run) -> Figure | None:
    """Draw the share of each part of the loop, stacked."""
    layers = [metric for metric in LAYERS if metric in run.train]
    if not layers or not len(run.train["step"]):
        return None
    steps = series.thin_steps(run.train["step"])
    shares = np.stack([series.thin(_mean_over_seeds(run.train[metric])) for metric in layers])
    shares = np.stack([series.smooth(share) for share in np.nan_to_num(shares)])
    # A share is of the time since the previous row, so the first one reaches back, too.
    before = max(0.0, 2 * steps[0] - steps[1]) if len(steps) > 1 else 0.0
    steps = np.concatenate([[before], steps])
    shares = np.concatenate([shares[:, :1], shares], axis=1)
    figure, axes = look.new_axes(title_of("time"), run.name)
    labels = [metric.removeprefix("time_") for metric in layers]
    colours = [LAYERS[metric] for metric in layers]
    axes.stackplot(steps, shares, labels=labels, colors=colours, linewidth=0.4, edgecolor="white")
    axes.set_ylim(0, 1)
    axes.yaxis.set_major_formatter(PercentFormatter(1.0))
    axes.set_ylabel("share of the time")
    axes.grid(visible=False)
    look.mark_events(axes, run.events)
    look.fit_steps(axes, steps[0], steps[-1], margin=0.0)
    look.legend_above(axes)
    return figure


for _name in dict.fromkeys(row.picture for row in METRICS.values() if row.picture):
    if _name not in PICTURES:
        PICTURES[_name] = Picture(lambda run, name=_name: lines(run, name))

# Pictures of runs that learn eigenvectors.
PICTURES |= {
    "eigenvectors": Picture(eigenvectors.side_by_side),
    "eigenvectors_forming": Picture(film.film, ".gif"),
    "eigenvalues": Picture(eigenvectors.eigenvalues),
    "similarities": Picture(eigenvectors.similarities),
    "visits": Picture(eigenvectors.visits),
}


def _finish(figure: Figure, axes: Axes, run: Run, *curves: series.Curve, least: int = 2) -> Figure:
    look.mark_events(axes, run.events)
    look.fit_steps(
        axes, min(curve.steps[0] for curve in curves), max(curve.steps[-1] for curve in curves)
    )
    several = any(curve.seeds > 1 for curve in curves)
    look.legend_above(axes, 1 if several else least)
    return figure


def _perhaps_logarithmic(axes: Axes, curves: list[series.Curve]) -> None:
    values = np.concatenate([curve.line if curve.raw is None else curve.raw for curve in curves])
    if values.min() > 0 and values.max() > 50 * values.min():
        axes.set_yscale("log")


def _band(columns: Mapping[str, np.ndarray], metric: str) -> tuple[Any, Any, str]:
    """Return the edges of the band that the table gives a metric, and what they are.

    They are line ± spread if the metric has a spread, but not beyond the smallest and largest
    value; otherwise the smallest and the largest value.
    """
    picture = METRICS[metric].picture
    parts = {row.style: name for name, row in METRICS.items() if row.picture == picture}
    low, high, spread = (
        edge if edge is not None and edge.shape == columns[metric].shape else None
        for edge in (columns.get(parts.get(style, "")) for style in ("low", "high", "spread"))
    )
    if spread is not None:
        lower, upper = columns[metric] - spread, columns[metric] + spread
        lower = lower if low is None else np.fmax(lower, low)
        upper = upper if high is None else np.fmin(upper, high)
        return lower, upper, "± std"
    return low, high, "min to max"


def _label(text: str, curve: series.Curve) -> str:
    if curve.seeds > 1:
        return f"{text} (IQM of {curve.seeds} seeds, {LEVEL:.0%} band)"
    return text if curve.low is None else f"{text} ({curve.band})"


def _mean_over_seeds(values: np.ndarray) -> np.ndarray:
    return values if values.ndim == 1 else np.nanmean(values, axis=1)


def title_of(name: str) -> str:
    """Return the title of a picture."""
    return TITLES.get(name, _words(name).capitalize())


def _words(name: str) -> str:
    return name.replace("_", " ")
