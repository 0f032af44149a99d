"""How the suite `q_learning` is shown: titles of its sections, and its part of the README.

Imports `markdown`. Tests: `tests/test_readme.py`.
"""

from __future__ import annotations

from dataclasses import replace

from loopless.bench.markdown import cell, grid, line, measured_on, section, target_table
from loopless.bench.result import Result

TITLES = {
    "update": "One update, sampling included, of K in a call: median time, ± half the quartiles",
    "loss": "Targets and loss alone, from values that are there",
    "proposals": "Proposals of the founding plan: time of one update, of K in a call",
}


def rendered(result: Result) -> list[str]:
    """A table for each shape, the loss, the proposals, then every target."""
    lines: list[str] = []
    rows = section(result, "update")
    for shape in dict.fromkeys(row.case.rpartition(", ")[0] for row in rows):
        own = [
            replace(row, case=row.case.rpartition(", ")[2])
            for row in rows
            if row.case.startswith(f"{shape}, ")
        ]
        lines += [*grid(f"one update, {shape}", own), ""]
    lines += [*grid("the loss alone", section(result, "loss")), ""]
    if proposed := section(result, "proposals"):
        lines += [line([proposed[0].case, "claimed", "one update"]), line(["---", "---", "--:"])]
        lines += [line([row.contender, row.claim, cell(row)]) for row in proposed]
        lines.append("")
    return [*lines, *target_table(result.measurements), "", measured_on(result)]
