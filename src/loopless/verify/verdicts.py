"""The report on one function: its data, its JSON form, and how it looks on the screen.

`verify.judge` fills a `Report`; `loopless verify` and failing tests print it, and `loopless report`
reads it back from JSON.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from io import StringIO
from typing import TYPE_CHECKING, Any

import numpy as np
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from loopless.bench.table import quantity, times
from loopless.refusals import printable

if TYPE_CHECKING:
    from loopless.verify.calling import Caller

AGREES, DIFFERS, FRAGILE = "agrees", "differs", "fragile"

STYLES = {AGREES: "green", DIFFERS: "bold red", FRAGILE: "yellow"}
PLAIN_WIDTH = 160
# A case's entries of these kinds have one number for each row of the printed table.
BY_ROW = ("rows", "rows+1", "flags", "vector", "vector_flags", "actions", "matrix", "table")
# The right answer depends on these, so they are shown even if the function does not take them.
ALWAYS_SHOWN = ("next_values", "terminated", "truncated")
MOST_ROWS = 40


@dataclass
class Finding:
    """How a function did on the cases of one property."""

    name: str
    status: str  # "agrees", "differs", or "fragile": wrong only where inputs are NaN or the like
    cases: int
    wrong: int = 0
    words: str = ""  # what happened, if there were no answers to compare


@dataclass
class Failing:
    """The smallest case that fails, as a table with a row for each step or sample."""

    name: str  # of the property
    numbers: dict[str, Any]
    columns: list[str]
    rows: list[list[str]]
    wrong: list[bool]  # which rows differ


@dataclass
class Timing:
    """Seconds for one call of the user's function and of ours, on the same case."""

    case: str
    theirs: float
    ours: float


@dataclass
class Report:
    """Everything that was found out about one function."""

    function: str
    claim: str
    called: dict[str, str]  # its parameters → what was passed for each
    how: str  # library and layout
    findings: list[Finding] = field(default_factory=list)
    diagnosis: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    failing: Failing | None = None
    timing: Timing | None = None

    @property
    def equal(self) -> bool:
        return bool(self.findings) and all(f.status != DIFFERS for f in self.findings)

    @property
    def cases(self) -> int:
        return sum(finding.cases for finding in self.findings)

    def to_json(self) -> dict[str, Any]:
        """Return the report as plain data, with its verdict and the ratio of the two times."""
        ratio = self.timing.theirs / self.timing.ours if self.timing else None
        return {"equal": self.equal, "cases": self.cases, "ratio": ratio, **asdict(self)}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Report:
        """Return the report that `to_json` wrote; raise KeyError or TypeError on other data."""
        failing, timing = data["failing"], data["timing"]
        return cls(
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


# --- on the screen


def show(report: Report, console: Console | None = None) -> None:
    """Print everything that `report` says."""
    console = console or _console()
    _line(console, f"{report.function} as {report.claim}: {report.how}", "bold")
    parameters = (f"{k} ← {x}" if k != x else k for k, x in report.called.items())
    _line(console, "  " + ", ".join(parameters))
    console.print()
    _show_properties(report, console)
    for number, sentence in enumerate(report.diagnosis):
        _line(console, ("Diagnosis: " if not number else "And: ") + sentence, "bold")
    for note in report.notes:
        _line(console, f"Note: {note}")
    if report.failing is not None:
        _show_case(report.failing, console)
    _line(console, verdict(report), "bold green" if report.equal else "bold red")


def verdict(report: Report) -> str:
    """Return the last line: whether the function is equal, and how fast it is beside ours."""
    failed = [finding.name for finding in report.findings if finding.status == DIFFERS]
    line = f"equal on {report.cases:,} cases" if report.equal else f"differs: {', '.join(failed)}"
    if report.timing is None:
        return f"{line}."
    ratio = report.timing.theirs / report.timing.ours
    if ratio >= 1:
        speed = f"ours is {times(ratio)} faster"
    else:
        speed = f"yours is {times(1 / ratio)} faster"
    both = " and ".join(quantity(x, "s") for x in (report.timing.theirs, report.timing.ours))
    return f"{line}; {speed} at {report.timing.case} ({both})."


def as_text(report: Report) -> str:
    """Return what `show` prints, without colors, as the message of a failing test."""
    out = StringIO()
    show(report, Console(file=out, width=PLAIN_WIDTH, no_color=True))
    return out.getvalue()


def _console() -> Console:
    console = Console()
    return console if console.is_terminal else Console(width=PLAIN_WIDTH, no_color=True)


def _line(console: Console, text: str, style: str = "") -> None:
    text = printable(text)
    console.print(text, style=style or None, highlight=False, markup=False, soft_wrap=True)


def _show_properties(report: Report, console: Console) -> None:
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
    table.add_column("property")
    table.add_column("verdict")
    table.add_column("cases", justify="right")
    table.add_column("")
    for finding in report.findings:
        cases = f"{finding.wrong} of {finding.cases}" if finding.wrong else f"{finding.cases}"
        style = STYLES[finding.status]
        table.add_row(finding.name, Text(finding.status, style), cases, Text(finding.words))
    console.print(table)
    console.print()


def _show_case(failing: Failing, console: Console) -> None:
    numbers = ", ".join(f"{name} {x}" for name, x in failing.numbers.items())
    _line(console, f"The smallest case that fails ({failing.name}): {numbers}")
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
    for column in failing.columns:
        table.add_column(column, justify="right")
    table.add_column("")
    for row, is_wrong in zip(failing.rows, failing.wrong, strict=True):
        table.add_row(*row, "←" if is_wrong else "", style="red" if is_wrong else None)
    console.print(table)
    console.print()


# --- the smallest failing case as a table


def tabulate(
    name: str,
    caller: Caller,
    case: Mapping,
    answers: Mapping,
    right_answers: Mapping,
    tolerances: Mapping,
) -> Failing:
    """Return `case` by columns: what the function received, what it answered, what is right."""
    from loopless.verify.contracts.contract import differs  # late: `report` needs no kernels

    columns, numbers = _inputs(caller, case)
    shapes = [np.shape(x) for x in answers.values() if np.ndim(x)]
    shape = shapes[0] if shapes else (max((len(x) for x in columns.values()), default=0),)
    is_wrong = np.zeros(shape, bool)
    for output, x in answers.items():
        right = right_answers[output]
        if np.shape(x) == shape:
            columns |= {f"your {output}": x, f"right {output}": right}
            is_wrong |= differs(x, right, tolerances[output])
        else:
            numbers |= {f"your {output}": _cell(x), f"right {output}": _cell(right)}
    head, places = _places(shape)
    rows = [
        [*labels, *(_cell_at(np.asarray(x), place) for x in columns.values())]
        for labels, place in places[:MOST_ROWS]
    ]
    wrong = [bool(is_wrong[place]) for _, place in places[:MOST_ROWS]]
    return Failing(name, numbers, [*head, *columns], rows, wrong)


def _inputs(caller: Caller, case: Mapping) -> tuple[dict[str, Any], dict[str, str]]:
    """Split the inputs into columns and single numbers, under the function's own names."""
    forms = {form.name: form for form in caller.contract.forms}
    shown = dict(caller.plan.mapping)
    if "rewards" in shown.values():
        taken = set(shown.values())
        shown |= {x: x for x in ALWAYS_SHOWN if x in forms and x in case and x not in taken}
    columns, numbers = {}, {}
    for parameter, form in shown.items():
        x = forms[form].make(case)
        if forms[form].kind in BY_ROW:
            columns[parameter] = x
        else:
            numbers[parameter] = _cell(x)
    return columns, numbers


def _places(shape: tuple[int, ...]) -> tuple[list[str], list[tuple[list[str], tuple[int, ...]]]]:
    """Return the first columns' headings, and each row's labels and its place in the arrays."""
    if len(shape) != 2:
        return ["row"], [([str(b)], (b,)) for b in range(shape[0])]
    steps, envs = shape
    places = [(t, b) for b in range(envs) for t in range(steps)]
    if envs == 1:
        return ["t"], [([str(t)], (t, b)) for t, b in places]
    return ["env", "t"], [([str(b), str(t)], (t, b)) for t, b in places]


def _cell_at(x: np.ndarray, place: tuple[int, ...]) -> str:
    inside = all(i < n for i, n in zip(place, x.shape, strict=False))
    return _cell(x[place[: x.ndim]]) if inside else ""


def _cell(x: Any) -> str:
    if np.ndim(x):
        return "[" + ", ".join(map(_cell, np.ravel(x))) + "]"
    if isinstance(x, bool | np.bool_):
        return "yes" if x else "·"
    if isinstance(x, int | np.integer):
        return str(int(x))
    return f"{float(x):.6g}"
