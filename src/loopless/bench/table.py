"""A result as tables: coloured on a terminal, plain text elsewhere.

Imports `result`, and `suites` for the titles of sections. Tests:
`tests/bench/test_bench_result.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice

from rich import box
from rich.console import Console
from rich.table import Table

from loopless.bench.machine import is_busy
from loopless.bench.result import Measurement, Result, Target
from loopless.bench.suites import layout, names

PLAIN_WIDTH = 160
MARKS = {True: "[green]met[/]", False: "[red]missed[/]", None: "not judged"}


def console() -> Console:
    """Wide and without colour when piped, so that a log keeps its columns."""
    found = Console()
    return found if found.is_terminal else Console(width=PLAIN_WIDTH, no_color=True)


def show(result: Result, out: Console) -> None:
    titles = layout(result.suite).TITLES if result.suite in names() else {}
    for section in dict.fromkeys(row.section for row in result.measurements):
        rows = [row for row in result.measurements if row.section == section]
        _show_times(titles.get(section, section), rows, out)
    _show_targets(result.measurements, out)
    _show_notes(result.measurements, out)
    show_machine(result, out)


def _show_times(title: str, rows: Sequence[Measurement], out: Console) -> None:
    """Contenders down, cases across; as many cases side by side as the screen is wide for."""
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
    """One measurement in a few characters."""
    if row.value is None:
        return row.status if row.status != "ok" else "no time"
    text = quantity(row.value, row.unit)
    if row.samples > 1 and row.upper_quartile is not None and row.lower_quartile is not None:
        spread = (row.upper_quartile - row.lower_quartile) / (abs(row.value) or 1)
        text += f" ±{50 * spread:.0f}%"
    return f"[red]{text} wrong[/]" if row.status == "disagrees" else text


def quantity(value: float, unit: str) -> str:
    """A number in its unit: three digits, whole thousands of steps a second, or a count."""
    if unit == "s":
        return duration(value)
    if unit == "steps/s":
        return f"{value:,.0f} steps/s" if value < 9_950 else f"{value / 1000:,.1f}k steps/s"
    return f"{value:,.0f} {unit}" if unit == "operations" else f"{value:.2f} {unit}"


def duration(seconds: float) -> str:
    unit, scale = ("s", 1.0) if seconds >= 1 else ("ms", 1e-3) if seconds >= 1e-3 else ("µs", 1e-6)
    number = seconds / scale
    digits = 0 if number >= 99.5 else 1 if number >= 9.95 else 2
    return f"{number:.{digits}f} {unit}"


def _show_targets(rows: Sequence[Measurement], out: Console) -> None:
    judged = [(row, target) for row in rows for target in row.targets]
    if not judged:
        return
    out.print("Targets", style="bold")
    table = new_table(out)
    for name in ("section", "case", "contender", "target", "measured", ""):
        table.add_column(name, justify="right" if name == "measured" else "left")
    for row, target in judged:
        table.add_row(
            row.section,
            row.case,
            row.contender,
            target.target,
            measured(target),
            MARKS[target.met],
        )
    out.print(table)
    counts = [sum(target.met is met for _, target in judged) for met in (True, False, None)]
    out.print(f"{counts[0]} met, {counts[1]} missed, {counts[2]} not judged\n", highlight=False)


def measured(target: Target) -> str:
    if target.measured is None:
        return "–"
    return f"{target.measured:.0f}" if target.measured >= 100 else f"{target.measured:.2f}"


def _show_notes(rows: Sequence[Measurement], out: Console) -> None:
    """Why a row is missing or wrong, and what there is to know of a contender; each said once."""
    lines = dict.fromkeys(line for row in rows for line in _notes(row))
    for line in lines:
        out.print(f"  {line}", highlight=False, markup=False)
    if lines:
        out.print("")


def _notes(row: Measurement) -> list[str]:
    where = f" at {row.case}" if row.status != "unavailable" else ""
    notes = [f"{row.contender}: {row.note}"] if row.note else []
    if row.reason:
        notes.append(f"{row.contender}{where} {row.status}: {row.reason}")
    return notes


def show_machine(result: Result, out: Console) -> None:
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
        said = (
            f"{machine['load']:.1f} processes shared {machine['cores']} cores: measure again alone."
        )
        out.print(f"The machine was busy, and these times are not to be trusted. {said}",
                  style="yellow", highlight=False)  # fmt: skip
    if result.interrupted:
        out.print("Interrupted: this is what was measured until then.", style="yellow")


def new_table(out: Console) -> Table:
    return Table(box=box.SIMPLE_HEAD if out.is_terminal else box.ASCII2)
