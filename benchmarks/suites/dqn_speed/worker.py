"""A trainer in a process of its own, with two cores, that advances by a slice when it is told to.

The bench process has one core; this one waits on its pipe while others are timed, so that slices
interleave like all others. Imports the trainer in the child only. Tests:
`tests/suites/dqn_speed/test_bench_worker.py`.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import fields
from importlib import import_module
from typing import Any

from loopless.bench.machine import ONE_THREAD_FLAG, THREAD_VARIABLES

CORES = 2
PATIENCE_S = 30


class Worker:
    """A run in a child; a call is a slice there. Use it as a context, which ends the child.

    case: of any suite, with its `trainer`, and `config(**changes)` for it.
    """

    def __init__(self, case: Any, changes: dict[str, Any]) -> None:
        told = json.dumps([type(case).__module__, type(case).__name__, _plain(case), changes])
        command = [sys.executable, "-m", "suites.dqn_speed.worker", told]
        self._child = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=unlimited()
        )
        try:
            self._answer()  # that it is ready
        except BaseException:
            self.close()
            raise

    def __call__(self) -> int:
        assert self._child.stdin
        self._child.stdin.write("\n")
        self._child.stdin.flush()
        return self._answer()

    def _answer(self) -> int:
        assert self._child.stdout
        if line := self._child.stdout.readline():
            return int(line)
        raise RuntimeError(f"the worker ended with exit code {self._child.wait(PATIENCE_S)}")

    def close(self) -> None:
        """At the end of its input the child ends; if it does not, it is ended."""
        for pipe in (self._child.stdin, self._child.stdout):
            assert pipe
            pipe.close()
        try:
            self._child.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            self._child.kill()
            self._child.wait()

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def unlimited() -> dict[str, str]:
    """The environment without this process's limits on threads."""
    found = {name: value for name, value in os.environ.items() if name not in THREAD_VARIABLES}
    found["XLA_FLAGS"] = found.get("XLA_FLAGS", "").replace(ONE_THREAD_FLAG, "").strip()
    return found


def use_cores(count: int) -> None:
    """Run on so many cores, the highest numbered, whatever the parent was bound to."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, range(os.cpu_count() or 1)[-count:])


def command(words: Sequence[str], timeout_s: float = 1800) -> None:
    """`loopless` with these words, on all cores. RuntimeError with its last line if it fails."""
    script = "import os, sys; from suites.dqn_speed.worker import use_cores; "
    script += "use_cores(os.cpu_count()); from loopless.cli import main; sys.exit(main())"
    done = subprocess.run(
        [sys.executable, "-c", script, *words],
        capture_output=True, text=True, timeout=timeout_s, env=unlimited(),
    )  # fmt: skip
    if done.returncode:
        raise RuntimeError((done.stderr.strip().splitlines() or ["no output"])[-1])


def _plain(case: Any) -> dict[str, Any]:
    """The numbers and names of a case; what else it has is as by default."""
    given = {field.name: getattr(case, field.name) for field in fields(case)}
    return {
        name: value for name, value in given.items() if isinstance(value, int | float | str | tuple)
    }


def main(text: str) -> None:
    use_cores(CORES)
    module, name, given, changes = json.loads(text)
    case = getattr(import_module(module), name)(**given | {"hidden": tuple(given["hidden"])})
    from loopless.train import commands

    commands.prepare(case.config(**changes))
    from suites.dqn_speed.ours import Slices

    slices = Slices(case, **changes)
    print(0, flush=True)
    for _ in sys.stdin:
        print(slices(), flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
