"""The episodes of a run as numbers: those that ended while it trained, and those it is judged by.

Shared by the trainers whose agents act. Imports JAX. Tests: `tests/train/test_dqn_runs.py` and
`tests/train/test_ppo_runs.py`.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

EVALUATION = 1_000_003  # added to a seed: evaluations see other episodes than training does
LONGEST_EVALUATION = 10_000  # steps, where the environment sets no limit


class Episodes(NamedTuple):
    """The episodes that ended during some steps of a compiled run."""

    ended: jax.Array  # how many
    total_return: jax.Array
    total_length: jax.Array
    least: jax.Array
    most: jax.Array

    @classmethod
    def of(cls, ended: jax.Array, returns: jax.Array, lengths: jax.Array) -> "Episodes":
        """Those that `ended`, of steps [...]."""
        infinity = jnp.asarray(jnp.inf, returns.dtype)
        return cls(
            ended.sum(dtype=jnp.int32),
            jnp.where(ended, returns, 0).sum(),
            jnp.where(ended, lengths, 0).sum(dtype=jnp.int32),
            jnp.where(ended, returns, infinity).min(),
            jnp.where(ended, returns, -infinity).max(),
        )

    @classmethod
    def none(cls) -> "Episodes":
        """Of no step at all."""
        none, infinity = jnp.zeros((), jnp.int32), jnp.asarray(jnp.inf, jnp.float32)
        return cls(none, jnp.zeros((), jnp.float32), none, infinity, -infinity)

    def together(self) -> "Episodes":
        """Of several [n], one."""
        return Episodes(
            self.ended.sum(), self.total_return.sum(), self.total_length.sum(),
            self.least.min(), self.most.max(),
        )  # fmt: skip

    def and_(self, more: "Episodes") -> "Episodes":
        """Both."""
        return Episodes(
            self.ended + more.ended, self.total_return + more.total_return,
            self.total_length + more.total_length,
            jnp.minimum(self.least, more.least), jnp.maximum(self.most, more.most),
        )  # fmt: skip

    def row(self, before: np.ndarray) -> dict[str, Any]:
        """Metrics; `before` is how many episodes had ended earlier."""
        count = np.asarray(self.ended)
        with np.errstate(divide="ignore", invalid="ignore"):
            score = np.asarray(self.total_return) / count
            length = np.asarray(self.total_length) / count
        row = {"episodes": before + count, "return_mean": score, "length_mean": length}
        return row | {"return_min": np.asarray(self.least), "return_max": np.asarray(self.most)}


def hosted_row(before: int, returns: np.ndarray, lengths: np.ndarray) -> dict[str, Any]:
    """Metrics of the episodes that ended on the host; `before` is how many had ended earlier."""
    row: dict[str, Any] = {"episodes": before + len(returns)}
    if len(returns):
        row |= {"return_mean": returns.mean(), "length_mean": lengths.mean()}
        row |= {"return_min": returns.min(), "return_max": returns.max()}
    return row


def one_each(world: Any, act: Callable, memory: Any, key: jax.Array) -> tuple:
    """Returns and lengths [envs] of one episode in each environment of the compiled `world`.

    act: (memory, observations, mask) → (memory, actions). The mask is None where all is allowed.
    """
    running, obs = world.reset(key)

    def step(carry, time):
        running, obs, memory, alive, score, length = carry
        memory, action = act(memory, obs, world.mask(running))
        running, after = world.step(running, action, world.draws(key, time))
        score = score + jnp.where(alive, after.reward, 0)
        onward = (running, after.obs, memory, alive & ~after.ended, score, length + alive)
        return onward, None

    envs = world.envs
    alive, none = jnp.ones(envs, bool), jnp.zeros(envs, jnp.int32)
    times = jnp.arange(world.max_steps or LONGEST_EVALUATION, dtype=jnp.int32)
    start = (running, obs, memory, alive, jnp.zeros(envs), none)
    (_, _, _, _, score, length), _ = lax.scan(step, start, times)
    return score, length


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
