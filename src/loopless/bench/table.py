"""Show results as tables, in colour on a terminal and as plain text elsewhere.

`show` prints one suite, contenders down and cases across. `show_lines` prints many suites with a
line for each case: ours, the loop that it replaces, the fastest peer, and the floor.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import islice

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from loopless.bench.machine import is_busy
from loopless.bench.result import Measurement, Result, Role, Target
from loopless.runs.progress.quantities import duration

PLAIN_WIDTH = 160
MARKS = {True: "[green]met[/]", False: "[red]missed[/]", None: "not judged"}
ABLATION = "proposals"  # a section without comparisons, for what others proposed


def console() -> Console:
    """Return a console; when piped it is wide and without colour, so that logs keep columns."""
    terminal = Console()
    return terminal if terminal.is_terminal else Console(width=PLAIN_WIDTH, no_color=True)


def show(result: Result, out: Console) -> None:
    """Print everything that one suite measured."""
    for section in dict.fromkeys(row.section for row in result.measurements):
        rows = [row for row in result.measurements if row.section == section]
        _show_times(result.titles.get(section, section), rows, out)
    _show_targets(result.measurements, out)
    notes = dict.fromkeys(note for row in result.measurements for note in _notes(row))
    for note in notes:
        out.print(f"  {note}", highlight=False, markup=False)
    if notes:
        out.print("")
    show_machine(result, out)


def _show_times(title: str, rows: Sequence[Measurement], out: Console) -> None:
    """Print contenders down and cases across, as many cases side by side as fit the screen."""
    cases = list(dict.fromkeys(row.case for row in rows))
    names = list(dict.fromkeys(row.contender for row in rows))
    cells = {(row.contender, row.case): cell(row) for row in rows}
    label = max(map(len, names)) + 3
    across = max(1, (out.width - label) // max(17, *(len(case) + 3 for case in cases)))
    remaining = iter(cases)
    claims = {row.contender: row.claim for row in rows}
    out.print(title, style="bold", highlight=False, markup=False)
    while part := list(islice(remaining, across)):
        table = new_table(out)
        table.add_column("", no_wrap=True)
        if any(claims.values()):
            table.add_column("claimed")
        for case in part:
            table.add_column(case, justify="right", no_wrap=True)
        for name in names:
            claimed = [claims[name]] if any(claims.values()) else []
            table.add_row(name, *claimed, *(cells.get((name, case), "") for case in part))
        out.print(table, "")


def cell(row: Measurement) -> str:
    """Write one measurement in a few characters."""
    if row.value is None:
        return row.status if row.status != "ok" else "no time"
    text = quantity(row.value, row.unit)
    if row.samples > 1 and row.upper_quartile is not None and row.lower_quartile is not None:
        spread = (row.upper_quartile - row.lower_quartile) / (abs(row.value) or 1)
        text += f" ±{50 * spread:.0f}%"
    return f"[red]{text} wrong[/]" if row.status == "disagrees" else text


def quantity(value: float, unit: str) -> str:
    """Write a number with its unit, in as many digits as that unit needs."""
    if unit == "s":
        return duration(value)
    if unit in ("steps/s", "tokens/s"):
        return f"{value:,.0f} {unit}" if value < 9_950 else f"{value / 1000:,.1f}k {unit}"
    return f"{value:,.0f} {unit}" if unit == "operations" else f"{value:.2f} {unit}"


def _show_targets(rows: Sequence[Measurement], out: Console) -> None:
    pairs = [(row, target) for row in rows for target in row.targets]
    if not pairs:
        return
    out.print("Targets", style="bold")
    table = new_table(out)
    for name in ("section", "case", "contender", "target", "measured", ""):
        table.add_column(name, justify="right" if name == "measured" else "left")
    for row, target in pairs:
        where = row.section, row.case, row.contender
        table.add_row(*where, target.target, measured(target), MARKS[target.met])
    out.print(table)
    counts = [sum(target.met is met for _, target in pairs) for met in (True, False, None)]
    out.print(f"{counts[0]} met, {counts[1]} missed, {counts[2]} not judged\n", highlight=False)


def measured(target: Target) -> str:
    """Write the number that a target was judged by."""
    if target.measured is None:
        return "–"
    return f"{target.measured:.0f}" if target.measured >= 100 else f"{target.measured:.2f}"


def _notes(row: Measurement) -> list[str]:
    """Return a contender's note, and why its row is missing or wrong."""
    where = f" at {row.case}" if row.status != "unavailable" else ""
    notes = [f"{row.contender}: {row.note}"] if row.note else []
    if row.reason:
        notes.append(f"{row.contender}{where} {row.status}: {row.reason}")
    return notes


def show_machine(result: Result, out: Console) -> None:
    """Print the machine that a result was measured on, and warnings if it cannot be trusted."""
    machine = result.machine
    commit = machine.get("commit") or {}
    parts = [
        str(machine.get("cpu", "")),
        f"{result.settings.get('threads')} thread(s) on {machine.get('cores_used')} core(s)",
        f"Python {machine.get('python')}",
        f"commit {commit['id'][:10]}{' + changes' if commit['dirty'] else ''}" if commit else "",
        str(machine.get("date", "")),
    ]
    out.print(", ".join(filter(None, parts)), highlight=False, markup=False)
    if is_busy(machine):
        shared = f"{machine['load']:.1f} processes shared {machine['cores']} cores"
        warning = "The machine was busy, and these times are not to be trusted. "
        out.print(f"{warning}{shared}: measure again alone.", style="yellow", highlight=False)
    if result.interrupted:
        out.print("Interrupted: this is what was measured until then.", style="yellow")


def new_table(out: Console) -> Table:
    """Return an empty table that fits the console."""
    return Table(box=box.SIMPLE_HEAD if out.is_terminal else box.ASCII2)


@dataclass(frozen=True)
class Line:
    """One case of one suite: the fastest row of each role; None where there is none."""

    suite: str
    section: str
    case: str
    ours: Measurement
    loop: Measurement | None
    peer: Measurement | None
    floor: Measurement | None

    @property
    def name(self) -> str:
        """Return the name of the case for tables without a heading for its section."""
        return self.case if self.section in self.case else f"{self.section}: {self.case}"

    def times(self, other: Measurement | None) -> float | None:
        """Return how many times as fast ours is as `other`."""
        return None if other is None else ratio(self.ours, other)


def lines(results: Iterable[Result]) -> list[Line]:
    """Return a line for every case in which ours can be compared with a loop or a peer."""
    comparable = []
    for result in results:
        cases: dict[tuple[str, str], list[Measurement]] = {}
        for row in result.measurements:
            cases.setdefault((row.section, row.case), []).append(row)
        for (section, case), rows in cases.items():
            ours, loop, peer, floor = (
                best(rows, role) for role in ("ours", "reference", "peer", "floor")
            )
            if ours and (loop or peer) and section != ABLATION:
                comparable.append(Line(result.suite, section, case, ours, loop, peer, floor))
    return comparable


def best(rows: Sequence[Measurement], role: Role) -> Measurement | None:
    """Return the fastest row of a role that gave the right answer; None if there is none."""
    timed = [row for row in rows if row.role == role and row.status == "ok" and is_speed(row)]
    return min(timed, key=seconds, default=None)


def is_speed(row: Measurement) -> bool:
    """Return whether a row says how fast something is: a time, or a number per second."""
    return bool(row.value) and (row.unit == "s" or is_rate(row.unit))


def is_rate(unit: str) -> bool:
    """Return whether this unit is a rate, of which more is better; of a time, less is."""
    return unit.endswith("/s")


def seconds(row: Measurement) -> float:
    """Return a row's time; for a rate, the time for one of the things that it counts."""
    assert row.value is not None
    return 1 / row.value if is_rate(row.unit) else row.value


def ratio(ours: Measurement, other: Measurement) -> float:
    """Return how many times as fast `ours` is as `other`."""
    return seconds(other) / seconds(ours)


def times(number: float | None) -> str:
    """Write a ratio with at least two digits: 57,083×, 1.8×; a dash where there is none."""
    if number is None:
        return "–"
    return f"{number:,.0f}×" if number >= 99.5 else f"{number:.2g}×"


def value_text(row: Measurement | None) -> str:
    """Write a row's number with its unit; a dash where there is none."""
    return "–" if row is None or row.value is None else quantity(row.value, row.unit)


def show_lines(comparable: Sequence[Line], out: Console) -> None:
    """Print one table with the lines of all suites."""
    if not comparable:
        out.print("No case has both ours and something to compare it with.", highlight=False)
        return
    table = new_table(out)
    table.add_column("suite", no_wrap=True)
    table.add_column("case")
    for name in ("ours", "the loop", "", "fastest peer", "", "floor"):
        table.add_column(name, justify="right")
    before = ""
    for line in comparable:
        peer = f"{line.peer.contender}: {value_text(line.peer)}" if line.peer else "–"
        table.add_row(
            line.suite if line.suite != before else "", escape(line.name),
            value_text(line.ours), value_text(line.loop), _coloured(line.times(line.loop)),
            escape(peer), _coloured(line.times(line.peer)), value_text(line.floor),
        )  # fmt: skip
        before = line.suite
    out.print(table)


def _coloured(number: float | None) -> str:
    colour = "dim" if number is None else "green" if number >= 1 else "red"
    return f"[{colour}]{times(number)}[/]"
