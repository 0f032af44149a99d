"""What the ends in a rollout's rows mean under either autoreset mode.

same_step: the row after an end begins the next episode. Every row is a step, and a truncated one
waits for its successor's value, which stands in no row.
next_step: the row after an end is a reset, no step. It holds the final observation, so that its
value is the truncated row's successor's, and nothing ever waits.

Imports `columns` only. Tests: `tests/replay/test_rollout_model.py`.
"""

from typing import Any

import numpy as np

from loopless.replay.host.rollout.columns import Columns


class Ends:
    """Which rows of `columns` are steps, and which wait for a value."""

    def __init__(self, columns: Columns, same_step: bool) -> None:
        self.columns, self.store, self.same_step = columns, columns.store, same_step
        self.previous = self.store.zeros((columns.envs,), "bool")  # an end just before row 0

    def ended(self, rows: int) -> Any:
        """The ends of the first `rows` rows, stale ones too."""
        data = self.columns.data
        return data["terminated"][:rows] | data["truncated"][:rows]

    def valid(self, rows: int) -> Any:
        """Which of the first `rows` rows are steps: no padding, no reset row."""
        valid = self.store.array(np.arange(rows)[:, None] < self.columns.lengths)
        if not self.same_step:
            valid[:1] &= ~self.previous
            valid[1:] &= ~self.ended(rows)[:-1]
        return valid

    def pending(self) -> tuple[np.ndarray, ...]:
        """Steps and envs of the truncated rows that wait for a value, on the host."""
        if not self.same_step:
            return np.nonzero(np.zeros((0, 0)))
        view = self.columns.view
        return np.nonzero(
            self.store.host(view("truncated") & ~view("terminated") & ~view("bootstrapped"))
        )

    def remember(self, chosen, after_reset: bool) -> None:
        """Keep in mind which of the `chosen` columns end in their last row, before a clear."""
        if self.same_step:
            return
        lengths = self.columns.lengths
        filled = np.zeros(lengths.size, bool)
        filled[chosen] = lengths[chosen] > 0
        envs = np.flatnonzero(filled)
        ended = self.ended(self.columns.rows)[self.columns.cells(lengths[envs] - 1, envs)]
        self.previous[self.store.array(envs)] = ended
        if after_reset:
            self.previous[chosen] = False

    def last_episode(self, where: str, env: int) -> tuple[int, int, int]:
        """First and last row of `env`'s last episode, and how many steps precede the last row."""
        last = int(self.columns.lengths[env]) - 1
        valid = self.store.host(self.valid(last + 1)[:, env])
        if last < 0 or not valid[last]:
            raise RuntimeError(
                f"{where}: env {env} has no step to end"
                f"{'' if last < 0 else ' after its last end, only a reset row'}. Add one first."
            )
        ends = np.flatnonzero(self.store.host(self.ended(last)[:, env]))
        first = int(ends[-1]) + 1 if ends.size else 0
        return first, last, int(valid[first:last].sum())
