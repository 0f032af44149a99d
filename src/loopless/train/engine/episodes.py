"""The episodes of a run as metrics: those that ended during training, and those of evaluations.

Used by the trainers whose agents act in environments, and by `engine.run`.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

EVALUATION = 1_000_003  # added to a seed, so that evaluations have other episodes than training
LONGEST_EVALUATION = 10_000  # steps of an episode, where the environment sets no limit


class EpisodeSummary(NamedTuple):
    """A summary of the episodes that ended during some steps of a compiled run."""

    ended: jax.Array  # how many episodes
    total_return: jax.Array
    total_length: jax.Array
    least: jax.Array
    most: jax.Array

    @classmethod
    def summarize(
        cls, ended: jax.Array, returns: jax.Array, lengths: jax.Array
    ) -> "EpisodeSummary":
        """Summarize the episodes that ended, at the steps where `ended` [...] is true."""
        infinity = jnp.asarray(jnp.inf, returns.dtype)
        return cls(
            ended.sum(dtype=jnp.int32),
            jnp.where(ended, returns, 0).sum(),
            jnp.where(ended, lengths, 0).sum(dtype=jnp.int32),
            jnp.where(ended, returns, infinity).min(),
            jnp.where(ended, returns, -infinity).max(),
        )

    @classmethod
    def empty(cls) -> "EpisodeSummary":
        """Return the summary of no episode."""
        zero, infinity = jnp.zeros((), jnp.int32), jnp.asarray(jnp.inf, jnp.float32)
        return cls(zero, jnp.zeros((), jnp.float32), zero, infinity, -infinity)

    def reduce(self) -> "EpisodeSummary":
        """Reduce stacked summaries [n] to one."""
        return EpisodeSummary(
            self.ended.sum(), self.total_return.sum(), self.total_length.sum(),
            self.least.min(), self.most.max(),
        )  # fmt: skip

    def merge(self, other: "EpisodeSummary") -> "EpisodeSummary":
        """Return the summary of the episodes of both."""
        return EpisodeSummary(
            self.ended + other.ended, self.total_return + other.total_return,
            self.total_length + other.total_length,
            jnp.minimum(self.least, other.least), jnp.maximum(self.most, other.most),
        )  # fmt: skip

    def metrics(self, before: np.ndarray) -> dict[str, Any]:
        """Return a row of metrics; `before` is how many episodes had ended earlier."""
        count = np.asarray(self.ended)
        with np.errstate(divide="ignore", invalid="ignore"):
            score = np.asarray(self.total_return) / count
            length = np.asarray(self.total_length) / count
        row = {"episodes": before + count, "return_mean": score, "length_mean": length}
        return row | {"return_min": np.asarray(self.least), "return_max": np.asarray(self.most)}


def hosted_metrics(before: int, returns: np.ndarray, lengths: np.ndarray) -> dict[str, Any]:
    """Return a row of metrics of hosted episodes; `before` is how many had ended earlier."""
    row: dict[str, Any] = {"episodes": before + len(returns)}
    if len(returns):
        row |= {"return_mean": returns.mean(), "length_mean": lengths.mean()}
        row |= {"return_min": returns.min(), "return_max": returns.max()}
    return row


def play_once(
    world: Any, act: Callable, memory: Any, key: jax.Array, max_steps: int | None = None
) -> tuple:
    """Play one episode in each env of the compiled `world`.

    Returns returns and lengths [envs], and how many episodes were cut at `max_steps`.

    act: (memory, observations, mask) → (memory, actions). The mask is None where every action is
    legal.
    """
    running, obs = world.reset(key)

    def step(carry, time):
        running, obs, memory, alive, score, length = carry
        memory, action = act(memory, obs, world.mask(running))
        running, after = world.step(running, action, world.draws(key, time))
        score = score + jnp.where(alive, after.reward, 0)
        alive, length = alive & ~after.ended, length + alive
        return (running, after.obs, memory, alive, score, length), None

    envs = world.envs
    alive, zeros = jnp.ones(envs, bool), jnp.zeros(envs, jnp.int32)
    most = max_steps or world.max_steps or LONGEST_EVALUATION
    start = (running, obs, memory, alive, jnp.zeros(envs), zeros)
    times = jnp.arange(most, dtype=jnp.int32)
    (_, _, _, alive, score, length), _ = lax.scan(step, start, times)
    return score, length, alive.sum(dtype=jnp.int32)


def evaluation_metrics(returns: Any, lengths: Any, cut: Any) -> dict[str, Any]:
    """Return a row of metrics from the episodes of an evaluation, [..., episodes].

    cut: how many of them were ended by a limit on their steps.
    """
    returns, lengths = np.asarray(returns), np.asarray(lengths)
    return {
        "eval_cut": np.asarray(cut),
        "eval_return": returns.mean(-1),
        "eval_return_std": returns.std(-1),
        "eval_return_min": returns.min(-1),
        "eval_return_max": returns.max(-1),
        "eval_length_mean": lengths.mean(-1),
        "eval_episodes": returns.shape[-1],
    }
