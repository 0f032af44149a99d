"""The pieces from which suites lay out their part of the README: Markdown tables of a result.

Imports `result`, and `table` for how a number is written. Tests:
`tests/bench/test_bench_result.py`, `tests/test_readme.py`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from loopless.bench.result import Measurement, Result
from loopless.bench.table import duration, measured

NOT_RUN = "–"


def section(result: Result, *names: str) -> list[Measurement]:
    return [row for row in result.measurements if row.section in names]


def line(cells: Iterable[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def grid(head: str, columns: Mapping[str, Sequence[Measurement]]) -> list[str]:
    """Contenders down, in the order in which they first come; one column for each list of rows."""
    names = dict.fromkeys(row.contender for rows in columns.values() for row in rows)
    cells = {(c, row.contender): cell(row) for c, rows in columns.items() for row in rows}
    return [
        line([head, *columns]),
        line(["---", *("--:" for _ in columns)]),
        *(line([name, *(cells.get((c, name), NOT_RUN) for c in columns)]) for name in names),
    ]


def by_case(rows: Sequence[Measurement]) -> dict[str, list[Measurement]]:
    """Columns for `grid`: the rows of each case."""
    cases = dict.fromkeys(row.case for row in rows)
    return {case: [row for row in rows if row.case == case] for case in cases}


def cell(row: Measurement) -> str:
    if row.value is None:
        return row.status
    return duration(row.value) + (" (wrong)" if row.status == "disagrees" else "")


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
