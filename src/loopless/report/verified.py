"""Write the part of the page on functions that `loopless verify` judged, with the failing case."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path

from loopless.bench.table import times
from loopless.files import atomic
from loopless.report.markup import Markup, prose, several, tag
from loopless.runs.progress.quantities import duration
from loopless.verify.verdicts import Failing, Finding, Report, Timing

LARGEST = 1 << 24  # bytes of a report
COLOURS = {"agrees": "up", "differs": "down", "fragile": "down"}


def gather(paths: Iterable[Path], problems: list[str]) -> list[Report]:
    """Return the reports that can be read; what is wrong with the rest is added to `problems`."""
    reports = []
    for path in paths:
        try:
            reports.append(Report.from_json(json.loads(atomic.read_small(path, LARGEST))))
        except OSError as problem:
            problems.append(f"report: cannot read {path}: {problem.strerror}.")
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as problem:
            what = f"{type(problem).__name__}: {problem}"
            problems.append(f"report: {path} holds no result of `loopless verify` ({what}).")
    return reports


def section(reports: Sequence[Report]) -> Markup | None:
    """Return an article for each function, or None if none was judged."""
    if not reports:
        return None
    return tag("section", tag("h2", "Verified", id="verified"), *map(article, reports))


def article(report: Report) -> Markup:
    """Return everything that a report says about one function."""
    verdict = "equal" if report.equal else "differs"
    colour = "up" if report.equal else "down"
    summary = f"as {report.claim}: {report.how}, {several(report.cases, 'case')}"
    return tag(
        "article",
        tag("h3", report.function, " ", tag("b", verdict, class_=colour)),
        tag("p", summary, class_="faint"),
        *(tag("p", prose(line), class_="diagnosis") for line in report.diagnosis),
        *(tag("p", prose(note), class_="faint") for note in report.notes),
        _failing(report.failing) if report.failing else None,
        _properties(report.findings),
        _timing(report.timing) if report.timing else None,
    )


def _failing(failing: Failing) -> Markup:
    """Return the smallest failing case as a table; the rows that differ are marked."""
    numbers = ", ".join(f"{name} {value}" for name, value in failing.numbers.items())
    head = tag("tr", *(tag("th", name, class_="n") for name in failing.columns))
    rows = [
        tag("tr", *(tag("td", cell, class_="n") for cell in row), class_="differs" if bad else None)
        for row, bad in zip(failing.rows, failing.wrong, strict=True)
    ]
    table = tag("table", tag("thead", head), tag("tbody", *rows))
    return tag(
        "div",
        tag("h4", f"The smallest case that fails: {failing.name}"),
        tag("p", numbers, class_="faint") if numbers else None,
        tag("div", table, class_="scroll"),
    )


def _properties(findings: Sequence[Finding]) -> Markup:
    rows = [
        tag(
            "tr",
            tag("td", finding.name, tag("span", f" {finding.words}", class_="faint")),
            tag("td", tag("b", finding.status, class_=COLOURS.get(finding.status))),
            tag("td", f"{finding.wrong} of {finding.cases}" if finding.wrong else finding.cases,
                class_="n"),
        )
        for finding in findings
    ]  # fmt: skip
    return tag("table", tag("tbody", *rows))


def _timing(timing: Timing) -> Markup:
    sentence = (
        f"Ours is {times(timing.theirs / timing.ours)} its speed at {timing.case}: "
        f"{duration(timing.ours)} instead of {duration(timing.theirs)}."
    )
    return tag("p", sentence)
