"""Write the part of the page on runs: how each learned, what it drew and wrote, its settings.

Curves are drawn again from the log, as the run itself draws them; pictures are copied as they are.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from loopless.report.charts import curves
from loopless.report.gathering import RunView
from loopless.report.markup import Markup, prose, setting, several, tag
from loopless.runs.glossary import METRICS
from loopless.runs.pictures import look, plots
from loopless.runs.pictures.comparison import flatten
from loopless.runs.progress.quantities import clock_time, count, number

# Metric → what a reader calls it. A run is judged by the first of these that it has logged.
RESULTS = {
    "eval_return": "evaluation return",
    "similarity_mean": "mean similarity",
    "validation_per_character": "nats per character",
    "validation_loss": "nats per token",
    "return_mean": "return",
}
RIGHT = ("steps", "time")  # columns of numbers
LARGE = ("return", "similarity", "validation_characters", "validation")  # the first is shown large
MOST_TOGETHER = 6  # runs in one picture
# Picture → its metrics. "evaluation" is left out: the picture "return" shows evaluations, too.
METRIC_PICTURES: dict[str, list[str]] = {}
for _name, _row in METRICS.items():
    if _row.picture and _row.picture != "evaluation" and _row.style in ("line", "stack"):
        METRIC_PICTURES.setdefault(_row.picture, []).append(_name)
ENDS = {
    "end": "done",
    "interrupt": "interrupted; resume continues it",
    "nan": "stopped at a number that is not finite",
    "error": "stopped by an error",
}


def section(runs: Sequence[RunView]) -> Markup:
    """Return the part on runs: a table of all, then each by itself."""
    parts = [tag("h2", "Runs", id="runs")]
    if not runs:
        hint = "No run was given: `loopless report RUN…` shows runs."
        parts.append(tag("p", prose(hint), class_="no"))
    if len(runs) > 1:
        parts += [overview(runs), *together(runs)]
    return tag("section", *parts, *(article(run, at) for at, run in enumerate(runs)))


def overview(runs: Sequence[RunView]) -> Markup:
    """Return a table with a line for each run."""
    heads = ("run", "what", "steps", "time", "result", "state")
    rows = [
        tag(
            "tr",
            tag("td", tag("a", run.name, href=f"#run-{at}"), data_label=heads[0]),
            *(
                tag("td", text, data_label=head, class_="n" if head in RIGHT else None)
                for head, text in zip(heads[1:], _overview(run), strict=True)
            ),
        )
        for at, run in enumerate(runs)
    ]
    head = tag("tr", *(tag("th", text, class_="n" if text in RIGHT else None) for text in heads))
    return tag("table", tag("thead", head), tag("tbody", *rows), class_="cards")


def together(runs: Sequence[RunView]) -> Iterator[Markup]:
    """Yield one picture for each metric by which several runs are judged."""
    judged: dict[str, list[RunView]] = {}
    for run in runs:
        if metric := judged_by(run):
            judged.setdefault(metric, []).append(run)
    for metric, alike in judged.items():
        if len(alike) > 1:
            shown, left = alike[:MOST_TOGETHER], len(alike) - MOST_TOGETHER
            more = f" (the first {MOST_TOGETHER}; {left} more below)" if left > 0 else ""
            title = f"{RESULTS[metric].capitalize()} of all runs{more}"
            unit = METRICS[metric].unit if METRICS[metric].unit != RESULTS[metric] else ""
            ends = ", ".join(f"{run.name} {number(_last_value(run, metric) or 0)}" for run in shown)
            draw = partial(_draw_together, shown, metric)
            if chart := curves(title, unit, f"{title}: {ends}.", draw, large=True):
                yield chart


def _draw_together(runs: Sequence[RunView], metric: str) -> Figure:
    """Draw a curve for each run, without bands, which nobody could read on top of each other."""
    figure, axes = look.new_axes("")
    curves = [
        (run.name, curve._replace(low=None, high=None, raw=None))
        for run in runs
        if (curve := plots.curve_of(run, metric))
    ]
    for colour, (name, curve) in zip(look.COLOURS, curves, strict=False):
        look.draw(axes, curve, colour, look.literal(name, 40))
    look.fit_steps(axes, min(c.steps[0] for _, c in curves), max(c.steps[-1] for _, c in curves))
    look.legend_above(axes)
    return figure


def _overview(run: RunView) -> list[str]:
    last = result(run)
    outcome = f"{last[1]} {last[0]}" if last else "nothing logged yet"
    return [what(run), count(run.step), clock_time(run.seconds), outcome, state(run)]


def what(run: RunView) -> str:
    """Return trainer and task, such as "ppo on CartPole-v1"."""
    sources = ("env", "data", "grid", "text", "tokens")
    on = next((run.settings[key] for key in sources if run.settings.get(key)), "")
    if not on and run.trainer in ("lm", "avatarl"):
        on = "Python's own source"  # the default corpus
    return f"{run.trainer} on {on}" if on else run.trainer


def state(run: RunView) -> str:
    """Return how a run ended, by the last event of its log."""
    events = [row["event"] for row in run.events if row.get("event") in (*ENDS, "start", "resume")]
    return ENDS.get(events[-1], "not at its end") if events else "not at its end"


def result(run: RunView) -> tuple[str, str] | None:
    """Return the name and the last value of the metric that a run is judged by."""
    metric = judged_by(run)
    if metric is None:
        return None
    return RESULTS[metric], number(_last_value(run, metric) or 0.0)


def judged_by(run: RunView) -> str | None:
    """Return the first of the metrics in RESULTS that the run has logged."""
    return next((metric for metric in RESULTS if _last_value(run, metric) is not None), None)


def article(run: RunView, at: int) -> Markup:
    """Return everything about one run."""
    drawn = dict(charts(run))
    first = next((name for name in (*LARGE, *drawn) if name in drawn), None)
    rest = [picture for name, picture in drawn.items() if name != first]
    nothing = tag("p", "Nothing is logged yet: the run has just begun, or died early.", class_="no")
    return tag(
        "article",
        tag("h3", run.name),
        tag("p", " · ".join(_line(run)), class_="faint"),
        drawn[first] if first else nothing,
        _pictures(run),
        _samples(run.samples),
        _time(run),
        _more(several(len(rest), "more curve"), tag("div", *rest, class_="small"))
        if rest
        else None,
        _more("Configuration", _table(dict(flatten(run.settings)))) if run.settings else None,
        _more("Where it comes from", _table(_facts(run.facts))),
        id=f"run-{at}",
    )  # fmt: skip


def _line(run: RunView) -> list[str]:
    last = result(run)
    seeds = int(run.settings.get("seeds", 1))
    return [
        what(run),
        f"{count(run.step)} steps in {clock_time(run.seconds)}",
        *([several(seeds, "seed")] if seeds > 1 else []),
        *([f"{last[0]} {last[1]}"] if last else []),
        state(run),
    ]


def charts(run: RunView) -> Iterator[tuple[str, Markup]]:
    """Yield name and chart of every picture in the table of metrics that this run can draw."""
    names = [name for name in plots.PICTURES if name in METRIC_PICTURES]
    large = next((name for name in (*LARGE, *names) if _last_values(run, name)), "")
    for name in names:
        chart = curves(
            plots.title_of(name),
            "" if name == "time" else _unit(name),
            f"{plots.title_of(name)} of {run.name}: {_last_values(run, name)}.",
            partial(plots.PICTURES[name].draw, run),
            large=name == large,
        )
        if chart:
            yield name, chart


def _last_values(run: RunView, picture: str) -> str:
    """Return in words the last value of each metric of a picture; "" if none was logged."""
    found = {
        metric: last
        for metric in METRIC_PICTURES[picture]
        if (last := _last_value(run, metric)) is not None
    }
    return ", ".join(f"{metric.replace('_', ' ')} {number(last)}" for metric, last in found.items())


def _last_value(run: RunView, metric: str) -> float | None:
    """Return the last value of a metric, the mean over seeds; None if there is none."""
    values = run.columns_of(metric).get(metric)
    if values is None or not np.isfinite(values).any():
        return None
    rows = values.reshape(len(values), -1)
    return float(np.nanmean(rows[np.isfinite(rows).any(axis=1)][-1]))


def _unit(picture: str) -> str:
    return METRICS[METRIC_PICTURES[picture][0]].unit


def _pictures(run: RunView) -> Markup | None:
    if not run.pictures:
        drawable = (run.folder / "snapshots").is_dir()
        hint = f"No picture is drawn yet: `loopless plot {run.folder}` draws them."
        return tag("p", prose(hint), class_="no") if drawable else None
    drawn = [
        tag(
            "figure",
            tag("figcaption", tag("b", plots.title_of(name))),
            tag(
                "img",
                src=f"data:{kind};base64,{base64.b64encode(data).decode()}",
                alt=f"{plots.title_of(name)} of {run.name}",
            ),
            class_="paper",
        )
        for name, (kind, data) in sorted(run.pictures.items(), key=_first_eigenvectors)
    ]
    return tag("div", *drawn, class_="pictures")


def _first_eigenvectors(picture: tuple[str, object]) -> tuple[bool, str]:
    return not picture[0].startswith("eigenvectors"), picture[0]


def _samples(samples: Mapping[str, str]) -> Markup | None:
    if not samples:
        return None
    drawn = [
        tag("figure", tag("figcaption", tag("b", name)), tag("pre", text), class_="sample")
        for name, text in ((name.replace("_", " "), text) for name, text in samples.items())
    ]
    return tag("div", tag("h4", "What it writes"), *drawn)


def _time(run: RunView) -> Markup | None:
    """Return a line with each part's share of the time, over the whole run."""
    shares = {
        name.removeprefix("time_"): float(np.nanmean(values))
        for name, values in run.train.items()
        if name in METRICS and METRICS[name].style == "stack" and np.isfinite(values).any()
    }
    shares = {name: share for name, share in shares.items() if share >= 0.005}
    total = sum(shares.values())
    if not total:
        return None
    parts = ", ".join(f"{name} {share / total:.0%}" for name, share in shares.items())
    return tag("p", tag("b", "Where the time went: "), parts, class_="shares")


def _more(summary: str, body: Markup) -> Markup:
    return tag("details", tag("summary", summary), body)


def _table(values: Mapping[str, Any]) -> Markup:
    rows = [
        tag("div", tag("dt", name), tag("dd", setting(value))) for name, value in values.items()
    ]
    return tag("dl", *rows)


def _facts(facts: Mapping[str, Any]) -> dict[str, Any]:
    """Return the command, the commit and the versions, by name."""
    command = facts.get("command")
    rest = {name: x for name, x in facts.items() if name not in ("command", "commit", "format")}
    first = {"command": " ".join(map(str, command))} if isinstance(command, list) else {}
    first |= {"commit": str(facts["commit"])[:9]} if facts.get("commit") else {}
    return first | {name.removeprefix("packages."): x for name, x in flatten(rest)}
