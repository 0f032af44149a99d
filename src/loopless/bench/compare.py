"""`loopless bench --compare old.json`: what moved since, and whether it is the same machine.

A row has moved if it changed by more than a tenth and the quartiles of before and after do not
meet; the rest is noise until shown otherwise. Imports `result`, `summary` and `table`. Tests:
`tests/bench/test_bench_compare.py`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from rich.console import Console
from rich.markup import escape

from loopless.bench.result import Measurement, Result
from loopless.bench.summary import is_speed, ratio, seconds, written
from loopless.bench.table import new_table

LEAST = 1.1  # times, for a change to count

Key = tuple[str, str, str, str]


@dataclass(frozen=True)
class Move:
    """One row, before and after."""

    suite: str
    before: Measurement
    after: Measurement

    @property
    def times(self) -> float:
        """How many times faster it is now."""
        return ratio(self.after, self.before)

    @property
    def moved(self) -> bool:
        far = max(self.times, 1 / self.times) > LEAST
        return far and not _meet(_range(self.before), _range(self.after))


@dataclass(frozen=True)
class Comparison:
    """All rows that both have, what only one has, and what else differs between them."""

    moves: list[Move]
    gone: list[Key]
    new: list[Key]
    differences: list[str]


def compare(old: Sequence[Result], new: Sequence[Result]) -> Comparison:
    """The same rows of the same suites."""
    suites = {result.suite for result in new}
    old = [result for result in old if result.suite in suites]
    before, after = _rows(old), _rows(new)
    moves = [Move(key[0], before[key], after[key]) for key in after if key in before]
    return Comparison(
        sorted(moves, key=lambda move: (move.before.role != "ours", -abs(math.log(move.times)))),
        [key for key in before if key not in after],
        [key for key in after if key not in before],
        _differences(old, new),
    )


def _rows(results: Sequence[Result]) -> dict[Key, Measurement]:
    return {
        (result.suite, row.section, row.case, row.contender): row
        for result in results
        for row in result.measurements
        if is_speed(row)
    }


def _range(row: Measurement) -> tuple[float, float]:
    """From the lower to the upper quartile, in what is better if less."""
    assert row.value is not None
    edges = row.lower_quartile or row.value, row.upper_quartile or row.value
    low, high = sorted(seconds(replace(row, value=edge)) for edge in edges)
    return low, high


def _meet(one: tuple[float, float], other: tuple[float, float]) -> bool:
    return one[0] <= other[1] and other[0] <= one[1]


def _differences(old: Sequence[Result], new: Sequence[Result]) -> list[str]:
    """What else changed: machine, threads, versions, settings, commit."""
    before, after = _facts(old), _facts(new)
    return [
        f"{name}: {before[name]} → {after[name]}"
        for name in before
        if name in after and before[name] != after[name]
    ]


def _facts(results: Sequence[Result]) -> dict[str, Any]:
    facts: dict[str, Any] = {}
    for result in results:
        machine = result.machine
        facts |= {"cpu": machine.get("cpu"), "python": machine.get("python")}
        facts["commit"] = str((machine.get("commit") or {}).get("id", "unknown"))[:10]
        facts |= machine.get("packages") or {}
        facts |= {f"{result.suite} {name}": result.settings.get(name)
                  for name in ("quick", "threads")}  # fmt: skip
    return facts


def show(found: Comparison, out: Console, name: str) -> None:
    """What moved, ours first and the largest change first; then how much did not."""
    moved = [move for move in found.moves if move.moved]
    out.print(f"Since {name}", style="bold", highlight=False, markup=False)
    if moved:
        table = new_table(out)
        for head in ("suite", "case", "contender", "before", "now", ""):
            right = head in ("before", "now", "")
            table.add_column(head, justify="right" if right else "left")
        for move in moved:
            table.add_row(
                move.suite,
                escape(f"{move.after.section}: {move.after.case}"),
                escape(move.after.contender),
                written(move.before),
                written(move.after),
                said(move.times),
            )
        out.print(table)
    counts = [
        f"{sum(move.times > 1 for move in moved)} faster",
        f"{sum(move.times < 1 for move in moved)} slower",
        f"{len(found.moves) - len(moved)} as before",
        *([f"{len(found.gone)} not measured now"] if found.gone else []),
        *([f"{len(found.new)} not measured then"] if found.new else []),
    ]
    out.print(", ".join(counts), highlight=False)
    if found.differences:
        out.print("Not the same: " + "; ".join(found.differences), markup=False, highlight=False)


def said(times: float) -> str:
    """A change in words and colour."""
    if times >= 1:
        return f"[green]{times:.2f}× faster[/]"
    return f"[red]{1 / times:.2f}× slower[/]"
