"""Numbers that change during a run, and how a run is cut into chunks.

`learning_rate_end` means the same for every trainer: the learning rate at the end of the run; None
keeps it constant. How the rate gets there differs by trainer: `line` or `warmup_cosine`. All
functions take JAX arrays inside a program, and NumPy numbers for a row of metrics.
"""

from typing import Any, NamedTuple

import jax.numpy as jnp


def progress(done: Any, total: Any, xp: Any = jnp) -> Any:
    """Return which share of `total` is done, from 0 to 1."""
    return xp.clip(done / total, 0, 1)


def line(start: Any, end: Any, share: Any) -> Any:
    """Return the value at `share` of the way from `start` to `end`; `start` if `end` is None."""
    return start if end is None else start + share * (end - start)


def warmup_cosine(peak: Any, end: Any, done: Any, *, warmup: Any, total: Any, xp: Any = jnp) -> Any:
    """Return a rate that rises linearly for `warmup` updates, then falls by half a cosine."""
    done, last = xp.asarray(done, "float32"), peak if end is None else end
    rising = peak * (done + 1) / (warmup + 1)
    share = progress(done - warmup, xp.maximum(1, total - warmup), xp)
    falling = last + (peak - last) * (1 + xp.cos(xp.pi * share)) / 2
    return xp.asarray(xp.where(done < warmup, rising, falling), "float32")


class Chunks(NamedTuple):
    """How the events of a run are cut into chunks, each of which is one row of metrics.

    An event is what a trainer never cuts in two: an update, a rollout, or the environment steps
    between two updates. The first `collecting` events do not learn, and no chunk has both kinds.
    """

    events: int
    size: int
    collecting: int = 0

    def after(self, event: int) -> int:
        """Return how many events the chunk that begins with number `event` has."""
        end = self.events if self.is_learning(event) else self.collecting
        return min(self.size, end - event)

    def is_learning(self, event: int) -> bool:
        """Return whether event number `event` learns."""
        return event >= self.collecting
