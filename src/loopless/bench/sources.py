"""Record which code was measured, and find out if it has changed since: `loopless bench --stale`.

A result holds a digest of every file of loopless that its contenders imported, in this process and
in its children, which write down their modules when they end (`benchmarks/suites/__main__.py`).
"""

from __future__ import annotations

import atexit
import hashlib
import os
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from loopless.bench.result import Result

SOURCE = Path(__file__).parents[2]  # the folder that holds the package
VARIABLE = "LOOPLESS_BENCH_SOURCES"  # names the file to which children add their modules


@dataclass(frozen=True)
class Age:
    """When a result was measured, and which of its files have changed since."""

    suite: str
    day: str
    commit: str
    changed: tuple[str, ...] | None  # None if the result does not say what it measured


@contextmanager
def record() -> Iterator[Callable[[], dict[str, str]]]:
    """Let children note what they import; yield a function that returns all digests so far."""
    before = os.environ.get(VARIABLE)
    with tempfile.TemporaryDirectory(prefix="loopless-bench-") as folder:
        notes = Path(folder) / "sources"
        os.environ[VARIABLE] = str(notes)
        try:
            yield lambda: digests({*imported(), *_read(notes)})
        finally:
            os.environ.pop(VARIABLE)
            os.environ.update({VARIABLE: before} if before else {})


def note_at_exit() -> None:
    """Arrange that this process, when it ends, notes what it imported, if its parent records it."""

    def note() -> None:
        with suppress(OSError), Path(os.environ[VARIABLE]).open("a", encoding="utf-8") as file:
            file.writelines(f"{name}\n" for name in sorted(imported()))

    if VARIABLE in os.environ:
        atexit.register(note)


def pass_on(notes: Path) -> None:
    """Add what children noted in another file, perhaps on an earlier day, to this recording."""
    if name := os.environ.get(VARIABLE):
        with Path(name).open("a", encoding="utf-8") as file:
            file.writelines(f"{line}\n" for line in _read(notes))


def _read(notes: Path) -> list[str]:
    return notes.read_text(encoding="utf-8").splitlines() if notes.is_file() else []


def imported() -> set[str]:
    """Return the files of loopless that this process has imported, relative to SOURCE."""
    modules = [
        module for name, module in list(sys.modules.items()) if name.split(".")[0] == "loopless"
    ]
    files = [Path(file) for module in modules if (file := getattr(module, "__file__", None))]
    return {file.relative_to(SOURCE).as_posix() for file in files if file.is_relative_to(SOURCE)}


def digests(names: Iterable[str]) -> dict[str, str]:
    """Return a short SHA-256 of each file's content; files that do not exist are left out."""
    return {
        name: hashlib.sha256((SOURCE / name).read_bytes()).hexdigest()[:16]
        for name in sorted(names)
        if (SOURCE / name).is_file()
    }


def age(result: Result) -> Age:
    """Compare a result's sources with the files of today. Changes to the harness do not count."""
    before = {
        name: digest
        for name, digest in result.sources.items()
        if not name.startswith("loopless/bench/")
    }
    now = digests(before)
    changed = tuple(name for name, digest in before.items() if now.get(name) != digest)
    commit = str((result.machine.get("commit") or {}).get("id", "unknown"))[:9]
    day = str(result.machine.get("date", "unknown"))[:10]
    return Age(result.suite, day, commit, changed if result.sources else None)


def describe(age: Age) -> str:
    """Return in one line how old a result is, and why it is stale if it is."""
    when = f"{age.suite}: measured {age.day}, commit {age.commit}"
    if age.changed is None:
        return f"{when}; stale: its file does not say which sources it measured"
    if not age.changed:
        return f"{when}; up to date"
    shown = ", ".join(age.changed[:3]) + (", …" if len(age.changed) > 3 else "")
    return f"{when}; stale: {len(age.changed)} source(s) changed since: {shown}"
