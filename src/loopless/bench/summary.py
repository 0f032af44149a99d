"""Results in one line a case: ours, the loop, the fastest peer, how many times each, and the floor.

What `loopless bench` shows of all suites, and `loopless report` on its page. Only what was right
is compared, the best of ours with the best of theirs; a case of ours alone has no line. Imports
`result`, and `table` for how numbers are written. Tests: `tests/bench/test_bench_summary.py`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from rich.console import Console
from rich.markup import escape

from loopless.bench.result import Measurement, Result, Role
from loopless.bench.table import new_table, quantity

ABLATION = "proposals"  # the section that asks what was proposed, not what is


@dataclass(frozen=True)
class Line:
    """One case of one suite; what was not measured is None."""

    suite: str
    section: str
    case: str
    ours: Measurement
    loop: Measurement | None
    peer: Measurement | None
    floor: Measurement | None

    @property
    def name(self) -> str:
        """What the case is called where its section is not a heading."""
        return self.case if self.section in self.case else f"{self.section}: {self.case}"

    def times(self, other: Measurement | None) -> float | None:
        """How many times faster ours is."""
        return None if other is None else ratio(self.ours, other)


def lines(results: Iterable[Result]) -> list[Line]:
    """One for every case that has ours and something to hold it against."""
    found = []
    for result in results:
        cases = dict.fromkeys((row.section, row.case) for row in result.measurements)
        for section, case in cases:
            at = [row for row in result.measurements if (row.section, row.case) == (section, case)]
            ours, loop, peer, floor = (
                best(at, role) for role in ("ours", "reference", "peer", "floor")
            )
            if ours and (loop or peer) and section != ABLATION:
                found.append(Line(result.suite, section, case, ours, loop, peer, floor))
    return found


def best(rows: Sequence[Measurement], role: Role) -> Measurement | None:
    """The fastest of a role that gave the right answer; None if there is none."""
    timed = [row for row in rows if row.role == role and row.status == "ok" and is_speed(row)]
    return min(timed, key=seconds, default=None)


def is_speed(row: Measurement) -> bool:
    """Whether a row says how fast something is: a time, or so much a second."""
    return bool(row.value) and (row.unit == "s" or is_rate(row.unit))


def is_rate(unit: str) -> bool:
    """Whether more is better; of a time, less is."""
    return unit.endswith("/s")


def seconds(row: Measurement) -> float:
    """What is better if it is less: the time, or that of one of those counted a second."""
    assert row.value is not None
    return 1 / row.value if is_rate(row.unit) else row.value


def ratio(ours: Measurement, other: Measurement) -> float:
    """How many times faster ours is."""
    return seconds(other) / seconds(ours)


def times(number: float | None) -> str:
    """A ratio in words: 57,083×, 1.8×; a dash where there is none."""
    if number is None:
        return "–"
    return f"{number:,.0f}×" if number >= 99.5 else f"{number:.2g}×"


def written(row: Measurement | None) -> str:
    return "–" if row is None or row.value is None else quantity(row.value, row.unit)


def show(found: Sequence[Line], out: Console) -> None:
    """One table of all suites."""
    if not found:
        out.print("No case has both ours and something to hold it against.", highlight=False)
        return
    table = new_table(out)
    table.add_column("suite", no_wrap=True)
    table.add_column("case")
    for name in ("ours", "the loop", "", "fastest peer", "", "floor"):
        table.add_column(name, justify="right")
    before = ""
    for line in found:
        peer = f"{line.peer.contender}: {written(line.peer)}" if line.peer else "–"
        table.add_row(
            line.suite if line.suite != before else "",
            escape(line.name),
            written(line.ours),
            written(line.loop),
            _coloured(line.times(line.loop)),
            escape(peer),
            _coloured(line.times(line.peer)),
            written(line.floor),
        )
        before = line.suite
    out.print(table)


def _coloured(number: float | None) -> str:
    colour = "dim" if number is None else "green" if number >= 1 else "red"
    return f"[{colour}]{times(number)}[/]"
