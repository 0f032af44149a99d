"""Ctrl-C and SIGTERM: the first asks a run to save and stop, the second ends the process at once.

    with StopSignals() as stop:
        while step < steps and not stop.requested: ...

Python runs its own handlers only between bytecodes of the main thread, which may be inside one
compiled chunk for seconds, and merges signals that arrive meanwhile. So the Python handlers here
do nothing; the C handler behind them writes one byte for each signal, and a thread reads the
bytes.
"""

import os
import signal
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

SIGNALS = (signal.SIGINT, signal.SIGTERM)
MESSAGE = "{name}: finishing the chunk, saving; once more to stop now"
SHOW_CURSOR = b"\x1b[?25h"

_active: "StopSignals | None" = None


class Stopped(Exception):
    """A signal asked the run to stop, and what was going on need not be finished."""


def leave_if_requested() -> None:
    """Raise Stopped if a signal has asked the run to stop; nothing, where no run is going on."""
    if _active is not None and _active.requested:
        raise Stopped


class StopSignals:
    """Tells whether a signal asked the run to stop; outside the main thread it always says no."""

    def __init__(self, say: Callable[[str], None] | None = None):
        self.signal: signal.Signals | None = None
        self._say = say or _say
        self._before: dict[signal.Signals, Any] = {}

    @property
    def requested(self) -> bool:
        return self.signal is not None

    def __enter__(self) -> "StopSignals":
        global _active
        if threading.current_thread() is not threading.main_thread() or _active:
            return self
        _active = self
        self._terminal = _terminal_settings()
        self._read_end, self._write_end = os.pipe()
        os.set_blocking(self._write_end, False)
        self._wakeup_before = signal.set_wakeup_fd(self._write_end, warn_on_full_buffer=False)
        for number in SIGNALS:
            # A signal that was ignored when we were started (by nohup) stays ignored.
            if signal.getsignal(number) is not signal.SIG_IGN:
                self._before[number] = signal.signal(number, _nothing)
        self._thread = threading.Thread(target=self._listen, name="signals", daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        global _active
        if _active is not self:
            return
        _active = None
        for number, handler in self._before.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)
        signal.set_wakeup_fd(self._wakeup_before)
        os.write(self._write_end, b"\0")
        self._thread.join()
        self._close()

    def _close(self) -> None:
        os.close(self._read_end)
        os.close(self._write_end)

    def _listen(self) -> None:
        while number := os.read(self._read_end, 1)[0]:
            if number not in self._before:
                continue
            if self.signal is not None:
                _leave(number, self._terminal)
            self.signal = signal.Signals(number)
            self._say(MESSAGE.format(name=self.signal.name))


def _nothing(number: int, frame: Any) -> None:
    """Do nothing: a Python handler must be set for the byte to be written."""


def _say(text: str) -> None:
    with suppress(OSError):
        os.write(2, f"\n{text}\n".encode())


def _leave(number: int, terminal: Any) -> None:
    """End now, with the exit code that a shell gives to this signal, and restore the terminal."""
    with suppress(Exception):
        if terminal is not None:
            import termios

            termios.tcsetattr(0, termios.TCSANOW, terminal)
        for output in (1, 2):
            if os.isatty(output):
                os.write(output, SHOW_CURSOR + b"\n")
                break
    os._exit(128 + number)


def _terminal_settings() -> Any:
    with suppress(Exception):
        import termios

        return termios.tcgetattr(0) if sys.stdin and os.isatty(0) else None


def _in_child() -> None:
    """Leave Ctrl-C to the parent of a forked worker; SIGTERM ends the worker as usual.

    The terminal sends Ctrl-C to all of them. Without this, each worker's byte would count as one
    more signal, and a single Ctrl-C would end the run.
    """
    global _active
    if _active:
        signal.set_wakeup_fd(-1)
        for number in _active._before:
            ignored = number == signal.SIGINT
            signal.signal(number, signal.SIG_IGN if ignored else signal.SIG_DFL)
        _active._close()
        _active = None


os.register_at_fork(after_in_child=_in_child)
