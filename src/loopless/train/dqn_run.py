"""What a DQN run is in either mode: its events, its rows of metrics, its evaluations.

Imports `dqn`. Tests: `tests/train/test_dqn_runs.py`.
"""

from typing import Any

import numpy as np

from loopless.train.dqn import Algorithm, Learner
from loopless.train.dqn_config import DQN

EVALUATION = 1_000_003  # added to a seed: evaluations see other episodes than training does


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


class Run:
    """What the two modes share."""

    def __init__(self, config: DQN, algorithm: Algorithm) -> None:
        self.config, self.algorithm = config, algorithm
        self.schedule = Schedule(config)
        self.event, self.episodes, self.total = 0, 0, self.schedule.events * config.train_every

    @property
    def step(self) -> int:
        return self.event * self.config.train_every

    @property
    def learner(self) -> Learner:
        raise NotImplementedError

    def failure(self) -> str | None:
        failed = np.atleast_1d(self.learner.failed)
        if not failed.any():
            return None
        updates = np.atleast_1d(self.learner.updates)
        where = ", ".join(
            f"update {updates[i]:,}"
            + (f" of seed {self.config.seed + i}" if len(failed) > 1 else "")
            for i in np.flatnonzero(failed)
        )
        return f"the loss or its gradient was not finite at {where}; learning stopped there"

    def describe(self, report: Any) -> dict[str, Any]:
        """A row of metrics from an event's or a chunk's mean report, and from the schedules."""
        config, learner = self.config, self.learner
        level = float(self.algorithm.explore(self.step, np))
        row: dict[str, Any] = {
            "updates": np.asarray(learner.updates),
            "skipped_updates": np.asarray(learner.skipped),
            "epsilon" if config.exploration == "epsilon" else "temperature": level,
        }
        if report is not None:
            row |= {name: np.asarray(value) for name, value in report._asdict().items()}
            if config.prioritized != "off":
                row["beta"] = float(self.algorithm.beta(self.step, np))
        return row

    def close(self) -> None:
        """Nothing is held."""


def evaluation(returns: np.ndarray, lengths: np.ndarray) -> dict[str, Any]:
    """A row of metrics from the episodes of an evaluation, [..., episodes]."""
    return {
        "eval_return": returns.mean(-1),
        "eval_return_std": returns.std(-1),
        "eval_return_min": returns.min(-1),
        "eval_return_max": returns.max(-1),
        "eval_length_mean": lengths.mean(-1),
        "eval_episodes": returns.shape[-1],
    }
