"""Write the part of the page on benchmarks: for each suite a table of its cases, then bars."""

from __future__ import annotations

from collections.abc import Sequence

from loopless.bench import table
from loopless.bench.machine import is_busy
from loopless.bench.result import Measurement, Result, Target
from loopless.bench.table import Line, measured, quantity, times, value_text
from loopless.report.charts import Scale, bars
from loopless.report.markup import Markup, day, prose, several, tag

HEADS = ("case", "loopless", "the loop", "×", "fastest peer", "×", "floor")
VERDICTS = {True: "met", False: "missed", None: "not judged"}


def section(results: Sequence[Result]) -> Markup:
    """Return the part on benchmarks."""
    parts = [tag("h2", "Speed", id="speed")]
    if not results:
        hint = "No benchmark was given: `loopless bench` measures, `--bench` shows its files."
        return tag("section", *parts, tag("p", prose(hint), class_="no"))
    introduction = (
        "The best of ours beside the plain loop that it replaces and the fastest other library "
        "that gives the right answer. The floor is what the machine needs to move the data."
    )
    parts.append(tag("p", introduction, class_="faint"))
    return tag("section", *parts, *(suite(result) for result in results))


def overview(lines: Sequence[Line]) -> Markup:
    """Return a table with a line for each case."""
    rows = [tag("tr", *_cells(line)) for line in lines]
    head = tag(
        "tr", *(tag("th", name, class_="n" if at else None) for at, name in enumerate(HEADS))
    )
    return tag("table", tag("thead", head), tag("tbody", *rows), class_="cards speed")


def _cells(line: Line) -> list[Markup]:
    peer: object = "–"
    if line.peer:
        name = tag("span", line.peer.contender, class_="faint")
        peer = tag("span", name, " ", tag("span", value_text(line.peer)))
    cells: list[tuple[str, str, object]] = [
        ("wide", "loopless", value_text(line.ours)),
        ("wide", "the loop", value_text(line.loop)),
        ("ratio", "", _times(line.times(line.loop))),
        ("wide", "", peer),
        ("ratio", "", _times(line.times(line.peer))),
        ("wide", "floor", value_text(line.floor)),
    ]
    return [
        tag("td", line.name),
        *(
            tag("td", cell, data_label=head, class_=f"n {kind}{' none' if cell == '–' else ''}")
            for kind, head, cell in cells
        ),
    ]


def _times(ratio: float | None) -> object:
    return "–" if ratio is None else tag("b", times(ratio), class_="up" if ratio >= 1 else "down")


def suite(result: Result) -> Markup:
    """Return one suite: its sections, its targets, and the machine it was measured on."""
    titles = result.titles
    names = dict.fromkeys(row.section for row in result.measurements)
    found = table.lines([result])
    parts = [
        _section(
            titles.get(name, name),
            [row for row in result.measurements if row.section == name],
            is_first=at == 0,
        )
        for at, name in enumerate(names)
    ]
    nothing = tag("p", "Nothing was measured.", class_="no") if not parts else None
    return tag(
        "article",
        tag("h3", result.suite, *_chips(result)),
        tag("p", measured_on(result), class_="faint"),
        overview(found) if found else nothing,
        *parts,
        _targets(result.measurements),
        id=f"suite-{result.suite}",
    )


def _chips(result: Result) -> list[Markup]:
    """Return labels with what a reader must know before believing a number."""
    warnings = {
        "quick run": result.settings.get("quick"),
        "interrupted": result.interrupted,
        "busy machine: not to be trusted": is_busy(result.machine),
    }
    return [tag("span", words, class_="chip") for words, holds in warnings.items() if holds]


def measured_on(result: Result) -> str:
    """Return the machine, the threads, the day and the commit, as far as they are known."""
    machine = result.machine
    threads = result.settings.get("threads")
    commit = machine.get("commit") or {}
    parts = [
        str(machine.get("cpu", "")),
        several(threads, "thread") if isinstance(threads, int) else "",
        f"Python {machine['python']}" if machine.get("python") else "",
        day(machine["date"]) if machine.get("date") else "",
        f"commit {str(commit['id'])[:9]}" if commit.get("id") else "",
    ]
    return " · ".join(filter(None, parts)) or "The machine is not known."


def _section(title: str, rows: Sequence[Measurement], is_first: bool) -> Markup:
    """Return bars for every case; all but the first case of a suite are folded away."""
    speeds = [row.value for row in rows if table.is_speed(row) and row.value]
    if not speeds or len({row.unit for row in rows}) > 1:
        return _more(title, "", [_numbers(rows)])
    scale = Scale(speeds)
    cases = dict.fromkeys(row.case for row in rows)
    charts = [
        tag("div", tag("h5", case), bars(at, scale, f"{title}: {case}"))
        for case in cases
        if (at := [row for row in rows if row.case == case])
    ]
    if not is_first:
        return _more(title, several(len(charts), "case"), charts)
    more = _more(several(len(charts) - 1, "more case"), "", charts[1:]) if charts[1:] else None
    return tag("div", tag("h4", title), charts[0], more)


def _more(head: str, faint: str, body: Sequence[Markup]) -> Markup:
    summary = tag("summary", tag("span", head), " ", tag("span", faint, class_="faint"))
    return tag("details", summary, *body)


def _numbers(rows: Sequence[Measurement]) -> Markup:
    """Return a table of rows that cannot be drawn as bars, under the names of their cases."""
    body, before = [], ""
    for row in rows:
        if row.case != before:
            body.append(tag("tr", tag("th", row.case, colspan=2), class_="group"))
        before = row.case
        cells = tag("td", row.contender), tag("td", _value(row), class_="n")
        body.append(tag("tr", *cells))
    return tag("table", tag("tbody", *body))


def _value(row: Measurement) -> str:
    if row.value is None:
        return f"{row.status}: {row.reason}" if row.reason else row.status
    return quantity(row.value, row.unit) + (" (wrong)" if row.status == "disagrees" else "")


def _targets(rows: Sequence[Measurement]) -> Markup | None:
    """Return a table of the targets, missed ones first."""
    judged = [(row, target) for row in rows for target in row.targets]
    if not judged:
        return None
    judged.sort(key=lambda pair: (pair[1].met is not False, pair[1].met is None))
    counts = [
        f"{number} {VERDICTS[met]}"
        for met in (True, False, None)
        if (number := sum(target.met is met for _, target in judged))
    ]
    heads = ("case", "target", "measured", "")
    body = [_target(row, target) for row, target in judged]
    table = tag(
        "table",
        tag("thead", tag("tr", *(tag("th", name) for name in heads))),
        tag("tbody", *body),
        class_="cards",
    )
    return _more("Targets", ", ".join(counts), [table])


def _target(row: Measurement, target: Target) -> Markup:
    colour = {True: "up", False: "down", None: "faint"}[target.met]
    return tag(
        "tr",
        tag("td", f"{row.contender}, {row.case}"),
        tag("td", target.target, data_label="target"),
        tag("td", measured(target), data_label="measured", class_="n"),
        tag("td", tag("b", VERDICTS[target.met], class_=colour), data_label="verdict"),
    )
