"""What is done to a rollout before an update sees it: normalization, successor values, shuffles.

Pure functions of JAX arrays, used by PPO. Merging the statistics of two windows gives those of both
together (Chan et al. 1979), whatever their sizes.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from loopless.kernels.scan import affine_scan

LARGEST = 10.0  # what is normalized is clipped to ± this
SMALLEST = 1e-8  # added to a variance before its root is taken


class Rollout(NamedTuple):
    """T steps of N environments, [T, N, ...], and what else is needed to learn from them."""

    all_obs: Any  # [T + 1, N, ...]: the observations acted on, and the one after the last step
    next_obs: Any  # true successors
    action: Any  # raw, as the distribution of actions has them
    reward: Any
    terminated: Any
    truncated: Any
    starts: Any  # [T + 1, N]: whether an episode starts with this observation
    valid: Any = None  # false where a step only resets; None if none does
    masks: Any = None  # [T, N, n]: which actions were legal; None if all were
    memory: Any = ()  # of the policy, before the first step
    outputs: Any = (
        None  # the policy's outputs and the values [T, N, ...] of acting; None if unknown
    )


class Statistics(NamedTuple):
    """The number of values seen, their mean (0 before the first) and variance (1 before it)."""

    seen: Any
    mean: Any
    variance: Any

    @classmethod
    def empty(cls, shape: tuple[int, ...] = ()) -> "Statistics":
        """Return the statistics of no value of this shape."""
        zeros = jnp.zeros(shape, jnp.float32)
        return cls(jnp.zeros((), jnp.float32), zeros, zeros + 1)

    def merge(self, values: jax.Array, valid: jax.Array | None = None) -> "Statistics":
        """Return the statistics with `values` [..., *shape] added, where `valid` [...] is true."""
        values = values.reshape(-1, *self.mean.shape).astype(self.mean.dtype)
        counts = jnp.ones(len(values), bool) if valid is None else valid.reshape(-1)
        counts = counts.reshape(-1, *[1] * self.mean.ndim)
        new = counts.sum(dtype=self.seen.dtype)
        mean = jnp.where(counts, values, 0).sum(0) / jnp.maximum(new, 1)
        variance = jnp.where(counts, (values - mean) ** 2, 0).sum(0) / jnp.maximum(new, 1)
        seen = self.seen + new
        apart, share = mean - self.mean, new / jnp.maximum(seen, 1)
        spread = (1 - share) * self.variance + share * variance + share * (1 - share) * apart**2
        return Statistics(seen, self.mean + share * apart, spread)

    @property
    def scale(self) -> jax.Array:
        """1 / standard deviation."""
        return 1 / jnp.sqrt(self.variance + SMALLEST)


def normalize_observations(obs: jax.Array, mean: jax.Array, variance: jax.Array) -> jax.Array:
    """Return observations with mean 0 and deviation 1, clipped to ± LARGEST."""
    scale = Statistics(jnp.zeros(()), mean, variance).scale
    return jnp.clip((obs - mean) * scale, -LARGEST, LARGEST)


def scale_rewards(
    statistics: Statistics, running: jax.Array, rewards, starts, valid, gamma: float
) -> tuple[jax.Array, Statistics, jax.Array]:
    """Divide rewards [T, N] by the deviation of discounted returns.

    running: each environment's discounted return so far, [N]. starts: whether an episode starts
    with a step, [T, N]. Returns the scaled rewards, and the new statistics and running returns.
    """
    rewards = rewards if valid is None else jnp.where(valid, rewards, 0)
    decay = jnp.where(starts, 0, jnp.asarray(gamma, rewards.dtype))
    returns = affine_scan(decay, rewards, running, reverse=False)
    statistics = statistics.merge(jnp.asarray(returns), valid)
    scaled = jnp.clip(rewards * statistics.scale, -LARGEST, LARGEST)
    return scaled, statistics, returns[-1]


def unroll(net: Any, rollout: Rollout, all_obs: jax.Array) -> tuple:
    """Return what `net.unroll` does for all observations; what acting has computed is not again."""
    if rollout.outputs is None:
        return net.unroll(rollout.memory, all_obs, rollout.starts)
    params, values = rollout.outputs
    last, own, last_values, memory = net.step(rollout.memory, all_obs[-1], rollout.starts[-1])
    params = jnp.concatenate([params, last[None]])
    return params, own, jnp.concatenate([values, last_values[None]]), memory


def next_values(
    rollout: Rollout, all_values: jax.Array, value_after: Callable, memories: Any, width: int
) -> jax.Array:
    """Return V(s') of every step: the next step's value, except where a time limit cut an episode.

    The successor of a step that was cut is not the next step's observation, so its value is
    `value_after(memories, next_obs)`. Such steps are few: the rollout is cut into so many windows
    that `width` steps are computed at a time, the first that is left in each window of each env.
    What is returned for a terminated step means nothing and is never read.
    """
    steps, envs = rollout.reward.shape
    windows = max(1, width // envs)
    length = -(-steps // windows)

    def in_windows(x):
        return jnp.pad(x, ((0, windows * length - steps), (0, 0))).reshape(windows, length, envs)

    def compute_some(state):
        left, values = state
        first = jnp.argmax(left, 1)
        times = jnp.minimum(first + length * jnp.arange(windows)[:, None], steps - 1)
        at = times.reshape(-1), jnp.tile(jnp.arange(envs), windows)
        new = value_after(jax.tree.map(lambda x: x[at], memories), rollout.next_obs[at])
        here = left & (jnp.arange(length)[:, None] == first[:, None])
        new = new.reshape(windows, 1, envs)
        return left & ~here, jnp.where(here, new, values)

    # Not `jnp.nonzero`: its sums take as long to compile as a forward and a backward pass.
    start = in_windows(rollout.truncated & ~rollout.terminated), in_windows(all_values[1:])
    _, values = lax.while_loop(lambda state: state[0].any(), compute_some, start)
    return values.reshape(-1, envs)[:steps]


def shuffles(key: jax.Array, count: int, size: int) -> jax.Array:
    """Return `count` random orders of the numbers below `size`, [count, size].

    Random bits are sorted, with the numbers in their lowest bits if at least 16 remain random: XLA
    sorts one array four times faster than two, and two numbers tie at most once in 2¹⁶ times.
    """
    bits = jax.random.bits(key, (count, size), jnp.uint32)
    numbers = jnp.broadcast_to(jnp.arange(size, dtype=jnp.uint32), bits.shape)
    if size > 1 << 16:
        order = lax.sort((bits, numbers), dimension=1, num_keys=1, is_stable=False)[1]
    else:
        low = jnp.uint32((1 << (size - 1).bit_length()) - 1)
        order = lax.sort(bits & ~low | numbers, dimension=1, is_stable=False) & low
    return order.astype(jnp.int32)


def flatten_steps(steps: dict, memory: Any) -> dict:
    """Return the units to shuffle, [n, ...]: single steps, or the whole rollout of each env.

    memory: that of a recurrent policy before the rollout, whose steps must stay in order; or ().
    """
    if not jax.tree.leaves(memory):
        return {name: x.reshape(-1, *x.shape[2:]) for name, x in steps.items()}
    return {name: jnp.swapaxes(x, 0, 1) for name, x in steps.items()} | {"memory": memory}


def cut_minibatches(units: dict, order: jax.Array, parts: int) -> dict:
    """Cut the units of `flatten_steps`, in this order, into minibatches [parts, ...]."""
    cut = jax.tree.map(lambda x: x[order].reshape(parts, -1, *x.shape[1:]), units)
    if "memory" not in units:
        return cut
    return {name: x if name == "memory" else jnp.swapaxes(x, 1, 2) for name, x in cut.items()}


def explained_variance(values: jax.Array, returns: jax.Array, valid: Any) -> jax.Array:
    """Return 1 − Var(G − V) / Var(G); 0 where the returns do not vary."""
    errors, returns = (x - x.mean(where=valid) for x in (returns - values, returns))
    total = (returns**2).mean(where=valid)
    unexplained = (errors**2).mean(where=valid)
    return jnp.where(total > 0, 1 - unexplained / jnp.where(total > 0, total, 1), 0)
