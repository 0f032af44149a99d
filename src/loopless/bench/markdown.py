"""The pieces from which suites lay out their part of the README: Markdown tables of a result.

Imports `result`, and `table` for how a number is written. Tests:
`tests/bench/test_bench_result.py`, `tests/test_readme.py`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal

from loopless.bench.result import Measurement, Result
from loopless.bench.table import measured, quantity

NOT_RUN = "–"
Axis = Literal["case", "contender"]


def section(result: Result, *names: str) -> list[Measurement]:
    return [row for row in result.measurements if row.section in names]


def line(cells: Iterable[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def grid(
    head: str, rows: Sequence[Measurement], down: Axis = "contender", across: Axis = "case"
) -> list[str]:
    """A table of numbers with their units, names in the order in which they first come."""
    names = dict.fromkeys(getattr(row, down) for row in rows)
    columns = dict.fromkeys(getattr(row, across) for row in rows)
    cells = {(getattr(row, down), getattr(row, across)): cell(row) for row in rows}
    return [
        line([head, *columns]),
        line(["---", *("--:" for _ in columns)]),
        *(line([name, *(cells.get((name, c), NOT_RUN) for c in columns)]) for name in names),
    ]


def cell(row: Measurement) -> str:
    if row.value is None:
        return row.status
    return quantity(row.value, row.unit) + (" (wrong)" if row.status == "disagrees" else "")


def target_table(rows: Iterable[Measurement]) -> list[str]:
    """Every target with what was measured."""
    lines = [line(["case", "target", "measured", ""]), line(["---", "---", "--:", "---"])]
    for row in rows:
        for target in row.targets:
            unjudged = "not measured" if target.measured is None else "stated"
            verdict = {True: "met", False: "**missed**", None: unjudged}[target.met]
            where = f"{row.contender}, {row.case}"
            lines.append(line([where, target.target, measured(target), verdict]))
    return lines


def measured_on(result: Result) -> str:
    """The machine, the day and the commit."""
    machine = result.machine
    day, commit = machine["date"][:10], machine["commit"]["id"][:9]
    return f"{machine['cpu']}, {result.settings['threads']} thread, {day}, commit {commit}."
