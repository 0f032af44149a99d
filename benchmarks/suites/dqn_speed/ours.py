"""Our trainers, a chunk a call: hosted and compiled as `loopless train` runs them.

A call is `advance`: environment, acting, storing, learning and the row of metrics; no file is
written and nothing evaluated. The trainer is the case's. Imports it and JAX when prepared. Tests:
`tests/suites/dqn_speed/test_bench_loops.py`, `tests/suites/ppo_speed/test_bench_ppo_loop.py`.
"""

from __future__ import annotations

from contextlib import ExitStack
from functools import partial
from typing import Any

import numpy as np

from loopless.bench.contest import Call, Contender
from suites.dqn_speed.settings import Slice
from suites.dqn_speed.worker import Worker

HOSTED, COMPILED = "loopless, hosted", "loopless, compiled"
SEEDS = 8
TOGETHER = f"loopless, compiled, {SEEDS} seeds in one program"
TOGETHER_ON_TWO = f"{TOGETHER}, on two cores"
OVERLAPPED = "loopless, hosted, --overlap on two cores"
TOGETHER_NOTE = "steps of all agents together"


class Slices:
    """A run past its warm-up: each call advances it by a chunk, and counts gradient steps."""

    def __init__(self, case: Slice, **changes: Any) -> None:
        from loopless.runs.progress.clock import Clock
        from loopless.train import registry

        make = registry.trainer(case.trainer).make
        self.run, self.clock = make(case.config(**changes)), Clock()
        while not self():  # a chunk that learned has been compiled
            pass

    def __call__(self) -> int:
        before = self._made()
        self.run.advance(self.clock)
        return self._made() - before

    def _made(self) -> int:
        """Gradient steps of each agent; they go in step."""
        return int(np.max(self.run.learner.updates))


def _sliced(case: Slice, **changes: Any) -> Call:
    return Call(Slices(case, **changes), int)


def on_two_cores(stack: ExitStack) -> list[Contender]:
    """Each in a process of its own, which `stack` ends."""

    def contender(name: str, note: str, **changes: Any) -> Contender:
        def prepare(case: Slice) -> Call:
            return Call(stack.enter_context(Worker(case, changes)), int)

        note = f"a process of its own on two cores, threads not limited; {note}"
        return Contender(name, "loopless", "ours", prepare, note=note)

    return [
        contender(OVERLAPPED, "acts with weights one call old", mode="hosted", overlap=True),
        contender(TOGETHER_ON_TWO, TOGETHER_NOTE, mode="compiled", seeds=SEEDS),
    ]


IN_HOST = Contender(HOSTED, "loopless", "ours", partial(_sliced, mode="hosted"))
CONTENDERS = (
    IN_HOST,
    Contender(COMPILED, "loopless", "ours", partial(_sliced, mode="compiled")),
    Contender(
        TOGETHER,
        "loopless",
        "ours",
        partial(_sliced, mode="compiled", seeds=SEEDS),
        note=TOGETHER_NOTE,
    ),
)
