"""What the ends in a rollout mean under either autoreset mode, and what its steps are worth.

same_step: the row after an end begins the next episode. Every row is a step, and a truncated one
waits for the value of its successor, which is in no row.
next_step: the row after an end is a reset, not a step. It holds the final observation, so its value
is that of the truncated row's successor, and no row ever waits.

The formula of the advantages is in `kernels.returns`.
"""

from typing import Any

import numpy as np

from loopless.kernels.returns import gae
from loopless.kernels.rollouts import successor_values
from loopless.refusals import list_first
from loopless.replay.casts import convert_all
from loopless.replay.host.rollout.columns import Columns


class Ends:
    """Which rows of `columns` are steps, and which wait for a value."""

    def __init__(self, columns: Columns, same_step: bool) -> None:
        self.columns, self.library, self.same_step = columns, columns.library, same_step
        self.previous = self.library.zeros((columns.envs,), "bool")  # an end just before row 0

    def ended(self, rows: int) -> Any:
        """Return which of the first `rows` rows are ends, stale rows past the cursors included."""
        data = self.columns.data
        return data["terminated"][:rows] | data["truncated"][:rows]

    def valid(self, rows: int) -> Any:
        """Return which of the first `rows` rows are steps: no padding, no reset row."""
        valid = self.library.array(np.arange(rows)[:, None] < self.columns.lengths)
        if not self.same_step:
            valid[:1] &= ~self.previous
            valid[1:] &= ~self.ended(rows)[:-1]
        return valid

    def pending(self) -> tuple[np.ndarray, ...]:
        """Return steps and envs of the truncated rows that wait for a value, on the host."""
        if not self.same_step:
            return np.nonzero(np.zeros((0, 0)))
        view = self.columns.view
        return np.nonzero(
            self.library.host(view("truncated") & ~view("terminated") & ~view("bootstrapped"))
        )

    def remember(self, chosen, after_reset: bool) -> None:
        """Note which of the `chosen` columns end in their last row, before they are cleared."""
        if self.same_step:
            return
        lengths = self.columns.lengths
        filled = np.zeros(lengths.size, bool)
        filled[chosen] = lengths[chosen] > 0
        envs = np.flatnonzero(filled)
        ended = self.ended(self.columns.longest)[self.columns.cells(lengths[envs] - 1, envs)]
        self.previous[self.library.array(envs)] = ended
        if after_reset:
            self.previous[chosen] = False

    def last_episode(self, where: str, env: int) -> tuple[int, int, int]:
        """Return first and last row of `env`'s last episode, and how many steps come before."""
        last = int(self.columns.lengths[env]) - 1
        valid = self.library.host(self.valid(last + 1)[:, env])
        if last < 0 or not valid[last]:
            raise RuntimeError(
                f"{where}: env {env} has no step to end"
                f"{'' if last < 0 else ' after its last end, only a reset row'}. Add one first."
            )
        ends = np.flatnonzero(self.library.host(self.ended(last)[:, env]))
        first = int(ends[-1]) + 1 if ends.size else 0
        return first, last, int(valid[first:last].sum())


def estimate(where: str, ends: Ends, last_values, *, gamma, lambda_) -> tuple[Any, Any]:
    """Return advantages and returns [longest column, envs], 0 where a row is no step."""
    columns, view = ends.columns, ends.columns.view
    if not columns.longest:
        raise RuntimeError(f"{where}: nothing was added since the last clear().")
    advantages, returns = gae(
        view("rewards"),
        view("values"),
        next_values(where, ends, last_values),
        view("terminated"),
        view("truncated"),
        gamma=gamma,
        lambda_=lambda_,
        valid=ends.valid(columns.longest),
    )
    return advantages, returns


def next_values(where: str, ends: Ends, last_values) -> Any:
    """Return the value of each row's true successor: `last_values` [envs] if it is in no row."""
    columns, library = ends.columns, ends.library
    outside = successor_outside(where, ends)
    if last_values is None and outside.size:
        raise ValueError(
            f"{where}: the column of env {list_first(outside)} has not ended, and last_values is "
            f"missing. Pass the values [envs] of the observations that follow the last rows."
        )
    field = columns.fields["values"]
    last = library.zeros((columns.envs,), field.dtype)
    if last_values is not None:
        values, fields = {"last_values": last_values}, {"last_values": field}
        last = convert_all(where, values, fields, (columns.envs,), library)["last_values"]
    successors, _ = successor_values(
        columns.view("values"),
        last,
        columns.view("terminated"),
        columns.view("truncated"),
        final_values=columns.view("final_values") if ends.same_step else None,
        autoreset="same_step" if ends.same_step else "next_step",
        previous_end=None if ends.same_step else ends.previous,
    )
    # past a short column's last row is padding, not last_values
    cells = columns.cells(columns.lengths[outside] - 1, outside)
    successors[cells] = last[library.array(outside)]
    return successors


def successor_outside(where: str, ends: Ends) -> np.ndarray:
    """Return the envs whose last row's successor is in no row.

    Raise if a row is pending, or if a reset row is flagged as an end.
    """
    steps, envs = ends.pending()
    if len(steps):
        raise RuntimeError(
            f"{where}: {len(steps)} truncated rows wait for their successor's value, at (step, "
            f"env) {list_first(np.stack([steps, envs], 1))}. Call bootstrap(values) in the order "
            f"of pending(), or pass final_values to add()."
        )
    columns, host = ends.columns, ends.library.host
    terminated, truncated = host(columns.view("terminated")), host(columns.view("truncated"))
    valid, ended = host(ends.valid(columns.longest)), terminated | truncated
    if (ended & ~valid).any():
        step, env = np.argwhere(ended & ~valid)[0].tolist()
        raise RuntimeError(
            f"{where}: row {step} of env {env} follows an end, so with next-step autoreset it is "
            f"a reset, yet it is flagged as an end itself. If the environments reset in the step "
            f'of the end, use autoreset="same_step".'
        )
    envs = np.flatnonzero(columns.lengths)
    last = columns.lengths[envs] - 1, envs
    return envs[~ended[last] if ends.same_step else valid[last] & ~terminated[last]]
