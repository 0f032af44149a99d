"""The one gate against updates that are not finite, for all trainers.

A loss or a gradient that is NaN or infinite would ruin the weights for good. The gate decides
inside the compiled program whether an update is accepted; the optimizer then applies it or leaves
everything as it was. With `on_nan="stop"` nothing is accepted any more after the first failure,
and the run stops at the next row of metrics (`failure_message`); with "skip" only the bad update
is left out.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np


class Verdict(NamedTuple):
    """What the gate decided about one update, and the learner's counters after it."""

    finite: jax.Array  # whether all numbers of the update were finite
    accepted: jax.Array  # whether the update may change the weights
    updates: jax.Array  # updates accepted so far
    skipped: jax.Array  # updates left out so far because they were not finite
    failed: jax.Array  # whether learning has stopped, at this update or before

    @property
    def counters(self) -> dict[str, jax.Array]:
        """The three counters by name, as every learner has them as fields."""
        return {"updates": self.updates, "skipped": self.skipped, "failed": self.failed}


def judge(
    learner: Any, on_nan: str, *numbers: jax.Array, left_out: jax.Array | None = None
) -> Verdict:
    """Decide whether an update with these numbers (its loss, its gradient's norm) is accepted.

    `learner` has the counters `updates`, `skipped` and `failed`. left_out: whether the algorithm
    itself leaves the update out; then it is neither accepted nor counted as skipped.
    """
    finite = jnp.ones((), bool)
    for number in numbers:
        finite &= jnp.isfinite(number).all()
    failed = learner.failed | (~finite if on_nan == "stop" else False)
    accepted, skipped = finite & ~failed, ~finite
    if left_out is not None:
        accepted, skipped = accepted & ~left_out, skipped & ~left_out
    return Verdict(finite, accepted, learner.updates + accepted, learner.skipped + skipped, failed)


def failure_message(learner: Any, agent: Callable[[int], str]) -> str | None:
    """Return a message on where learning stopped, for each agent that failed; None if none did.

    `agent` names an agent by its number, for runs of several.
    """
    failed = np.atleast_1d(learner.failed)
    if not failed.any():
        return None
    updates = np.atleast_1d(learner.updates)
    where = ", ".join(
        f"update {updates[i]:,}" + (f" of {agent(int(i))}" if len(failed) > 1 else "")
        for i in np.flatnonzero(failed)
    )
    return f"the loss or its gradient was not finite at {where}; learning stopped there"
