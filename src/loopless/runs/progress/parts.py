"""Run commands one after the other, each in a process of its own, and show how far they are.

A command that fails does not stop the others. What a child prints goes to a log, and its last line
is shown: on a terminal on a live board, elsewhere as a line when a command begins or ends. Ctrl-C
and SIGTERM go to the child that runs, which saves what it has; the commands after it are left out.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from time import monotonic, sleep
from typing import Any, Literal

from rich.console import Console, ConsoleOptions, Group, RenderResult
from rich.live import Live
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

from loopless.runs.progress.quantities import clock_time

POLL_S = 0.1
HEARTBEAT_S = 15.0
SIGNALS = (signal.SIGINT, signal.SIGTERM)
PADDING = 1 + 4 + 8  # of a line on the board: its mark, its time, and the gaps
State = Literal["waiting", "running", "done", "failed", "interrupted", "left out"]
MARKS = {
    "waiting": ("·", "dim"), "done": ("✓", "green"), "failed": ("✗", "red"),
    "interrupted": ("‖", "yellow"), "left out": ("–", "dim"),
}  # fmt: skip


@dataclass
class Part:
    """One command: its name, and how it has gone so far.

    `about_s` is how long it should take, `good` are the exit codes of success. `message` is the
    last line of a child that runs, and afterwards its result in words. What the child prints goes
    to `output`, or else to its log.
    """

    name: str
    command: Sequence[str]
    about_s: float = 30.0
    good: tuple[int, ...] = (0,)
    state: State = "waiting"
    code: int | None = None
    seconds: float = 0.0
    message: str = ""
    log: Path | None = None
    output: Path | None = None

    @property
    def share(self) -> float:
        """How much of it is done, judged by the time that it should take."""
        if self.state in ("waiting", "running"):
            return min(self.seconds / self.about_s, 0.95)
        return 1.0


Show = Callable[[Sequence[Part]], None]
Conclude = Callable[[Part], str]


def loopless_command(*arguments: str) -> list[str]:
    """Return the command line of another process with this same loopless."""
    return [sys.executable, "-m", "loopless.cli", *arguments]


def run_all(parts: Sequence[Part], logs: Path, conclude: Conclude, show: Show) -> bool:
    """Run every part, and return whether none was interrupted.

    `conclude` returns the result of a part that ended well, in words; if it raises, the part has
    failed.
    """
    logs.mkdir(parents=True, exist_ok=True)
    with _collected_signals() as received:
        for part in parts:
            if received:
                part.state = "left out"
                continue
            part.log = logs / f"{part.name.replace(' ', '_')}.log"
            part.state = "running"
            show(parts)
            _run(part, part.log, received, lambda: show(parts))
            _conclude(part, bool(received), conclude)
            show(parts)
    return not received


def exit_code(parts: Sequence[Part], *, whole: bool) -> int:
    """Return 0, or 1 if a part failed, or 130 if they were interrupted."""
    if not whole:
        return 130
    return 1 if any(part.state == "failed" for part in parts) else 0


def _run(part: Part, log_path: Path, received: list[int], show: Callable[[], None]) -> None:
    start = monotonic()
    with log_path.open("ab", buffering=0) as log, (part.output or log_path).open("ab") as output:
        try:
            child = subprocess.Popen(
                part.command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.PIPE,
                process_group=0,  # the terminal's Ctrl-C comes to us alone, and we pass it on once
            )  # fmt: skip
        except OSError as problem:
            part.message, part.code = f"cannot be started: {problem.strerror}", 127
            return
        reader = threading.Thread(target=_read, args=(child.stderr, log, part), daemon=True)
        reader.start()
        passed = 0
        while child.poll() is None:
            if len(received) > passed:
                # Two signals are passed on: one asks, one insists. The third kills.
                with suppress(ProcessLookupError):
                    os.killpg(child.pid, received[passed] if passed < 2 else signal.SIGKILL)
                passed += 1
            part.seconds = monotonic() - start
            show()
            sleep(POLL_S)
        reader.join(1.0)  # a grandchild may hold the pipe open
        part.seconds, part.code = monotonic() - start, child.returncode


def _read(stream: Any, log: Any, part: Part) -> None:
    with suppress(ValueError, OSError), stream:  # the log is closed if a grandchild outlives us
        for line in stream:
            log.write(line)
            log.flush()
            if text := line.decode("utf-8", "replace").strip():
                part.message = text


def _conclude(part: Part, interrupted: bool, conclude: Conclude) -> None:
    if part.code not in part.good:
        part.state = "interrupted" if interrupted else "failed"
        ending = "stopped" if interrupted else f"ended with exit code {part.code}"
        part.message = part.message or ending
        return
    try:
        part.message, part.state = conclude(part), "done"
    except Exception as problem:
        reason = str(problem) or type(problem).__name__
        part.state = "failed"
        part.message = f"{part.message}: {reason}" if part.message else reason


@contextmanager
def _collected_signals() -> Iterator[list[int]]:
    """Collect the signals that arrive; Python allows this only in the main thread."""
    received: list[int] = []
    main = threading.current_thread() is threading.main_thread()
    before = {
        number: signal.signal(number, lambda number, _: received.append(number))
        for number in SIGNALS
        if main and signal.getsignal(number) is not signal.SIG_IGN
    }
    try:
        yield received
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def board(parts: Sequence[Part], console: Console | None = None) -> Iterator[Show]:
    """Yield a function that shows the parts as they are now."""
    console = console or Console(stderr=True, highlight=False)
    if not console.is_terminal:
        yield _Lines(console)
        return
    with Live(_Board(parts), console=console, refresh_per_second=5, transient=True):
        yield lambda _: None  # the board draws itself


def show_outcome(parts: Sequence[Part], out: Console) -> None:
    """Print what came of each part, and where to read about those that failed."""
    out.print(_table(parts, Spinner("dots"), out.width, wrap=True))
    for part in parts:
        if part.state == "failed" and part.log:
            text = Text(f"   {part.name}: all that it printed is in {part.log}", style="dim")
            out.print(text, soft_wrap=True)  # a path is to be copied whole


class _Board:
    """The live board, made anew whenever it is drawn."""

    def __init__(self, parts: Sequence[Part]):
        self._parts, self._spinner, self._start = parts, Spinner("dots", style="cyan"), monotonic()

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        table = _table(self._parts, self._spinner, options.max_width, wrap=False)
        yield Group(table, self._bar(min(options.max_width, 100)))

    def _bar(self, width: int) -> Text:
        total = sum(part.about_s for part in self._parts)
        share = sum(part.share * part.about_s for part in self._parts) / total
        ended = sum(part.state not in ("waiting", "running") for part in self._parts)
        passed, left = clock_time(monotonic() - self._start), clock_time(total * (1 - share))
        text = f" {ended} of {len(self._parts)} · {passed} · about {left} left"
        room = max(10, width - len(text) - 2)
        filled = round(share * room)
        return Text.assemble(
            " ", ("━" * filled, "cyan"), ("─" * (room - filled), "dim"), (text, "dim")
        )


def _table(parts: Sequence[Part], spinner: Spinner, width: int, wrap: bool) -> Table:
    """Return a table of mark, name, time and message; only messages are shortened to fit."""
    table = Table(box=None, show_header=False, padding=(0, 1))
    longest = max(len(part.name) for part in parts)
    table.add_column(min_width=1)
    table.add_column(no_wrap=True, min_width=longest)
    table.add_column(justify="right", no_wrap=True, min_width=4)
    table.add_column(
        no_wrap=not wrap, overflow="fold" if wrap else "ellipsis", min_width=20,
        max_width=max(20, width - longest - PADDING),
    )  # fmt: skip
    for part in parts:
        running = part.state == "running"
        mark, style = MARKS.get(part.state, ("", ""))
        table.add_row(
            spinner if running else Text(mark, style=style),
            Text(part.name, style="bold" if running else "dim" if part.state == "waiting" else ""),
            Text(clock_time(part.seconds) if part.seconds else "", style="dim"),
            Text(part.message, style="dim" if running else style if part.state == "failed" else ""),
        )
    return table


class _Lines:
    """Prints a line when a part begins and when it ends, and now and then its last message."""

    def __init__(self, console: Console):
        self._console, self._states, self._beat = console, dict[str, str](), monotonic()

    def __call__(self, parts: Sequence[Part]) -> None:
        for number, part in enumerate(parts, 1):
            if part.state != self._states.get(part.name, "waiting"):
                self._states[part.name], self._beat = part.state, monotonic()
                took = f" after {clock_time(part.seconds)}" if part.seconds else ""
                ending = f"    {part.state}{took}{': ' if part.message else ''}{part.message}"
                running = part.state == "running"
                self._print(f"{number}/{len(parts)} {part.name}" if running else ending)
            elif part.state == "running" and monotonic() - self._beat > HEARTBEAT_S:
                self._beat = monotonic()
                self._print(f"    {clock_time(part.seconds)} {part.message}")

    def _print(self, text: str) -> None:
        self._console.print(Text(text), soft_wrap=True)
