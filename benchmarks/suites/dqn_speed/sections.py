"""How sections are measured, of any trainer: a race of slices, or a number from another process.

Imports `ours` and the shared core. Tests: `tests/suites/dqn_speed/test_bench_training.py`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from subprocess import SubprocessError
from typing import Any

from loopless.bench.contest import Contender, Contest, Judge
from loopless.bench.result import Measurement
from suites.dqn_speed import ours
from suites.dqn_speed.settings import Slice

SCALES = {"s": 1.0, "MB": 1e-6, "kB": 1e-3, "%": 100.0}


def race(case: Slice, others: Sequence[Contender], judge: Judge, contest: Contest) -> None:
    """Our ways to train against others: all on one core but those that say so."""
    contenders = [*ours.CONTENDERS, *others]
    with ExitStack() as stack:
        if (os.cpu_count() or 1) > 1:
            contenders[1:1] = ours.on_two_cores(stack)
        contest.run("steps", case, contenders, judge)


def number(
    contest: Contest,
    section: str,
    case: str,
    name: str,
    library: str,
    measure: Callable[[], Any],
    unit: str,
) -> Measurement:
    """The row of a single number; what goes wrong on the way to it ends up in the row."""
    contest.say(f"{section}: {name}")
    role = "ours" if library == "loopless" else "peer"
    row = Measurement(section, case, name, library, role, unit=unit)
    try:
        return replace(row, value=SCALES[unit] * measure(), samples=1)
    except (RuntimeError, OSError, ValueError, SubprocessError) as problem:
        status = "unavailable" if "No module named" in str(problem) else "failed"
        return replace(row, status=status, reason=str(problem))
