"""What a DQN run is in either mode: its events, and its rows of metrics.

Imports `dqn` and `run`. Tests: `tests/train/test_dqn_runs.py`.
"""

from typing import Any

import numpy as np

from loopless.train.dqn.algorithm import Algorithm
from loopless.train.dqn.config import DQN
from loopless.train.engine import run


class Schedule:
    """Which events a run has: first those that only collect, then those that learn."""

    def __init__(self, config: DQN) -> None:
        self.every = config.train_every
        self.events = -(-config.steps // self.every)
        self.silent = min(self.events, -(-config.learning_starts // self.every))
        self.chunk = max(1, config.log_every // self.every)

    def after(self, event: int) -> tuple[int, bool]:
        """How many events the next chunk has, and whether they learn."""
        learning = event >= self.silent
        end = self.events if learning else self.silent
        return min(self.chunk, end - event), learning


class Run(run.Run):
    """What the two modes share."""

    def __init__(self, config: DQN, algorithm: Algorithm) -> None:
        super().__init__(config, Schedule(config), config.train_every)
        self.algorithm = algorithm

    @property
    def replay(self) -> Any:
        raise NotImplementedError

    def describe(self, report: Any) -> dict[str, Any]:
        config, learner = self.config, self.learner
        level = float(self.algorithm.explore(self.step, np))
        row: dict[str, Any] = {
            "replay_size": np.asarray(getattr(self.replay, "ring", self.replay).size),
            "updates": np.asarray(learner.updates),
            "skipped_updates": np.asarray(learner.skipped),
            "epsilon" if config.exploration == "epsilon" else "temperature": level,
        }
        if report is not None:
            row |= {name: np.asarray(value) for name, value in report._asdict().items()}
            if config.prioritized != "off":
                row["beta"] = float(self.algorithm.beta(self.step, np))
        return row
