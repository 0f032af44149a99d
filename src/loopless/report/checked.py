"""The part of the page on functions that `loopless verify` judged: verdict, reason, smallest case.

Imports `verify.verdicts` for what a judgement is. Tests: `tests/report/test_report_checked.py`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path

from loopless.bench.table import times
from loopless.files import atomic
from loopless.report.markup import Markup, tag
from loopless.report.words import prose, several
from loopless.runs.progress.quantities import duration
from loopless.verify.verdicts import Failing, Finding, Report, Timing

COLOURS = {"agrees": "up", "differs": "down", "fragile": "down"}


def gather(paths: Iterable[Path], problems: list[str]) -> list[Report]:
    """The judgements that can be read; what is wrong with the rest is added to `problems`."""
    found = []
    for path in paths:
        try:
            found.append(_report(atomic.read_small(path, 1 << 24)))
        except OSError as problem:
            problems.append(f"report: cannot read {path}: {problem.strerror}.")
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as problem:
            what = f"{type(problem).__name__}: {problem}"
            problems.append(f"report: {path} holds no result of `loopless verify` ({what}).")
    return found


def _report(text: bytes) -> Report:
    data = json.loads(text)
    failing, timing = data["failing"], data["timing"]
    return Report(
        function=str(data["function"]),
        claim=str(data["claim"]),
        called=dict(data["called"]),
        how=str(data["how"]),
        findings=[Finding(**finding) for finding in data["findings"]],
        diagnosis=list(map(str, data["diagnosis"])),
        notes=list(map(str, data["notes"])),
        failing=Failing(**failing) if failing else None,
        timing=Timing(**timing) if timing else None,
    )


def section(reports: Sequence[Report]) -> Markup | None:
    """A function each; nothing if none was judged."""
    if not reports:
        return None
    return tag("section", tag("h2", "Verified", id="verified"), *map(shown, reports))


def shown(report: Report) -> Markup:
    verdict = "equal" if report.equal else "differs"
    colour = "up" if report.equal else "down"
    said = f"as {report.claim}: {report.how}, {several(report.cases, 'case')}"
    return tag(
        "article",
        tag("h3", report.function, " ", tag("b", verdict, class_=colour)),
        tag("p", said, class_="faint"),
        *(tag("p", prose(line), class_="diagnosis") for line in report.diagnosis),
        *(tag("p", prose(note), class_="faint") for note in report.notes),
        _failing(report.failing) if report.failing else None,
        _properties(report.findings),
        _timing(report.timing) if report.timing else None,
    )


def _failing(failing: Failing) -> Markup:
    """The smallest case, a row for each step, those that differ marked."""
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
    said = (
        f"Ours is {times(timing.theirs / timing.ours)} its speed at {timing.case}: "
        f"{duration(timing.ours)} instead of {duration(timing.theirs)}."
    )
    return tag("p", said)
