"""What a run of any trainer is in either mode: its events counted, and what stopped it.

An event is the unit that a trainer never cuts. Imports NumPy. Tests:
`tests/train/test_dqn_runs.py`, `tests/train/test_ppo_runs.py`.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np


class Run:
    """A run; `schedule` says how many events come next, and `each` is their environment steps."""

    def __init__(self, config: Any, schedule: Any, each: int) -> None:
        self.config, self.schedule, self.each = config, schedule, each
        self.event, self.total = 0, schedule.events * each
        self.episodes: Any = 0

    @property
    def step(self) -> int:
        return self.event * self.each

    @property
    def learner(self) -> Any:
        """All that learning changes: `updates`, `failed`, and the weights by `parted`."""
        raise NotImplementedError

    def describe(self, report: Any) -> dict[str, Any]:
        """A row of metrics from the mean report of some events, and from the schedules."""
        raise NotImplementedError

    def failure(self) -> str | None:
        failed = np.atleast_1d(self.learner.failed)
        if not failed.any():
            return None
        updates = np.atleast_1d(self.learner.updates)
        where = ", ".join(
            f"update {updates[i]:,}" + (f" of {self.agent(int(i))}" if len(failed) > 1 else "")
            for i in np.flatnonzero(failed)
        )
        return f"the loss or its gradient was not finite at {where}; learning stopped there"

    def agent(self, number: int) -> str:
        """What tells an agent of several from the others."""
        return f"seed {self.config.seed + number}"

    def settle(self, folder: Path) -> None:
        """Keep in the folder of a new run what it needs beside checkpoints: nothing."""

    def outcome(self, last: Mapping[str, Any]) -> str | None:
        """What came out, in words, from the last metrics; None if they do not tell."""
        score = last.get("eval_return", last.get("return_mean"))
        if score is None:
            return None
        return f"Return {', '.join(f'{value:.1f}' for value in np.atleast_1d(score))}."

    def close(self) -> None:
        """Nothing is held."""
