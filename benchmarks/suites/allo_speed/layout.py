"""How the suite `allo` is shown: titles of its sections, and its part of the README.

Imports `markdown`. Tests: `tests/test_readme.py`.
"""

from __future__ import annotations

from loopless.bench.markdown import cell, grid, line, measured_on, section, target_table
from loopless.bench.result import Measurement, Result

TITLES = {
    "steps": "Training steps a second, sampling included",
    "whole": "A whole run: collect, train, pictures; process start to end",
    "operations": "Floating-point operations of one update, as compiled",
    "seeds": "Several seeds: steps a second, over all of them",
    "proposals": "Proposals of the founding note, each alone: time of one step, plots included",
}


def rendered(result: Result) -> list[str]:
    """A table a section, the proposals with their claims, then every target."""
    lines: list[str] = []
    for name in ("steps", "whole", "operations", "seeds"):
        if rows := section(result, name):
            lines += [*grid(TITLES[name], rows), ""]
    if proposed := section(result, "proposals"):
        head = [f"{TITLES['proposals']}; {proposed[0].case}", "claimed", "one step", "gain"]
        lines += [line(head), line(["---", "---", "--:", "--:"])]
        lines += [line([row.contender, row.claim, cell(row), _gain(row)]) for row in proposed]
        lines.append("")
    judged = [row for row in result.measurements if row.section != "proposals"]
    return [*lines, *target_table(judged), "", measured_on(result)]


def _gain(row: Measurement) -> str:
    found = [target.measured for target in row.targets if target.measured is not None]
    return f"{found[0]:.2f}×" if found else ""
