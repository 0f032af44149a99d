"""The process that draws: `python -m loopless.runs.pictures.drawing RUN`, started by `Renderer`.

It reads requests from a pipe, each a line of JSON, reads what is new in the run's log, and redraws
the requested pictures, each once however often it was requested. It rests four times as long as it
draws, and longer where training has no other core. It lives in a session of its own, where Ctrl-C
does not reach it, and ends when the pipe closes or the trainer is gone, after a last drawing. It is
the only process of a run that imports matplotlib.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import select
import signal
import sys
import traceback
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from time import monotonic
from typing import Any

from loopless.files import atomic
from loopless.process import cores
from loopless.runs.columns import Log
from loopless.runs.pictures import plots
from loopless.runs.tensorboard import EventFiles

REST = 4.0  # seconds without drawing for each second with it
REST_ON_ONE_CORE = 19.0  # the same where training waits while we draw
NICE = 10  # training comes first
PATIENCE_S = 1.0  # between checks that the trainer is alive


class Inbox:
    """The process's end of the pipe: which pictures were requested, each once."""

    def __init__(self, file: int, parent: int, everything: Iterable[str]):
        self._file, self._parent, self._rest = file, parent, b""
        self._everything = tuple(everything)
        self.wanted: dict[str, None] = {}
        self.snapshots: dict[str, Path] = {}
        self.ended = False
        os.set_blocking(file, False)

    def listen(self, seconds: float) -> None:
        """Wait for requests, at most this long, and read all that have arrived."""
        select.select([self._file], [], [], max(0.0, seconds))
        with suppress(BlockingIOError):
            while not self.ended:
                block = os.read(self._file, 1 << 16)
                self.ended = not block
                *lines, self._rest = (self._rest + block).split(b"\n")
                for line in lines:
                    self._take(json.loads(line))
        # A worker of the trainer may keep the pipe open after the trainer has died.
        if os.getppid() != self._parent:
            self.ended = True

    def _take(self, request: Mapping[str, Any]) -> None:
        self.wanted |= dict.fromkeys(request["draw"] or self._everything)
        self.snapshots |= {name: Path(path) for name, path in request["snapshots"].items()}


class Drawing:
    """The pictures of one run, and which of them have failed."""

    def __init__(self, folder: Path, modules: Sequence[str], tensorboard: bool):
        for name in modules:
            importlib.import_module(name)
        self._folder, self._log = folder, Log(folder / "metrics.jsonl")
        self._events = EventFiles(folder) if tensorboard else None
        self.everything = tuple(plots.PICTURES)
        self.failed: set[str] = set()
        with suppress(OSError):
            atomic.recover(folder / "plots")  # left by a process that was killed

    def draw(self, names: Iterable[str], snapshots: Mapping[str, Path]) -> None:
        self._guarded("the log", self._read)
        log = self._log
        run = plots.Run(self._folder, log.train, log.evaluations, log.events, snapshots)
        for name in names:
            self._guarded(name, lambda name=name: plots.draw(run, name))

    def _read(self) -> None:
        for rows in self._log.refresh():
            if self._events is not None:
                self._events.write(rows)

    def _guarded(self, what: str, action: Callable[[], Any]) -> None:
        """Run `action`; print a failure, but only the first one of `what`, and go on."""
        try:
            action()
        except Exception:
            if what not in self.failed:
                self.failed.add(what)
                with suppress(OSError):
                    print(f"{what} failed:", traceback.format_exc(), sep="\n", file=sys.stderr)


def step_back() -> None:
    """Give way to the trainer where both want the same processor."""
    with suppress(OSError):
        os.nice(NICE)
    # Linux shares processors between sessions first: a nice value alone counts within a session.
    with suppress(OSError):
        Path("/proc/self/autogroup").write_text(str(NICE))


def main(arguments: Sequence[str] | None = None) -> int:
    """Draw until the pipe at standard input closes."""
    parser = argparse.ArgumentParser(prog="python -m loopless.runs.pictures.drawing")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--parent", type=int, required=True)
    parser.add_argument("--module", action="append", default=[])
    parser.add_argument("--tensorboard", action="store_true")
    options = parser.parse_args(arguments)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    step_back()
    drawing = Drawing(options.folder, options.module, options.tensorboard)
    inbox = Inbox(0, options.parent, drawing.everything)

    def finish(*_: object) -> None:
        # A system that shuts down sends SIGTERM: draw a last time, then end.
        inbox.ended = True

    signal.signal(signal.SIGTERM, finish)
    rested, rest = 0.0, REST if cores() > 1 else REST_ON_ONE_CORE
    while not inbox.ended:
        waiting = rested - monotonic() if inbox.wanted else PATIENCE_S
        inbox.listen(min(max(waiting, 0.0), PATIENCE_S))
        if inbox.wanted and not inbox.ended and monotonic() >= rested:
            wanted, inbox.wanted = inbox.wanted, {}
            began = monotonic()
            drawing.draw(wanted, inbox.snapshots)
            rested = monotonic() + rest * (monotonic() - began)
    drawing.draw(drawing.everything, inbox.snapshots)  # the end of the run, however it ended
    return 1 if drawing.failed else 0


if __name__ == "__main__":
    sys.exit(main())
