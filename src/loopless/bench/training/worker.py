"""A trainer in a process of its own, with two cores, that advances by a slice when it is told to.

The bench process has one core; this one waits on its pipe while others are timed, so that slices
interleave like all others. Imports the trainer in the child only. Tests:
`tests/bench/training/test_bench_worker.py`.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import asdict
from typing import Any

from loopless.bench.process import ONE_THREAD_FLAG, THREAD_VARIABLES
from loopless.bench.training.settings import Training

CORES = 2
PATIENCE_S = 30


class Worker:
    """`Training` in a child; a call is a slice there. Use it as a context, which ends the child."""

    def __init__(self, case: Training, changes: dict[str, Any]) -> None:
        module = "loopless.bench.training.worker"
        command = [sys.executable, "-m", module, json.dumps([asdict(case), changes])]
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


def main(text: str) -> None:
    use_cores(CORES)
    fields, changes = json.loads(text)
    case = Training(**fields | {"hidden": tuple(fields["hidden"])})
    config = case.config(**changes)
    from loopless.train import commands

    commands.prepare(config)
    from loopless.bench.training.ours import Slices

    slices = Slices(config)
    print(0, flush=True)
    for _ in sys.stdin:
        print(slices(), flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
