"""What a PPO run is in either mode: its rollouts, and its rows of metrics.

Imports `ppo` and `run`. Tests: `tests/train/test_ppo_runs.py`.
"""

from typing import Any

import numpy as np

from loopless.train.engine import run
from loopless.train.ppo.algorithm import Algorithm
from loopless.train.ppo.config import PPO


class Schedule:
    """How many rollouts a run has, and how many there are between two rows of metrics."""

    def __init__(self, config: PPO) -> None:
        self.events = -(-config.steps // config.rows)
        self.chunk = max(1, config.log_every // config.rows)

    def after(self, event: int) -> tuple[int]:
        """How many rollouts the next chunk has."""
        return (min(self.chunk, self.events - event),)


class Run(run.Run):
    """What the two modes share."""

    def __init__(self, config: PPO, algorithm: Algorithm) -> None:
        super().__init__(config, Schedule(config), config.rows)
        self.algorithm = algorithm

    def describe(self, report: Any) -> dict[str, Any]:
        config, learner = self.config, self.learner
        row: dict[str, Any] = {
            "updates": np.asarray(learner.updates),
            "skipped_updates": np.asarray(learner.skipped),
        }
        row |= {name: np.asarray(value) for name, value in report._asdict().items()}
        if config.algorithm == "a2c":
            del row["approximate_kl"], row["clip_fraction"]
        if config.target_kl is not None:
            row["stopped_updates"] = np.asarray(learner.stopped)
        numbers = self.algorithm.numbers(max(0, self.event - 1), np)
        row["learning_rate"] = float(numbers.learning_rate)
        if config.clip_end is not None:
            row["clip"] = float(numbers.clip)
        if config.entropy_end is not None:
            row["entropy_coefficient"] = float(numbers.entropy_coefficient)
        return row
