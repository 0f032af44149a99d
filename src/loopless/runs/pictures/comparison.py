"""Runs beside each other: `loopless plot RUN [RUN…]`.

Runs that differ only by seed are one group, as are the seeds of one run: a line for the
interquartile mean, a band for what other seeds would have given. A group is named by what tells
it from the others. Language models are compared at equal tokens. Imports matplotlib.
Tests: `tests/runs/test_comparison.py`.
"""

from __future__ import annotations

import json
import textwrap
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from loopless.runs.failures import BadRun
from loopless.runs.glossary import METRICS
from loopless.runs.pictures import look, series
from loopless.runs.pictures.plots import LABELS, Run
from loopless.runs.pictures.series import LEVEL, bootstrap_band, iqm

# Settings by which runs of one experiment may differ: who they are, not what they do.
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
# What stands beside a metric as a line across, if it is the same in all runs.
BESIDE = {
    "validation_per_character": (
        "critic_per_character", "token_trigram_per_character", "character_trigram_per_character",
    ),
    "validation_loss": ("critic_loss", "token_trigram_loss"),
}  # fmt: skip
SPEAKING = {"trainer", "env"}  # settings whose value says it all
LINES = ("-", (0, (4, 1.5)), (0, (1, 1)))
ACROSS = ((0, (6, 2)), (0, (1, 1)), (0, (6, 2, 1, 2)))


@dataclass(frozen=True)
class Group:
    """Runs of one experiment: its name, and its curves [runs, points] over common steps."""

    label: str
    steps: np.ndarray
    curves: np.ndarray


def comparison(folders: Sequence[Path | str]) -> Figure:
    """A figure with one curve a group; evaluation returns, or training returns if one has none."""
    runs = [Run.read(Path(folder)) for folder in folders]
    metric, silent = _metric(runs)
    if silent or not runs:
        names = ", ".join(str(run.folder) for run in silent) or "no run"
        raise BadRun(
            f"plot: no returns and no validation that all share are logged in {names}. Leave out "
            f"what has not trained yet."
        )
    over = _over(runs, metric)
    groups = grouped(runs, metric, over)
    with look.styled():
        size = (10.0, 4.8) if len(groups) > 1 else (8.0, 4.5)
        said = f"interquartile mean, {LEVEL:.0%} bootstrap band"
        several = any(len(group.curves) > 1 for group in groups)
        figure, axes = look.new_axes(TITLES[metric], said if several else "", figsize=size)
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


def grouped(runs: Sequence[Run], metric: str, over: str = "step") -> list[Group]:
    """Runs gathered by their settings, seeds left out, on a common grid each."""
    members: dict[Any, list[Run]] = {}
    settings = {}
    for run in runs:
        mine = settings_of(run)
        key = tuple(sorted((name, repr(value)) for name, value in mine.items())) or run.folder
        members.setdefault(key, []).append(run)
        settings[key] = mine
    labels = dict(zip(settings, _labels(list(settings.values())), strict=True))
    return [
        Group(
            labels[key] or _common_name([run.name for run in gathered]),
            *series.align([pair for run in gathered for pair in _curves(run, metric, over)]),
        )
        for key, gathered in members.items()
    ]


def curve_of(group: Group) -> series.Curve:
    """The interquartile mean of a group, with its band if it has more than one run."""
    if len(group.curves) == 1:
        return series.Curve(group.steps, group.curves[0])
    low, high = bootstrap_band([group.curves])
    return series.Curve(group.steps, iqm(group.curves), low, high, seeds=len(group.curves))


def settings_of(run: Run) -> dict[str, Any]:
    """What the run was told to do, by dotted name; nothing if it cannot be read."""
    try:
        tree = tomllib.loads((run.folder / "config.toml").read_text())
        trainer = json.loads((run.folder / "run.json").read_text())["trainer"]
    except (OSError, ValueError, LookupError, TypeError):
        return {}
    told = {name: value for name, value in _flat(tree) if name not in IDENTITY}
    return {"trainer": trainer, **told}


def _flat(tree: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in tree.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{prefix}{name}.")
        else:
            yield prefix + name, value


def _labels(settings: Sequence[Mapping[str, Any]]) -> list[str]:
    """What tells each group from the others, in words; nothing where nothing does."""
    known = [mine for mine in settings if mine]
    names = dict.fromkeys(name for mine in known for name in mine)
    telling = [name for name in names if _tells(name, known)]
    return [
        ", ".join(_said(name, mine[name]) for name in telling if name in mine) for mine in settings
    ]


def _tells(name: str, settings: Sequence[Mapping[str, Any]]) -> bool:
    """Whether a setting differs between runs of the trainers that have it."""
    trainers = {mine.get("trainer") for mine in settings if name in mine}
    return len({repr(mine.get(name)) for mine in settings if mine.get("trainer") in trainers}) > 1


def _said(name: str, value: Any) -> str:
    """A setting in a few words that stay on one line."""
    if isinstance(value, bool):
        return name if value else f"no\N{NO-BREAK SPACE}{name}"
    words = str(value) if name in SPEAKING else f"{name} {value}"
    return words.replace(" ", "\N{NO-BREAK SPACE}")


def _metric(runs: Sequence[Run]) -> tuple[str, list[Run]]:
    """The first metric that all runs have, and else who lacks the last."""
    silent: list[Run] = []
    for metric in METRIC_ORDER:
        silent = [run for run in runs if not _curves(run, metric, "step")]
        if not silent:
            return metric, []
    return METRIC_ORDER[-1], silent


def _over(runs: Sequence[Run], metric: str) -> str:
    """What the runs are compared at equal numbers of: tokens if all count them, or else steps."""
    counted = all("tokens" in run.columns_of(metric) for run in runs)
    return "tokens" if counted and metric in LEAST_IS_BEST else "step"


def _beside(runs: Sequence[Run], metric: str) -> dict[str, float]:
    """What all runs have in common to be compared with, by name."""
    found = {}
    for name in BESIDE.get(metric, ()):
        values = {float(run.columns_of(name)[name][-1]) for run in runs
                  if name in run.columns_of(name)}  # fmt: skip
        if len(values) == 1:
            found[name] = values.pop()
    return found


def _curves(run: Run, metric: str, over: str) -> list[tuple[np.ndarray, np.ndarray]]:
    """Steps and smoothed values of every seed of a run."""
    columns = run.columns_of(metric)
    if metric not in columns:
        return []
    seeds = columns[metric] if columns[metric].ndim == 2 else columns[metric][:, None]
    found = [series.curve(columns[over], seed) for seed in seeds.T]
    return [(curve.steps, curve.line) for curve in found if curve]


def _best_first(groups: list[Group], metric: str) -> list[Group]:
    sign = 1 if metric in LEAST_IS_BEST else -1
    return sorted(groups, key=lambda group: sign * iqm(group.curves)[-1])


def _legend(group: Group) -> str:
    count = len(group.curves)
    seeds = f"{count}\N{NO-BREAK SPACE}seed{'s' if count > 1 else ''}"
    words = f"{look.literal(group.label, 200)} ({seeds})"
    return "\n".join(textwrap.wrap(words, 36, break_on_hyphens=False))


def _common_name(names: Sequence[str]) -> str:
    """The name of a run, or what the names of several begin with."""
    first = names[0]
    if len(names) == 1:
        return first
    same = next((at for at in range(len(first)) if len({name[: at + 1] for name in names}) > 1),
                len(first))  # fmt: skip
    return first[:same].rstrip("-_. ") or first
