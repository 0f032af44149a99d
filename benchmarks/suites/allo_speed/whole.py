"""Whole runs as processes of one thread on one core: collect, train, pictures; both forms.

    python -m suites.allo_speed.whole STEPS FOLDER      the original's form; seconds as JSON

The original turned its rows into episodes by a Python loop over device scalars, seven minutes for
the default run; what is timed here leaves that out. Imports the forms in the child only. Tests:
`tests/suites/allo_speed/test_bench_allo.py`.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from time import perf_counter
from typing import Any

from suites.allo_speed.cases import Learning
from suites.dqn_learning.runs import one_thread

TIMEOUT_S = 3600


def of_original(steps: int) -> dict[str, float]:
    """Seconds of the run, and of its parts."""
    with tempfile.TemporaryDirectory() as folder:
        seconds, text = timed(["-m", "suites.allo_speed.whole", str(steps), folder])
    return {"seconds": seconds, **json.loads(text)}


def of_ours(steps: int, case: Learning | None = None) -> dict[str, Any]:
    """Seconds of `loopless train allo`, the share of its thread for log and plots, and its score.

    Settings are the original's.
    """
    from loopless.runs.metrics import columns, read

    words = ["train", "allo", *(case or Learning()).words(), "--steps", str(steps)]
    with tempfile.TemporaryDirectory() as folder:
        seconds, _ = timed(["-m", "loopless.cli", *words, "--runs", folder, "--run", "whole"])
        run = Path(folder) / "whole"
        log = columns(read(run / "metrics.jsonl"))
        pictures = sorted(path.name for path in (run / "plots").iterdir())
    return {
        "seconds": seconds,
        "log_share": share(log, "time_log"),
        "similarity": float(log["similarity_mean"][-1]),
        "pictures": pictures,
    }


def share(log: dict[str, Any], part: str) -> float:
    """The share of the training thread's time that a part took, without the chunk that compiled."""
    import numpy as np

    steps = np.diff(log["step"], prepend=0)[1:]
    seconds = steps / log["steps_per_second"][1:]
    return float((np.nan_to_num(log[part][1:]) * seconds).sum() / seconds.sum())


def timed(words: Sequence[str]) -> tuple[float, str]:
    """Run Python with these words on one core: seconds, imports included, and what it printed."""
    start = perf_counter()
    child = subprocess.Popen(
        [sys.executable, *words], env=one_thread(), text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(child.pid, {max(os.sched_getaffinity(0))})
    try:
        printed, said = child.communicate(timeout=TIMEOUT_S)
    except BaseException:
        child.terminate()
        child.wait()
        raise
    if child.returncode:
        last = (said.strip().splitlines() or ["said nothing"])[-1]
        raise RuntimeError(f"exit code {child.returncode}: {last}")
    return perf_counter() - start, printed


def main(steps: int, folder: Path, case: Learning | None = None) -> dict[str, float]:
    """The original's default run; seconds of its parts."""
    from suites.allo_speed.plain import Plain
    from suites.allo_speed.plain_collection import collect_rows

    case, start = case or Learning(), perf_counter()
    obs, terminals = collect_rows(case.world, case.envs, case.length, case.length)
    collected = perf_counter()
    run = Plain(
        case.layers, case.coordinates, obs, terminals, case.rules, case.batch, folder=folder
    )
    drawn, draw = 0.0, run.draw

    def timed_draw(folder: Path) -> None:
        nonlocal drawn
        begun = perf_counter()
        draw(folder)
        drawn += perf_counter() - begun

    run.draw = timed_draw
    run.run(steps)
    trained = perf_counter() - collected
    return {"collect_s": collected - start, "train_s": trained - drawn, "plots_s": drawn}


if __name__ == "__main__":
    print(json.dumps(main(int(sys.argv[1]), Path(sys.argv[2]))))
