"""How far a list of parts is: a live board on a terminal, a line at each turn elsewhere.

Imports Rich, and `children` for what a part is. Tests: `tests/bench/test_bench_children.py`.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from time import monotonic

from rich.console import Console, ConsoleOptions, Group, RenderResult
from rich.live import Live
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

from loopless.bench.children import Part, Show
from loopless.runs.progress.quantities import clock_time

MARKS = {
    "waiting": ("·", "dim"),
    "done": ("✓", "green"),
    "failed": ("✗", "red"),
    "interrupted": ("‖", "yellow"),
    "left out": ("–", "dim"),
}
HEARTBEAT_S = 15.0
PADDING = 1 + 4 + 8  # of a row: its mark, its time, and the gaps


@contextmanager
def board(parts: Sequence[Part], console: Console | None = None) -> Iterator[Show]:
    """A function that shows the parts as they are now."""
    console = console or Console(stderr=True, highlight=False)
    if not console.is_terminal:
        yield _Lines(console)
        return
    frame = _Frame(parts)
    with Live(frame, console=console, refresh_per_second=5, transient=True):
        yield lambda _: None  # it draws itself


class _Frame:
    """The board, made anew whenever it is drawn."""

    def __init__(self, parts: Sequence[Part]):
        self._parts, self._spinner, self._start = parts, Spinner("dots", style="cyan"), monotonic()

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        rows = _rows(self._parts, self._spinner, options.max_width, wrap=False)
        yield Group(rows, self._bar(min(options.max_width, 100)))

    def _bar(self, width: int) -> Text:
        parts = self._parts
        total = sum(part.about_s for part in parts)
        share = sum(part.share * part.about_s for part in parts) / total
        ended = sum(part.state not in ("waiting", "running") for part in parts)
        left = total * (1 - share)
        says = (
            f" {ended} of {len(parts)} · {clock_time(monotonic() - self._start)}"
            f" · about {clock_time(left)} left"
        )
        room = max(10, width - len(says) - 2)
        filled = round(share * room)
        return Text.assemble(
            " ", ("━" * filled, "cyan"), ("─" * (room - filled), "dim"), (says, "dim")
        )  # fmt: skip


def _rows(parts: Sequence[Part], spinner: Spinner, width: int, wrap: bool) -> Table:
    """Mark, name, time and last words; these alone give way where there is little room."""
    table = Table(box=None, show_header=False, padding=(0, 1))
    table.add_column(min_width=1)
    longest = max(len(part.name) for part in parts)
    table.add_column(no_wrap=True, min_width=longest)
    table.add_column(justify="right", no_wrap=True, min_width=4)
    room = max(20, width - longest - PADDING)
    table.add_column(
        no_wrap=not wrap, overflow="fold" if wrap else "ellipsis", min_width=20, max_width=room
    )
    for part in parts:
        running = part.state == "running"
        mark, style = MARKS.get(part.state, ("", ""))
        table.add_row(
            spinner if running else Text(mark, style=style),
            Text(part.name, style="bold" if running else "dim" if part.state == "waiting" else ""),
            Text(clock_time(part.seconds) if part.seconds else "", style="dim"),
            Text(part.said, style="dim" if running else style if part.state == "failed" else ""),
        )
    return table


class _Lines:
    """A line when a part begins and when it ends, and now and then what it says."""

    def __init__(self, console: Console):
        self._console, self._seen, self._beat = console, dict[str, str](), monotonic()

    def __call__(self, parts: Sequence[Part]) -> None:
        for at, part in enumerate(parts, 1):
            before = self._seen.get(part.name, "waiting")
            if part.state != before:
                self._seen[part.name], self._beat = part.state, monotonic()
                self._say(self._turn(part, f"{at}/{len(parts)}"))
            elif part.state == "running" and monotonic() - self._beat > HEARTBEAT_S:
                self._beat = monotonic()
                self._say(f"    {clock_time(part.seconds)} {part.said}")

    def _turn(self, part: Part, place: str) -> str:
        if part.state == "running":
            return f"{place} {part.name}"
        took = f" after {clock_time(part.seconds)}" if part.seconds else ""
        return f"    {part.state}{took}{': ' if part.said else ''}{part.said}"

    def _say(self, text: str) -> None:
        self._console.print(Text(text), soft_wrap=True)


def final(parts: Sequence[Part], out: Console) -> None:
    """What came of each part, and where to read about those that failed."""
    out.print(_rows(parts, Spinner("dots"), out.width, wrap=True))
    for part in parts:
        if part.state == "failed" and part.log:
            said = Text(f"   {part.name}: all that it said is in {part.log}", style="dim")
            out.print(said, soft_wrap=True)  # a path is to be copied whole


def finished(parts: Sequence[Part], *, whole: bool) -> int:
    """The exit code of a list of parts: 0; 1 if one failed; 130 if it was interrupted."""
    if not whole:
        return 130
    return 1 if any(part.state == "failed" for part in parts) else 0


def loopless(*arguments: str) -> list[str]:
    """The command line of another process with this same loopless."""
    return [sys.executable, "-m", "loopless.cli", *arguments]
