"""A report on the screen: verdict, properties, diagnosis, the smallest failing case, the speed.

Imports rich. Tests: `tests/verify/test_verify_command.py`.
"""

from __future__ import annotations

from io import StringIO

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from loopless.verify.verdicts import AGREES, DIFFERS, Failing, Report

STYLES = {AGREES: "green", DIFFERS: "bold red", "fragile": "yellow"}
PLAIN_WIDTH = 160


def show(report: Report, out: Console | None = None) -> None:
    """Print all that `report` says."""
    out = out or _console()
    _line(out, f"{report.function} as {report.claim}: {report.how}", "bold")
    _line(out, "  " + ", ".join(f"{k} ← {x}" if k != x else k for k, x in report.called.items()))
    out.print()
    _properties(report, out)
    for number, sentence in enumerate(report.diagnosis):
        _line(out, ("Diagnosis: " if not number else "And: ") + sentence, "bold")
    for note in report.notes:
        _line(out, f"Note: {note}")
    if report.failing is not None:
        _case(report.failing, out)
    _line(out, verdict(report), "bold green" if report.equal else "bold red")


def verdict(report: Report) -> str:
    """The last line: whether it is equal, and how fast it is beside ours."""
    wrong = [finding.name for finding in report.findings if finding.status == DIFFERS]
    cases = f"{report.cases:,} cases"
    said = f"equal on {cases}" if report.equal else f"differs: {', '.join(wrong)}"
    if report.timing is None:
        return f"{said}."
    ratio = report.timing.theirs / report.timing.ours
    if ratio >= 1:
        speed = f"ours is {_ratio(ratio)}× faster"
    else:
        speed = f"yours is {_ratio(1 / ratio)}× faster"
    times = f"{_time(report.timing.theirs)} and {_time(report.timing.ours)}"
    return f"{said}; {speed} at {report.timing.case} ({times})."


def as_text(report: Report) -> str:
    """What `show` prints, without colours: the message of a failing test."""
    out = StringIO()
    show(report, Console(file=out, width=PLAIN_WIDTH, no_color=True))
    return out.getvalue()


def _console() -> Console:
    found = Console()
    return found if found.is_terminal else Console(width=PLAIN_WIDTH, no_color=True)


def _line(out: Console, text: str, style: str = "") -> None:
    out.print(text, style=style or None, highlight=False, markup=False, soft_wrap=True)


def _properties(report: Report, out: Console) -> None:
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
    table.add_column("property")
    table.add_column("verdict")
    table.add_column("cases", justify="right")
    table.add_column("")
    for finding in report.findings:
        shown = f"{finding.wrong} of {finding.cases}" if finding.wrong else f"{finding.cases}"
        style = STYLES[finding.status]
        table.add_row(finding.name, Text(finding.status, style), shown, Text(finding.words))
    out.print(table)
    out.print()


def _case(failing: Failing, out: Console) -> None:
    numbers = ", ".join(f"{name} {x}" for name, x in failing.numbers.items())
    _line(out, f"The smallest case that fails ({failing.name}): {numbers}")
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
    for column in failing.columns:
        table.add_column(column, justify="right")
    table.add_column("")
    for row, wrong in zip(failing.rows, failing.wrong, strict=True):
        table.add_row(*row, "←" if wrong else "", style="red" if wrong else None)
    out.print(table)
    out.print()


def _ratio(ratio: float) -> str:
    return f"{ratio:,.0f}" if ratio >= 10 else f"{ratio:.1f}"


def _time(seconds: float) -> str:
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)):
        if seconds >= size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds / 1e-9:.3g} ns"
