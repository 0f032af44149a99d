"""The part of the page on runs: how each learned, what it drew and wrote, and what it was told.

Curves are drawn from the log by `curves`; pictures are taken along as they are. Imports `runs`.
Tests: `tests/report/test_report_page.py`.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from loopless.report import curves
from loopless.report.gathering import RunView
from loopless.report.markup import Markup, tag
from loopless.report.words import label, prose, setting, several, title, words
from loopless.runs.glossary import METRICS
from loopless.runs.pictures import series
from loopless.runs.progress.quantities import clock_time, count, number

# What a run is judged by, the first that it has: the metric, and what it is called.
RESULTS = {
    "eval_return": "evaluation return",
    "similarity_mean": "mean similarity",
    "validation_per_character": "nats per character",
    "validation_loss": "nats per token",
    "return_mean": "return",
}
RIGHT = ("steps", "time")  # columns of numbers
MAIN = ("return", "similarity", "validation_characters", "validation")  # pictures shown large
MERGED = {"evaluation": "return"}  # one picture of training and evaluation
LOGARITHMIC = {"loss", "td_error", "value_loss", "gradient_norm", "learning_rate"}
SCHEDULES = {"exploration", "learning_rate", "clip"}
ENDS = {
    "end": "done",
    "interrupt": "interrupted; resume continues it",
    "nan": "stopped at a number that is none",
    "error": "stopped by an error",
}


def section(runs: Sequence[RunView]) -> Markup:
    """All runs: a line each, then each by itself."""
    parts = [tag("h2", "Runs", id="runs")]
    if not runs:
        said = "No run was given: `loopless report RUN…` shows runs."
        parts.append(tag("p", prose(said), class_="no"))
    if len(runs) > 1:
        parts += [overview(runs), *together(runs)]
    return tag("section", *parts, *(shown(run, at) for at, run in enumerate(runs)))


def overview(runs: Sequence[RunView]) -> Markup:
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
    """Runs that are judged by the same metric, in one picture each metric."""
    judged: dict[str, list[RunView]] = {}
    for run in runs:
        if metric := judged_by(run):
            judged.setdefault(metric, []).append(run)
    for metric, alike in judged.items():
        shown = [(run, curve_of(run, metric)) for run in alike[: curves.COLOURS]]
        named = [curves.Named(run.name, bare(curve)) for run, curve in shown if curve]
        if len(named) > 1:
            left = len(alike) - curves.COLOURS
            more = f" (the first {curves.COLOURS}; {left} more below)" if left > 0 else ""
            title = f"{RESULTS[metric].capitalize()} of all runs{more}"
            unit = METRICS[metric].unit
            yield curves.chart(title, unit if unit != RESULTS[metric] else "", named)


def bare(curve: series.Curve) -> series.Curve:
    """A curve without its band: several bands upon each other say nothing."""
    return curve._replace(low=None, high=None, band="")


def _overview(run: RunView) -> list[str]:
    found = result(run)
    said = f"{found[1]} {found[0]}" if found else "nothing logged yet"
    return [what(run), count(run.step), clock_time(run.seconds), said, state(run)]


def what(run: RunView) -> str:
    """ppo on CartPole-v1; what it learns from, where that has a name."""
    sources = ("env", "data", "grid", "text", "tokens")
    on = next((run.settings[key] for key in sources if run.settings.get(key)), "")
    if not on and run.trainer in ("lm", "avatarl"):
        on = "Python's own source"  # the corpus of those that are told none
    return f"{run.trainer} on {on}" if on else run.trainer


def state(run: RunView) -> str:
    """How it ended, by the last that the log says of it."""
    said = [row["event"] for row in run.events if row.get("event") in (*ENDS, "start", "resume")]
    return ENDS.get(said[-1], "not at its end") if said else "not at its end"


def result(run: RunView) -> tuple[str, str] | None:
    """What a run is judged by: its name and its last value, the mean over seeds."""
    metric = judged_by(run)
    if metric is None:
        return None
    values = run.columns_of(metric)[metric]
    rows = values.reshape(len(values), -1)
    last = rows[np.isfinite(rows).any(axis=1)][-1]
    return RESULTS[metric], number(float(np.nanmean(last)))


def judged_by(run: RunView) -> str | None:
    """The first of those metrics that the run has logged."""
    logged = (metric for metric in RESULTS if metric in run.columns_of(metric))
    return next((m for m in logged if np.isfinite(run.columns_of(m)[m]).any()), None)


def shown(run: RunView, at: int) -> Markup:
    """One run."""
    drawn = dict(charts(run))
    first = next((name for name in (*MAIN, *drawn) if name in drawn), None)
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
        _more("Configuration", _table(dict(_flat(run.settings)))) if run.settings else None,
        _more("Where it comes from", _table(_facts(run.facts))),
        id=f"run-{at}",
    )  # fmt: skip


def _line(run: RunView) -> list[str]:
    found = result(run)
    seeds = int(run.settings.get("seeds", 1))
    return [
        what(run),
        f"{count(run.step)} steps in {clock_time(run.seconds)}",
        *([several(seeds, "seed")] if seeds > 1 else []),
        *([f"{found[0]} {found[1]}"] if found else []),
        state(run),
    ]


def charts(run: RunView) -> Iterator[tuple[str, Markup]]:
    """Every picture that the table of metrics describes, of what was logged."""
    metrics: dict[str, list[str]] = {}
    for metric, row in METRICS.items():
        logged = metric in run.columns_of(metric) and row.each == "seed"
        if row.picture and row.style == "line" and logged:
            metrics.setdefault(MERGED.get(row.picture, row.picture), []).append(metric)
    for name, members in metrics.items():
        drawn = [
            curves.Named(label(metric), curve)
            for metric in members
            if (curve := curve_of(run, metric))
        ]
        if drawn:
            unit = METRICS[members[0]].unit
            yield name, curves.chart(title(name), unit, drawn, logarithmic=name in LOGARITHMIC)


def curve_of(run: RunView, metric: str) -> series.Curve | None:
    """A metric with the band that the table gives it."""
    columns = run.columns_of(metric)
    mine = METRICS[metric].picture
    parts = {row.style: name for name, row in METRICS.items() if row.picture == mine}
    low, high = (columns.get(parts.get(style, "")) for style in ("low", "high"))
    return series.curve(
        columns["step"],
        columns[metric],
        low,
        high,
        band="min to max" if low is not None else "",
        smoothed=mine not in SCHEDULES,
    )


def _pictures(run: RunView) -> Markup | None:
    if not run.pictures:
        drawable = (run.folder / "snapshots").is_dir()
        said = f"No picture is drawn yet: `loopless plot {run.folder}` draws them."
        return tag("p", prose(said), class_="no") if drawable else None
    drawn = [
        tag(
            "figure",
            tag("figcaption", tag("b", title(name))),
            tag(
                "img",
                src=f"data:{kind};base64,{base64.b64encode(data).decode()}",
                alt=f"{title(name)} of {run.name}",
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
        tag("figure", tag("figcaption", tag("b", words(name))), tag("pre", text), class_="sample")
        for name, text in samples.items()
    ]
    return tag("div", tag("h4", "What it writes"), *drawn)


def _time(run: RunView) -> Markup | None:
    """Where the time went, over the whole run, as one bar of shares."""
    shares = {
        name.removeprefix("time_"): float(np.nanmean(values))
        for name, values in run.train.items()
        if name in METRICS and METRICS[name].style == "stack" and np.isfinite(values).any()
    }
    shares = {name: share for name, share in shares.items() if share >= 0.005}
    total = sum(shares.values())
    if not total:
        return None
    pieces, legend, at = [], [], 0.0
    for colour, (name, share) in enumerate(shares.items()):
        width = 100 * share / total
        shade = f"c{colour % curves.COLOURS}"
        pieces.append(tag("rect", x=f"{at:.2f}%", width=f"{width:.2f}%", height=14, class_=shade))
        legend.append(tag("span", tag("i", class_=shade), f"{name} {share / total:.0%}"))
        at += width
    said = "Where the time went: " + ", ".join(f"{n} {s / total:.0%}" for n, s in shares.items())
    return tag(
        "figure",
        tag("figcaption", tag("b", "Where the time went"), tag("span", *legend, class_="legend")),
        tag("svg", *pieces, width="100%", height=14, role="img", aria_label=said),
        class_="shares",
    )


def _more(summary: str, body: Markup) -> Markup:
    return tag("details", tag("summary", summary), body)


def _table(values: Mapping[str, Any]) -> Markup:
    rows = [
        tag("div", tag("dt", name), tag("dd", setting(value))) for name, value in values.items()
    ]
    return tag("dl", *rows)


def _flat(tree: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in tree.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{prefix}{name}.")
        else:
            yield prefix + name, value


def _facts(facts: Mapping[str, Any]) -> dict[str, Any]:
    """The command, the commit and the versions, flat."""
    command = facts.get("command")
    rest = {name: x for name, x in facts.items() if name not in ("command", "commit", "format")}
    first = {"command": " ".join(map(str, command))} if isinstance(command, list) else {}
    first |= {"commit": str(facts["commit"])[:9]} if facts.get("commit") else {}
    return first | {name.removeprefix("packages."): x for name, x in _flat(rest)}
