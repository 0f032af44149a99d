"""What a run spends on its own account of itself, by the time split in the log of a real one.

Imports NumPy. Tests: `tests/suites/dqn_speed/test_bench_split.py`.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from suites.dqn_speed.settings import STARTS
from suites.dqn_speed.worker import command

OVERHEAD = ("time_log", "time_other")  # log, checkpoints, plots; and what no part claims


def measure(mode: str, steps: int) -> dict[str, float]:
    """Shares of the training thread's time, of a run with default settings and no evaluations."""
    from loopless.runs.metrics import columns, read

    with tempfile.TemporaryDirectory() as folder:
        words = ["train", "dqn", "--mode", mode, "--runs", folder, "--run", "split"]
        # Evaluations are no overhead, and the log does not tell them from the rest.
        words += ["--steps", str(steps), "--learning-starts", str(STARTS), "--eval-every", "0"]
        command(words)
        return shares(columns(read(Path(folder) / "split" / "metrics.jsonl")))


def shares(found: Mapping[str, Any]) -> dict[str, float]:
    """Each part's share of all seconds, without the chunks until the first that learned."""
    learning = np.flatnonzero(np.isfinite(found.get("loss", np.full(1, np.nan))))
    if len(learning) < 2:
        raise RuntimeError("the run was too short to say")
    rows = learning[1:]  # the first one was compiled, too
    steps = np.diff(found["step"], prepend=0)[rows]
    seconds = steps / found["steps_per_second"][rows]
    names = [name for name in found if name.startswith("time_")]
    return {
        name: float((np.nan_to_num(found[name][rows]) * seconds).sum() / seconds.sum())
        for name in names
    }


def overhead(split: Mapping[str, float], names: Sequence[str] = OVERHEAD) -> float:
    return sum(split.get(name, 0.0) for name in names)
