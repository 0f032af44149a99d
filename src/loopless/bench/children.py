"""Commands one after the other, each a process of its own, so that none can sink the rest.

What a child says goes to a log and its last line is kept to be shown. Ctrl-C and SIGTERM go to
the child that runs, which saves what it has; the rest is left out. Imports the standard library.
Tests: `tests/bench/test_bench_children.py`.
"""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

POLL_S = 0.1
SIGNALS = (signal.SIGINT, signal.SIGTERM)
State = Literal["waiting", "running", "done", "failed", "interrupted", "left out"]


@dataclass
class Part:
    """One command: what it is called, and how it has gone so far.

    `good` are the exit codes of success. `said` is the last line of a child that runs, and
    afterwards what came of it. What it prints goes to `output`, or else to its log.
    """

    name: str
    command: Sequence[str]
    about_s: float = 30.0
    good: tuple[int, ...] = (0,)
    state: State = "waiting"
    code: int | None = None
    seconds: float = 0.0
    said: str = ""
    log: Path | None = None
    output: Path | None = None

    @property
    def share(self) -> float:
        """How much of it is done, by the time that it is expected to take."""
        if self.state in ("waiting", "running"):
            return min(self.seconds / self.about_s, 0.95)
        return 1.0


Show = Callable[[Sequence[Part]], None]
Conclude = Callable[[Part], str]


def run_all(parts: Sequence[Part], logs: Path, conclude: Conclude, show: Show) -> bool:
    """Run every part; whether none was interrupted.

    `conclude` says in words what came of a part that has ended well; if it fails, so has the part.
    """
    logs.mkdir(parents=True, exist_ok=True)
    with _signals() as received:
        for part in parts:
            if received:
                part.state = "left out"
                continue
            part.log = logs / f"{part.name.replace(' ', '_')}.log"
            part.state = "running"
            show(parts)
            _run(part, received, lambda: show(parts))
            _judge(part, bool(received), conclude)
            show(parts)
    return not received


def _run(part: Part, received: list[int], show: Callable[[], None]) -> None:
    assert part.log is not None
    start = time.monotonic()
    with part.log.open("ab", buffering=0) as log, (part.output or part.log).open("ab") as output:
        try:
            child = subprocess.Popen(
                part.command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.PIPE,
                process_group=0,  # the terminal's Ctrl-C comes to us alone, and we pass it on once
            )
        except OSError as problem:
            part.said, part.code = f"cannot be started: {problem.strerror}", 127
            return
        reader = threading.Thread(target=_read, args=(child.stderr, log, part), daemon=True)
        reader.start()
        passed = 0
        while child.poll() is None:
            if len(received) > passed:
                _pass_on(child, received[passed], passed)
                passed += 1
            part.seconds = time.monotonic() - start
            show()
            time.sleep(POLL_S)
        reader.join(1.0)  # a grandchild may hold the pipe open
        part.seconds, part.code = time.monotonic() - start, child.returncode


def _read(stream: Any, log: Any, part: Part) -> None:
    with suppress(ValueError, OSError), stream:  # the log is closed if a grandchild outlives us
        for line in stream:
            log.write(line)
            log.flush()
            if text := line.decode("utf-8", "replace").strip():
                part.said = text


def _pass_on(child: subprocess.Popen[bytes], number: int, before: int) -> None:
    """The first asks, the second insists, the third ends it."""
    with suppress(ProcessLookupError):
        os.killpg(child.pid, number if before < 2 else signal.SIGKILL)


def _judge(part: Part, interrupted: bool, conclude: Conclude) -> None:
    if part.code not in part.good:
        part.state = "interrupted" if interrupted else "failed"
        part.said = part.said or ("stopped" if interrupted else f"ended with exit code {part.code}")
        return
    try:
        part.said, part.state = conclude(part), "done"
    except Exception as problem:
        reason = str(problem) or type(problem).__name__
        part.state, part.said = "failed", f"{part.said}: {reason}" if part.said else reason


@contextmanager
def _signals() -> Iterator[list[int]]:
    """The signals that came meanwhile, in order. In the main thread only, like all handling."""
    received: list[int] = []
    if threading.current_thread() is not threading.main_thread():
        yield received
        return
    before = {
        number: signal.signal(number, lambda number, _: received.append(number))
        for number in SIGNALS
        if signal.getsignal(number) is not signal.SIG_IGN
    }
    try:
        yield received
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
