"""The README's tables, made from the committed JSON: `python -m loopless.bench.readme README.md`.

Between `<!-- bench:SUITE -->` and `<!-- end -->` stands what `rendered` makes of
benchmarks/results/SUITE.json, and a test keeps it so.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

from loopless.bench.ours import FLOOR, NUMPY, TORCH
from loopless.bench.result import Measurement, Result, load
from loopless.bench.table import duration, measured

BLOCK = re.compile(r"(<!-- bench:(\w+) -->\n).*?(<!-- end -->)", re.DOTALL)


def update(text: str, results: Path) -> str:
    """The page with every marked table renewed from the files in `results`."""

    def renew(match: re.Match) -> str:
        start, suite, end = match.groups()
        return start + rendered(load(results / f"{suite}.json")) + end

    return BLOCK.sub(renew, text)


def rendered(result: Result) -> str:
    """Times by shape, then every target with what was measured, as Markdown."""
    machine = result.machine
    shapes = list(dict.fromkeys(row.shape for row in _section(result, "shapes")))
    lines = [
        _line(["GAE, both outputs", *(f"{t}×{b}" for t, b in shapes)]),
        _line(["---", *("--:" for _ in shapes)]),
    ]
    for name in dict.fromkeys(row.contender for row in _section(result, "shapes")):
        rows = {row.shape: row for row in _section(result, "shapes") if row.contender == name}
        lines.append(_line([name, *(_cell(rows[shape]) for shape in shapes)]))
    lines += ["", _line(["case", "target", "measured", ""]), _line(["---", "---", "--:", "---"])]
    for row in result.measurements:
        for target in row.targets:
            unjudged = "not measured" if target.measured is None else "stated"
            verdict = {True: "met", False: "**missed**", None: unjudged}[target.met]
            where = f"{row.contender}, {row.steps}×{row.envs}"
            lines.append(_line([where, target.target, measured(target), verdict]))
    lines += ["", *_warm_ratios(result)]
    day, commit = machine["date"][:10], machine["commit"]["id"][:9]
    threads = result.settings["threads"]
    lines += ["", f"{machine['cpu']}, {threads} thread, {day}, commit {commit}."]
    return "\n".join(lines) + "\n"


def _warm_ratios(result: Result) -> list[str]:
    """The same ratio to the floor as is judged on cold caches, from the table's warm times."""
    judged = {row.shape for row in _section(result, "floor")}
    times = {(row.shape, row.contender): row.value for row in _section(result, "shapes")}
    parts = []
    for (shape, name), value in times.items():
        floor = times.get((shape, FLOOR))
        if shape in judged and name in (NUMPY, TORCH) and value and floor:
            parts.append(f"{name}, {shape[0]}×{shape[1]}: {value / floor:.2f}")
    return [f"Warm, as in the table, × the floor (not judged): {'; '.join(parts)}."]


def _section(result: Result, name: str) -> list[Measurement]:
    return [row for row in result.measurements if row.section == name]


def _cell(row: Measurement) -> str:
    return duration(row.value) if row.value is not None else row.status


def _line(cells: list[str]) -> str:
    return "| " + " | ".join(cells) + " |"


if __name__ == "__main__":
    page = Path(sys.argv[1])
    page.write_text(update(page.read_text(), page.parent / "benchmarks" / "results"))
