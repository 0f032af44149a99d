"""Running means and variances, merged window by window, and what is normalised by them.

Pure functions of JAX arrays. Merging two windows gives the statistics of both together (Chan et
al. 1979), whatever their sizes. Tests: `tests/train/test_ppo_statistics.py`.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

LARGEST = 10.0  # what is normalised is clipped to ± this
SMALLEST = 1e-8  # added to a variance before its root is taken


class Statistics(NamedTuple):
    """How many rows were seen, their mean and their variance; 0 and 1 before the first."""

    seen: Any
    mean: Any
    variance: Any

    @classmethod
    def none(cls, shape: tuple[int, ...] = ()) -> "Statistics":
        zeros = jnp.zeros(shape, jnp.float32)
        return cls(jnp.zeros((), jnp.float32), zeros, zeros + 1)

    def merged(self, rows: jax.Array, valid: jax.Array | None = None) -> "Statistics":
        """With rows [..., *shape] too; `valid` [...] says which of them count."""
        rows = rows.reshape(-1, *self.mean.shape).astype(self.mean.dtype)
        keep = jnp.ones(len(rows), bool) if valid is None else valid.reshape(-1)
        keep = keep.reshape(-1, *[1] * self.mean.ndim)
        new = keep.sum(dtype=self.seen.dtype)
        mean = jnp.where(keep, rows, 0).sum(0) / jnp.maximum(new, 1)
        variance = jnp.where(keep, (rows - mean) ** 2, 0).sum(0) / jnp.maximum(new, 1)
        seen = self.seen + new
        apart, share = mean - self.mean, new / jnp.maximum(seen, 1)
        spread = (1 - share) * self.variance + share * variance + share * (1 - share) * apart**2
        return Statistics(seen, self.mean + share * apart, spread)

    @property
    def scale(self) -> jax.Array:
        """1 / deviation."""
        return 1 / jnp.sqrt(self.variance + SMALLEST)


def normalized(obs: jax.Array, mean: jax.Array, scale: jax.Array) -> jax.Array:
    """Observations with mean 0 and deviation 1, none beyond ± LARGEST."""
    return jnp.clip((obs - mean) * scale, -LARGEST, LARGEST)
