"""Draw runs beside each other: `loopless plot RUN [RUN…]`.

Runs that differ only by seed are one group, as are the seeds of one run: a line for the
interquartile mean, with a bootstrap band for how seeds vary. A group is named by the settings
in which it differs from the others. Language models are compared at equal numbers of tokens.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from loopless.runs.failures import BadRun, Failure
from loopless.runs.folder import RunFolder, read_config
from loopless.runs.glossary import METRICS
from loopless.runs.pictures import look, series
from loopless.runs.pictures.plots import LABELS, Run
from loopless.runs.pictures.series import LEVEL, bootstrap_band, iqm

# Settings in which runs of one experiment may differ: they name a run, not what it does.
IDENTITY = {"seed", "seeds", "run", "runs", "name"}
IDENTITY |= {"log_every", "plot_every", "checkpoint_every", "profile", "tensorboard"}
METRIC_ORDER = (
    "eval_return",
    "return_mean",
    "similarity_mean",
    "validation_per_character",
    "validation_loss",
)
TITLES = {
    "eval_return": "Evaluation return",
    "return_mean": "Training return",
    "similarity_mean": "Mean similarity with the true eigenvectors",
    "validation_per_character": "Validation cross-entropy",
    "validation_loss": "Validation cross-entropy",
}
LEAST_IS_BEST = {"validation_per_character", "validation_loss"}
# Metrics that are drawn as a horizontal line, if they are equal in all runs.
BESIDE = {
    "validation_per_character": (
        "critic_per_character", "token_trigram_per_character", "character_trigram_per_character",
    ),
    "validation_loss": ("critic_loss", "token_trigram_loss"),
}  # fmt: skip
SELF_EXPLAINING = {"trainer", "env"}  # settings whose value needs no name
LINES = ("-", (0, (4, 1.5)), (0, (1, 1)))
ACROSS = ((0, (6, 2)), (0, (1, 1)), (0, (6, 2, 1, 2)))


@dataclass(frozen=True)
class Group:
    """Runs of one experiment: its name, and its curves [runs, points] over common steps."""

    label: str
    steps: np.ndarray
    curves: np.ndarray


def comparison(folders: Sequence[Path | str]) -> Figure:
    """Draw one curve for each group, of the first metric that all runs have."""
    runs = [Run.read(Path(folder)) for folder in folders]
    metric, lacking = _metric(runs)
    if lacking or not runs:
        names = ", ".join(str(run.folder) for run in lacking) or "no run"
        raise BadRun(
            f"plot: no returns and no validation that all share are logged in {names}. Leave out "
            f"what has not trained yet."
        )
    over = _over(runs, metric)
    groups = group_runs(runs, metric, over)
    with look.styled():
        size = (10.0, 4.8) if len(groups) > 1 else (8.0, 4.5)
        subtitle = f"interquartile mean, {LEVEL:.0%} bootstrap band"
        several = any(len(group.curves) > 1 for group in groups)
        figure, axes = look.new_axes(TITLES[metric], subtitle if several else "", figsize=size)
        for number, group in enumerate(_best_first(groups, metric)):
            colour = look.COLOURS[number % len(look.COLOURS)]
            line = LINES[number // len(look.COLOURS) % len(LINES)]
            look.draw(axes, curve_of(group), colour, _legend(group), linestyle=line)
        for line, (name, value) in zip(ACROSS, _beside(runs, metric).items(), strict=False):
            axes.axhline(value, color=look.GREY, linewidth=1.2, linestyle=line, label=LABELS[name])
        axes.set_xlabel(over)
        axes.set_ylabel(METRICS[metric].unit)
        look.fit_steps(
            axes, min(group.steps[0] for group in groups), max(group.steps[-1] for group in groups)
        )
        if len(groups) > 1:
            axes.legend(loc="center left", bbox_to_anchor=(1.0, 0.5), labelspacing=1.0)
        else:
            look.legend_above(axes, 1)
    return figure


def group_runs(runs: Sequence[Run], metric: str, over: str = "step") -> list[Group]:
    """Group runs by their settings without seeds, each group on a common grid of steps."""
    members: dict[Any, list[Run]] = {}
    settings = {}
    for run in runs:
        own_settings = settings_of(run)
        pairs = sorted((name, repr(value)) for name, value in own_settings.items())
        key = tuple(pairs) or run.folder
        members.setdefault(key, []).append(run)
        settings[key] = own_settings
    labels = dict(zip(settings, _labels(list(settings.values())), strict=True))
    return [
        Group(
            labels[key] or _common_name([run.name for run in gathered]),
            *series.align([pair for run in gathered for pair in _curves(run, metric, over)]),
        )
        for key, gathered in members.items()
    ]


def curve_of(group: Group) -> series.Curve:
    """Return the interquartile mean of a group, with its band if it has several runs."""
    if len(group.curves) == 1:
        return series.Curve(group.steps, group.curves[0])
    low, high = bootstrap_band([group.curves])
    return series.Curve(group.steps, iqm(group.curves), low, high, seeds=len(group.curves))


def settings_of(run: Run) -> dict[str, Any]:
    """Return the settings of a run by dotted name; nothing if they cannot be read."""
    try:
        tree = read_config(run.folder)
        trainer = RunFolder.open(run.folder).trainer
    except (OSError, ValueError, Failure):
        return {}
    settings = {name: value for name, value in flatten(tree) if name not in IDENTITY}
    return {"trainer": trainer, **settings}


def flatten(tree: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the values in nested tables by their dotted names."""
    for name, value in tree.items():
        if isinstance(value, dict):
            yield from flatten(value, f"{prefix}{name}.")
        else:
            yield prefix + name, value


def _labels(settings: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return in words what distinguishes each group from the others."""
    known = [group for group in settings if group]
    names = dict.fromkeys(name for group in known for name in group)
    different = [name for name in names if _differs(name, known)]
    return [
        ", ".join(_describe(name, group[name]) for name in different if name in group)
        for group in settings
    ]


def _differs(name: str, settings: Sequence[Mapping[str, Any]]) -> bool:
    """Return whether a setting differs between groups of the trainers that have it."""
    trainers = {group.get("trainer") for group in settings if name in group}
    alike = [group for group in settings if group.get("trainer") in trainers]
    return len({repr(group.get(name)) for group in alike}) > 1


def _describe(name: str, value: Any) -> str:
    """Return a setting in a few words that stay on one line."""
    if isinstance(value, bool):
        return name if value else f"no\N{NO-BREAK SPACE}{name}"
    words = str(value) if name in SELF_EXPLAINING else f"{name} {value}"
    return words.replace(" ", "\N{NO-BREAK SPACE}")


def _metric(runs: Sequence[Run]) -> tuple[str, list[Run]]:
    """Return the first metric that all runs have, or the last with the runs that lack it."""
    lacking: list[Run] = []
    for metric in METRIC_ORDER:
        lacking = [run for run in runs if not _curves(run, metric, "step")]
        if not lacking:
            return metric, []
    return METRIC_ORDER[-1], lacking


def _over(runs: Sequence[Run], metric: str) -> str:
    """Return what the x axis counts: tokens if all runs of text count them, otherwise steps."""
    counted = all("tokens" in run.columns_of(metric) for run in runs)
    return "tokens" if counted and metric in LEAST_IS_BEST else "step"


def _beside(runs: Sequence[Run], metric: str) -> dict[str, float]:
    """Return the values with which all runs are compared, such as a baseline, by name."""
    lines = {}
    for name in BESIDE.get(metric, ()):
        values = {float(run.columns_of(name)[name][-1]) for run in runs
                  if name in run.columns_of(name)}  # fmt: skip
        if len(values) == 1:
            lines[name] = values.pop()
    return lines


def _curves(run: Run, metric: str, over: str) -> list[tuple[np.ndarray, np.ndarray]]:
    """Return steps and smoothed values of every seed of a run."""
    columns = run.columns_of(metric)
    if metric not in columns:
        return []
    seeds = columns[metric] if columns[metric].ndim == 2 else columns[metric][:, None]
    curves = [series.curve(columns[over], seed) for seed in seeds.T]
    return [(curve.steps, curve.line) for curve in curves if curve]


def _best_first(groups: list[Group], metric: str) -> list[Group]:
    sign = 1 if metric in LEAST_IS_BEST else -1
    return sorted(groups, key=lambda group: sign * iqm(group.curves)[-1])


def _legend(group: Group) -> str:
    count = len(group.curves)
    seeds = f"{count}\N{NO-BREAK SPACE}seed{'s' if count > 1 else ''}"
    words = f"{look.literal(group.label, 200)} ({seeds})"
    return "\n".join(textwrap.wrap(words, 36, break_on_hyphens=False))


def _common_name(names: Sequence[str]) -> str:
    """Return the name of a run, or the common beginning of several names."""
    first = names[0]
    if len(names) == 1:
        return first
    same = next((at for at in range(len(first)) if len({name[: at + 1] for name in names}) > 1),
                len(first))  # fmt: skip
    return first[:same].rstrip("-_. ") or first
