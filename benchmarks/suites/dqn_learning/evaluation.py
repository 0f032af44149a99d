"""How well the agents of a run do, and how they got there: `python -m … RUN EPISODES`, as JSON.

The last weights and the best ones play the same episodes, as `loopless play` has them do. Imports
the trainer and so JAX. Tests: `tests/suites/dqn_learning/test_bench_runs.py`.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np

SEED = 20_000_003  # of the episodes; far from any run's own


def evaluate(path: Path, episodes: int) -> dict[str, Any]:
    """Mean returns [agents] of the last and of the best weights, and the learning curves."""
    from loopless.runs.checkpoint import Checkpoints
    from loopless.runs.folder import RunFolder
    from loopless.train import registry
    from loopless.train.commands import agents_of

    run = RunFolder.open(path)
    config = run.config(registry.config_class(run.trainer))
    trainer, checkpoints = registry.trainer(run.trainer), Checkpoints(run.path)

    def scores(name: str | None) -> list[float]:
        found = checkpoints.load(name, kind="weights").arrays
        return [
            float(trainer.player(config, own).episodes(episodes, SEED)[0].mean())
            for own in agents_of(found, config.seeds)
        ]

    best = scores("best" if checkpoints.best() is not None else None)
    return {"final": scores(None), "best": best, **curves(path)}


def curves(path: Path) -> dict[str, Any]:
    """Returns of the evaluations during training, [agents][evaluations]."""
    from loopless.runs.metrics import columns, read

    found = columns(read(path / "metrics.jsonl"), "eval")
    returns = found.get("eval_return", np.zeros(0))
    agents = returns.T if returns.ndim == 2 else returns[None]
    return {"curve_steps": found["step"].tolist(), "curve_returns": agents.tolist()}


if __name__ == "__main__":
    print(json.dumps(evaluate(Path(sys.argv[1]), int(sys.argv[2]))))
