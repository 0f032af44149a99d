"""The progress of a run: a live display on a terminal, a line every few seconds elsewhere.

A thread draws, at most four times a second; the trainer only leaves numbers for it. Whatever
happens to the terminal (closed, a broken pipe, stopped with Ctrl-S) ends or delays the display
and nothing else. `frame` says what is shown.
"""

from __future__ import annotations

import math
import os
import sys
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from importlib import import_module
from threading import Event, Thread
from time import monotonic
from typing import IO, Any

from rich.console import Console
from rich.live import Live
from rich.text import Text

from loopless.process import resident_bytes
from loopless.refusals import printable
from loopless.runs.progress import frame
from loopless.runs.progress.clock import Clock

REFRESH_S = 0.25
LINES_VARIABLE = "LOOPLESS_LINES_EVERY"  # seconds between lines, for programs that read them
EVERY_S = 10.0
FIRST_LINE_S = 2.0  # early, to show that the run has started
LAST_LINE_S = 2.0  # how long `close` waits for a terminal that does not take the last line


class Progress:
    """Shows a run while it trains.

        with Progress(clock, total=500_000, name="cartpole") as progress:
            ...
            clock.tick(step)                                     # progress reads the clock
            progress.update({"return_mean": 312.4, "loss": 0.0123})
            progress.note("saved step 100,000")                  # a line above the display

    The last value of each metric is shown, the same that the log has; of a metric of several seeds,
    a sequence, the mean over seeds.
    """

    def __init__(
        self,
        clock: Clock,
        total: int,
        *,
        name: str = "",
        show: Sequence[str] = ("return_mean", "eval_return", "loss"),
        every_s: float | None = None,
        file: IO[str] | None = None,
        terminal: bool | None = None,
        width: int | None = None,
        silent: bool = False,
    ):
        self._clock, self._total, self._name = clock, total, printable(name)
        self._every_s = _lines_every() if every_s is None else every_s
        self._first_step = clock.step
        self._values = dict.fromkeys(show, math.nan)
        self._notes: deque[str] = deque()
        self._outcome, self._closed = "", Event()
        self._cells = _notebook() if file is None else None
        file = sys.stderr if file is None and not silent else file
        if terminal is None:
            # Rich would also take FORCE_COLOR for a terminal, and draw into a log file.
            terminal = file is not None and _is_terminal(file)
        self._thread: Thread | None = None
        if file is not None:
            self._console = _Console(
                file=file,
                width=width,
                force_terminal=terminal,
                force_interactive=terminal,
                force_jupyter=False,
                highlight=False,
                markup=False,
                emoji=False,
                soft_wrap=not terminal,
            )
            self._is_live = terminal and not self._console.is_dumb_terminal
            self._thread = Thread(target=self._run, name="progress", daemon=True)
            self._thread.start()

    def update(self, values: Mapping[str, Any]) -> None:
        """Record the newest values of the shown metrics; None and NaN count as missing."""
        for metric in self._values:
            value = _mean(values.get(metric))
            if math.isfinite(value):
                self._values[metric] = value

    def note(self, text: str) -> None:
        """Print a line once, above the display."""
        self._notes.append(printable(text))

    def close(self, outcome: str = "done") -> None:
        """End the display with one line that sums up the run."""
        if not self._closed.is_set():
            self._outcome = outcome
            self._closed.set()
            if self._thread is not None:
                self._thread.join(LAST_LINE_S)

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_) -> None:
        if kind is None:
            self.close("done")
        else:
            usual = "interrupted" if kind is KeyboardInterrupt else kind.__name__
            self.close(getattr(kind, "ending", usual))

    def view(self) -> frame.View:
        """Return what there is to show now."""
        clock, total = self._clock, self._total
        window = clock.window()
        pace = clock.window(math.inf).rate  # longer, so that the time left does not jump about
        left = total - clock.step
        return frame.View(
            name=self._name,
            step=clock.step,
            total=total,
            rate=window.rate,
            elapsed_s=clock.seconds,
            left_s=left / pace if pace > 0 else 0.0 if left <= 0 else math.nan,
            shares=window.shares,
            memory_bytes=resident_bytes(),
            values=dict(self._values),
        )

    def _run(self) -> None:
        # Anything may go wrong with a terminal, and must not disturb training.
        with suppress(Exception):
            with self._manner() as draw:
                draw()
                while not self._closed.wait(REFRESH_S):
                    self._print_notes()
                    draw()
            self._print_notes()
            self._print(self._summary())

    def _manner(self) -> AbstractContextManager[Callable[[], None]]:
        if self._cells is not None:
            return self._in_cell(self._cells)
        return self._live() if self._is_live else self._lines()

    @contextmanager
    def _in_cell(self, cells: Any) -> Iterator[Callable[[], None]]:
        """Show the display under the cell of a notebook, in one place that changes."""
        handle = cells.display({"text/plain": ""}, raw=True, display_id=True)

        def draw() -> None:
            lines = (line.plain for line in frame.lines(self.view(), frame.WIDEST))
            handle.update({"text/plain": "\n".join(lines)}, raw=True)

        yield draw
        draw()

    @contextmanager
    def _live(self) -> Iterator[Callable[[], None]]:
        live = Live(
            get_renderable=lambda: _Frame(self.view()),
            console=self._console,
            auto_refresh=False,
            transient=True,
            # Output that goes to a file stays as it is.
            redirect_stdout=_is_terminal(sys.stdout),
        )
        try:
            live.start()
            self._console.show_cursor(True)  # a process that is killed could not show it again
            yield live.refresh
        finally:
            live.stop()

    @contextmanager
    def _lines(self) -> Iterator[Callable[[], None]]:
        due = monotonic() + min(self._every_s, FIRST_LINE_S)

        def line_if_due() -> None:
            nonlocal due
            if monotonic() >= due:
                self._print(frame.plain(self.view()))
                due = monotonic() + self._every_s

        yield line_if_due

    def _summary(self) -> str:
        return frame.summary(self.view(), self._outcome, self._clock.step - self._first_step)

    def _print_notes(self) -> None:
        while self._notes:
            self._print(self._notes.popleft())

    def _print(self, line: str) -> None:
        self._console.print(Text(line))
        self._console.file.flush()


def _lines_every() -> float:
    try:
        return float(os.environ.get(LINES_VARIABLE, EVERY_S))
    except ValueError:
        return EVERY_S


class _Console(Console):
    def on_broken_pipe(self) -> None:
        """Raise the error: Rich would end the process."""
        raise


class _Frame:
    """A view that fits itself to the terminal when it is drawn."""

    def __init__(self, view: frame.View):
        self._view = view

    def __rich_console__(self, console: Console, options):
        ascii_only = options.ascii_only or options.legacy_windows
        yield from frame.lines(self._view, options.max_width, ascii_only=ascii_only)


def _is_terminal(file: Any) -> bool:
    try:
        return file.isatty()
    except (AttributeError, ValueError, OSError):  # none, closed, gone
        return False


def _notebook() -> Any:
    """Return `IPython.display` if this process is the kernel of a notebook; None otherwise."""
    ipython = sys.modules.get("IPython")
    shell = ipython and ipython.get_ipython()
    return import_module("IPython.display") if hasattr(shell, "kernel") else None


def _mean(value: Any) -> float:
    """Return the mean of the finite values of a number, a sequence or an array."""
    if hasattr(value, "tolist"):
        value = value.tolist()
    if value is None or isinstance(value, int | float):
        return math.nan if value is None else float(value)
    finite = [number for number in value if number is not None and math.isfinite(number)]
    return sum(finite) / len(finite) if finite else math.nan
