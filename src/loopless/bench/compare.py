"""`loopless bench --compare old.json`: show which rows moved, and what else differs.

A row has moved if its speed changed by more than a tenth and the quartiles before and after do not
overlap; the rest counts as noise.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from rich.console import Console
from rich.markup import escape

from loopless.bench.result import Measurement, Result
from loopless.bench.table import is_speed, new_table, ratio, seconds, value_text

LEAST = 1.1  # times as fast or as slow, for a change to count

Key = tuple[str, str, str, str]


@dataclass(frozen=True)
class Move:
    """One row, before and after."""

    suite: str
    before: Measurement
    after: Measurement

    @property
    def times(self) -> float:
        """Return how many times as fast it is now."""
        return ratio(self.after, self.before)

    @property
    def moved(self) -> bool:
        """Return whether the change is more than noise."""
        before, after = _quartiles(self.before), _quartiles(self.after)
        overlap = before[0] <= after[1] and after[0] <= before[1]
        return max(self.times, 1 / self.times) > LEAST and not overlap


@dataclass(frozen=True)
class Comparison:
    """The rows in both results, the rows in only one, and what else differs between the two."""

    moves: list[Move]
    gone: list[Key]
    new: list[Key]
    differences: list[str]


def compare(old: Sequence[Result], new: Sequence[Result]) -> Comparison:
    """Compare old and new results, row by row, for the suites in `new`."""
    suites = {result.suite for result in new}
    old = [result for result in old if result.suite in suites]
    before, after = _rows(old), _rows(new)
    moves = [Move(key[0], before[key], after[key]) for key in after if key in before]
    old_facts, new_facts = _facts(old), _facts(new)
    return Comparison(
        sorted(moves, key=lambda move: (move.before.role != "ours", -abs(math.log(move.times)))),
        [key for key in before if key not in after],
        [key for key in after if key not in before],
        [
            f"{name}: {fact} → {new_facts[name]}"
            for name, fact in old_facts.items()
            if name in new_facts and fact != new_facts[name]
        ],
    )


def _rows(results: Sequence[Result]) -> dict[Key, Measurement]:
    return {
        (result.suite, row.section, row.case, row.contender): row
        for result in results
        for row in result.measurements
        if is_speed(row)
    }


def _quartiles(row: Measurement) -> tuple[float, float]:
    """Return both quartiles in seconds, the smaller first; rates are converted to times."""
    edges = row.lower_quartile or row.value, row.upper_quartile or row.value
    low, high = sorted(seconds(replace(row, value=edge)) for edge in edges)
    return low, high


def _facts(results: Sequence[Result]) -> dict[str, Any]:
    """Return what may explain a difference: processor, versions, commit, threads, quick or not."""
    facts: dict[str, Any] = {}
    for result in results:
        machine, settings = result.machine, result.settings
        facts |= {"cpu": machine.get("cpu"), "python": machine.get("python")}
        facts["commit"] = str((machine.get("commit") or {}).get("id", "unknown"))[:10]
        facts |= machine.get("packages") or {}
        facts |= {f"{result.suite} {name}": settings.get(name) for name in ("quick", "threads")}
    return facts


def show(comparison: Comparison, out: Console, name: str) -> None:
    """Print the rows that moved, ours first, then by size; then counts, and what else differs."""
    moved = [move for move in comparison.moves if move.moved]
    out.print(f"Since {name}", style="bold", highlight=False, markup=False)
    if moved:
        table = new_table(out)
        for head in ("suite", "case", "contender", "before", "now", ""):
            table.add_column(head, justify="right" if head in ("before", "now", "") else "left")
        for move in moved:
            case = escape(f"{move.after.section}: {move.after.case}")
            change = (
                f"[green]{move.times:.2f}× faster[/]"
                if move.times >= 1
                else f"[red]{1 / move.times:.2f}× slower[/]"
            )
            values = value_text(move.before), value_text(move.after)
            table.add_row(move.suite, case, escape(move.after.contender), *values, change)
        out.print(table)
    counts = [
        f"{sum(move.times > 1 for move in moved)} faster",
        f"{sum(move.times < 1 for move in moved)} slower",
        f"{len(comparison.moves) - len(moved)} as before",
        *([f"{len(comparison.gone)} not measured now"] if comparison.gone else []),
        *([f"{len(comparison.new)} not measured then"] if comparison.new else []),
    ]
    out.print(", ".join(counts), highlight=False)
    if comparison.differences:
        text = "Not the same: " + "; ".join(comparison.differences)
        out.print(text, markup=False, highlight=False)
