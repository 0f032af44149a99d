"""A ring of transitions on the device, drawn by priority with importance weights, and its sum tree.

A tree of L leaves, a power of two, is an array of 2L numbers like the host's: the children of node
k at 2k and 2k + 1, leaf i at L + i. Every parent is the sum of its two children as they are now,
so that nothing drifts and a leaf written twice does no harm. Levels of fewer than TOP nodes are not
stored: summing them anew for a draw is cheaper than updating them. Node 0 is not part of the tree:
what must not be written goes there.

Descents and ascents are loops of the compiled program, because XLA treats a loop as one operation.
If the tree were read outside of a loop, XLA might put that read after the next write, and would
then copy the tree for every update.

Host twins: `host.prioritized`, `compiled.tree`. Loop twin: `reference.replay`.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from loopless.refusals import refuse
from loopless.replay.device.layout import JAX
from loopless.replay.device.ring import Ring, RingState
from loopless.replay.device.words import check_words, fraction, random_words
from loopless.replay.fields import Field
from loopless.replay.sampling import check_counts

TOP = 2048


class PrioritizedState(NamedTuple):
    """A ring and its priorities, already raised to alpha."""

    ring: RingState
    tree: jax.Array  # [2·leaves]
    peak: jax.Array  # the largest priority so far

    @property
    def size(self) -> jax.Array:
        """Return how many slots are filled, int32."""
        return self.ring.size


@dataclass(frozen=True, repr=False)
class PrioritizedBuffer(Ring):
    """A ring of transitions drawn with P(i) = p_i^α / Σ_j p_j^α (Schaul et al. 2016).

        buffer = PrioritizedBuffer(100_000, fields, alpha=0.6)
        state = buffer.add(buffer.init(), transitions)
        batch = buffer.sample(state, key, 256, beta=0.4)             # adds "weights", "indices"
        state = buffer.update_priorities(state, batch["indices"], abs(td_errors) + 1e-6)

    New transitions get the largest priority so far, 1 at first. A transition of priority 0 is
    never drawn, whatever α is. Other options are those of `RingBuffer`. Priorities are summed in
    `dtype`, by default float64 in x64 mode and float32 otherwise. In float64 the same words give
    the same draws as on the host.
    """

    alpha: float = 0.6
    dtype: Any = None

    def __post_init__(self) -> None:
        super().__post_init__()
        dtype = jnp.result_type(float) if self.dtype is None else self.dtype
        object.__setattr__(self, "alpha", float(self.alpha))
        object.__setattr__(self, "dtype", jnp.dtype(dtype).name)

    def _problems(self) -> list[str]:
        problems = []
        real = isinstance(self.alpha, int | float) and not isinstance(self.alpha, bool)
        if not real or not 0 <= self.alpha < math.inf:
            problems.append(f"alpha must be a finite number of at least 0; received {self.alpha!r}")
        if self.dtype is not None:
            try:
                JAX.dtype(jnp.dtype(self.dtype).name)
                sound = jnp.dtype(self.dtype).name in ("float32", "float64")
            except TypeError:
                sound = False
            if not sound:
                problems.append(f"dtype={self.dtype!r} must be float32, or float64 in x64")
        return problems

    @property
    def leaves(self) -> int:
        """Return the size of the tree's lowest level."""
        return count_leaves(self.capacity)

    @property
    def arrays(self) -> dict[str, Field]:
        """Return what is allocated for each slot."""
        nodes = Field((-(-2 * self.leaves // self.capacity),), self.dtype)
        return {**self.layout.arrays, "priorities": nodes}

    def init(self) -> PrioritizedState:
        """Return an empty state; raise before anything is allocated if it does not fit."""
        ring = self._empty()  # checks the memory, so it comes before the tree
        tree = jnp.zeros(2 * self.leaves, self.dtype)
        return PrioritizedState(ring, tree, jnp.ones((), self.dtype))

    def add(
        self, state: PrioritizedState, transitions: Mapping[str, Any], valid: Any = None
    ) -> PrioritizedState:
        """Return the state after adding one transition, or [n, ...] or [steps, envs, ...] of them.

        They replace the oldest. Those whose `valid` (boolean, of the leading shape) is false are
        left out, and take no slot.
        """
        ring, slots = self._append(state.ring, transitions, valid)
        peaks = jnp.broadcast_to(state.peak, slots.shape)
        stored = True if valid is None else slots < self.capacity
        return state._replace(ring=ring, tree=write_leaves(state.tree, slots, peaks, stored))

    def sample(
        self,
        state: PrioritizedState,
        key: Any,
        batch_size: int,
        batches: int | None = None,
        *,
        beta: Any = 0.4,
        gamma: Any = None,
    ) -> dict[str, Any]:
        """Return a dict of arrays [batch_size, ...], or [batches, batch_size, ...].

        "indices" are the slots, "weights" are w_i = (N·P(i))^−β divided by the largest of the
        batch. Each batch is stratified: one draw from each of `batch_size` equal parts of the sum.
        `beta` may be traced, and so may `gamma`, which is used instead of the buffer's. Compiled
        code cannot raise: a buffer without a priority above 0 returns slot 0, with weight 0.
        """
        leading = check_counts(f"{type(self).__name__}.sample", batch_size, batches)
        return self.sample_from(state, random_words(key, leading), beta=beta, gamma=gamma)

    def sample_from(
        self, state: PrioritizedState, words: jax.Array, *, beta: Any = 0.4, gamma: Any = None
    ) -> dict[str, Any]:
        """Return what `sample` does, with random words [2, *leading] that the caller has made."""
        check_words("PrioritizedBuffer.sample_from", words, 2)
        slots, priorities = self.locate(state, words)
        weights = importance_weights(priorities, beta)
        batch = self.gather(state, slots, gamma)
        return {"indices": batch.pop("indices"), "weights": weights, **batch}

    def locate(self, state: PrioritizedState, words: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Return slots [*leading] drawn by words [2, *leading], and their priorities."""
        leading, dtype = words.shape[1:], state.tree.dtype
        part = lax.broadcasted_iota(jnp.uint32, leading, len(leading) - 1).astype(dtype)
        top = sum_top(state.tree)
        targets = (part + fraction(words, dtype)) * (top[1] / leading[-1])
        fresh = None if dtype == jnp.float64 else fraction(words[::-1], dtype).reshape(-1)
        slots, priorities = descend(state.tree, top, targets.reshape(-1), fresh)
        return slots.reshape(leading), priorities.reshape(leading)

    def drop(self, state: PrioritizedState, slots: jax.Array, lost: jax.Array) -> PrioritizedState:
        """Return the state without the oldest transitions, those of `slots` that are `lost`."""
        ring = state.ring._replace(size=state.size - jnp.sum(lost, dtype=jnp.int32))
        tree = write_leaves(state.tree, slots, jnp.zeros(slots.shape, self.dtype), lost)
        return state._replace(ring=ring, tree=tree)

    def gather(self, state: PrioritizedState, indices: Any, gamma: Any = None) -> dict[str, Any]:
        """Return the transitions in slots `indices`, of any shape, without weights."""
        return self._gather(state.ring, indices, gamma)

    def update_priorities(
        self, state: PrioritizedState, indices: Any, priorities: Any, *, alpha: Any = None
    ) -> PrioritizedState:
        """Return the state with new `priorities` (raised to alpha here) for the slots `indices`.

        `alpha`, which may be traced, is used instead of the buffer's. If an index comes twice, the
        last priority counts. Compiled code cannot raise: a priority that is negative, not finite or
        too large, or an index that is not a filled slot, changes nothing.
        """
        where = f"{type(self).__name__}.update_priorities"
        slots, numbers = jnp.asarray(indices), jnp.asarray(priorities)
        problems = []
        if slots.shape != numbers.shape:
            problems.append(f"indices has shape {slots.shape}, priorities {numbers.shape}")
        if not jnp.issubdtype(slots.dtype, jnp.integer):
            problems.append(f"indices has dtype {slots.dtype}, expected integers")
        if numbers.dtype == jnp.bool_ or not jnp.isrealobj(numbers):
            problems.append(f"priorities has dtype {numbers.dtype}, expected real numbers")
        refuse(where, problems)
        slots, numbers = slots.reshape(-1), numbers.reshape(-1).astype(state.tree.dtype)
        alpha = self.alpha if alpha is None else alpha
        raised = jnp.where(numbers == 0, 0, numbers**alpha)
        most = jnp.finfo(state.tree.dtype).max / self.leaves  # so that no sum overflows
        ring = state.ring
        is_filled = (ring.head - 1 - slots.astype(jnp.int32)) % self.capacity < ring.size
        sound = (numbers >= 0) & (raised <= most) & (slots >= 0) & (slots < self.capacity)
        sound = sound & is_filled
        tree = write_leaves(state.tree, slots, raised, sound)
        peak = jnp.max(raised, where=sound, initial=0).astype(state.peak.dtype)
        return state._replace(tree=tree, peak=jnp.maximum(state.peak, peak))


def importance_weights(priorities: jax.Array, beta: Any) -> jax.Array:
    """Return w_i = (p_i / min_j p_j)^−β in each batch, the last axis; float32, 0 where p_i is 0."""
    least = jnp.min(priorities, axis=-1, keepdims=True)
    ratios = jnp.where(priorities > 0, priorities / least, 1)
    weights = ratios ** -jnp.asarray(beta, priorities.dtype)
    return jnp.where(priorities > 0, weights, 0).astype(jnp.float32)


def count_leaves(capacity: int) -> int:
    """Return the smallest power of two that is at least `capacity`."""
    return 1 << (capacity - 1).bit_length()


def sum_top(tree: jax.Array) -> jax.Array:
    """Return nodes 0 … 2·TOP − 1, or all of a smaller tree, with their sums; the root is node 1."""
    nodes = min(tree.size // 2, TOP)
    return sum_tree(lax.slice(tree, (nodes,), (2 * nodes,)))


@jax.jit
def sum_tree(leaves: jax.Array) -> jax.Array:
    """Return the whole tree over some leaves, a power of two of them."""
    levels = [leaves]
    while levels[0].size > 1:
        pairs = levels[0].reshape(-1, 2)
        levels.insert(0, pairs[:, 0] + pairs[:, 1])
    return jnp.concatenate([jnp.zeros(1, leaves.dtype), *levels])


def descend(
    tree: jax.Array, top: jax.Array, targets: jax.Array, fresh: jax.Array | None = None
) -> tuple[jax.Array, jax.Array]:
    """Return the leaf i with Σ_{j<i} p_j ≤ target < Σ_{j≤i} p_j, for each target [n], and its p_i.

    The right child is taken only if its sum is above 0, so that a target that is too large, by
    rounding or from the start, ends at the last leaf that is not 0. With `fresh` fractions [n], the
    path below the top is drawn anew, which does not change the distribution. A float32 target alone
    is one of 2²⁴ points, only about 16 for each of a million leaves.
    """
    whole = jnp.broadcast_to(top[1], targets.shape)
    carry = _descend_from(top, (jnp.ones(targets.shape, jnp.uint32), targets, whole))
    if top.size < tree.size:
        nodes, targets, sums = carry
        targets = targets if fresh is None else fresh * sums
        carry = _descend_from(tree, (nodes, targets, sums), top.size // 2)
    nodes, _, priorities = carry
    return nodes - jnp.uint32(tree.size // 2), priorities


def _descend_from(sums: jax.Array, carry: Any, level: int = 1) -> Any:
    """Return `carry` after a descent from the level with `level` nodes to the leaves of `sums`."""

    def step(_, carry: Any) -> Any:
        node, target, _ = carry
        left = node << 1
        weight, other = _at(sums, left), _at(sums, left + 1)
        right = (target >= weight) & (other > 0)
        target = jnp.where(right, target - weight, target)
        return left + right.astype(jnp.uint32), target, jnp.where(right, other, weight)

    return lax.fori_loop(0, (sums.size // (2 * level)).bit_length() - 1, step, carry)


def write_leaves(
    tree: jax.Array, slots: jax.Array, priorities: jax.Array, wanted: Any
) -> jax.Array:
    """Return the tree with new leaves [n] where `wanted`, and new sums above them.

    If a slot comes twice, the last priority counts.
    """
    leaves = tree.size // 2
    nodes = jnp.where(wanted, slots.astype(jnp.uint32) + jnp.uint32(leaves), jnp.uint32(0))
    tree = lax.platform_dependent(
        tree, nodes, priorities.astype(tree.dtype), cpu=set_in_turn, default=set_last
    )

    def step(_, carry: Any) -> Any:
        tree, nodes = carry
        nodes = nodes >> 1
        sums = _at(tree, nodes << 1) + _at(tree, (nodes << 1) + 1)
        return tree.at[nodes].set(sums, mode="promise_in_bounds"), nodes

    levels = leaves.bit_length() - min(leaves, TOP).bit_length()
    return lax.fori_loop(0, levels, step, (tree, nodes))[0]


def set_in_turn(tree: jax.Array, nodes: jax.Array, values: jax.Array) -> jax.Array:
    """Return the tree with nodes set one after the other: on a CPU as fast as a scatter."""

    def step(k, tree: jax.Array) -> jax.Array:
        return lax.dynamic_update_slice(tree, values[k][None], (nodes[k],))

    return lax.fori_loop(0, nodes.size, step, tree)


def set_last(tree: jax.Array, nodes: jax.Array, values: jax.Array) -> jax.Array:
    """Return the tree with nodes set by one scatter; earlier duplicates go to node 0."""
    return tree.at[last_of_each(nodes, tree.size)].set(values, mode="promise_in_bounds")


def last_of_each(nodes: jax.Array, size: int) -> jax.Array:
    """Return `nodes`, all below `size`, with 0 in place of earlier duplicates."""
    places = lax.iota(jnp.int32, nodes.size)
    last = jnp.full(size, -1, jnp.int32).at[nodes].max(places, mode="promise_in_bounds")
    return jnp.where(_at(last, nodes) == places, nodes, jnp.uint32(0))


def _at(array: jax.Array, nodes: jax.Array) -> jax.Array:
    return array.at[nodes].get(mode="promise_in_bounds")
