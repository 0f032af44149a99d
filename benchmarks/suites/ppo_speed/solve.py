"""How long it takes until CartPole-v1 is solved: a compiled run by itself, and the whole command.

Imports the trainer when called. Tests: `tests/suites/ppo_speed/test_bench_ppo_solve.py`.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np

from suites.dqn_speed.worker import command

SOLVED = 475.0
EPISODES = 100  # of an evaluation
IN_A_ROW = 5  # evaluations: a young policy may balance once by luck, and not a chunk later


def compiled_s(seed: int, **changes: Any) -> float:
    """Seconds of a run with default settings until it stays solved.

    Evaluations, one after every chunk, are included; everything has been compiled before.
    """
    from loopless.runs.checkpoint import Checkpoint
    from loopless.runs.progress.clock import Clock
    from loopless.train import ppo
    from loopless.train.ppo.config import PPO

    run, clock = (
        ppo.make(PPO(mode="compiled", seed=seed, eval_episodes=EPISODES, **changes)),
        Clock(),
    )
    arrays = {name: np.array(x) for name, x in run.arrays().items()}
    run.advance(clock)
    run.evaluate()
    run.restore(Checkpoint("start", 0, "full", arrays, {}))
    start, solved = perf_counter(), 0
    while run.step < run.total:
        run.advance(clock)
        solved = solved + 1 if np.mean(run.evaluate()["eval_return"]) >= SOLVED else 0
        if solved == IN_A_ROW:
            return perf_counter() - start
    raise RuntimeError(f"seed {seed} was not solved in {run.total:,} steps")


def command_s(*words: str) -> float:
    """Seconds of `loopless train ppo` on all cores, from its start to its end."""
    from loopless.runs.metrics import columns, read

    with tempfile.TemporaryDirectory() as folder:
        start = perf_counter()
        command(["train", "ppo", "--runs", folder, "--run", "solve", *words])
        seconds = perf_counter() - start
        found = columns(read(Path(folder) / "solve" / "metrics.jsonl"), "eval")
    last = float(found["eval_return"][-1])
    if last < SOLVED:
        raise RuntimeError(f"the run ended with a return of {last:g}, not {SOLVED:g}")
    return seconds
