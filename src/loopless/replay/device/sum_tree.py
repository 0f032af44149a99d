"""The sum tree of a prioritized buffer on the device: pure functions of a flat array.

A tree of L leaves, a power of two, is an array of 2L numbers like the host's: the children of node
k at 2k and 2k + 1, leaf i at L + i. Every parent is the sum of its two children as they are now,
so that nothing drifts and a leaf written twice does no harm. Levels of up to TOP nodes are not
kept: summing them anew for a draw is cheaper than keeping them. Node 0 belongs to no tree, and
takes what is not to be written.

Descents and ascents are loops of the compiled program, which XLA treats as one operation each: a
tree read outside of one could be read late, after the next write, and then XLA would copy it for
every update. Imports JAX only. Twins: `replay/numba_tree.py`, in loops `reference/replay.py`.
Tests: `tests/replay/test_device_tree.py`.
"""

from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

TOP = 2048


def leaves_for(capacity: int) -> int:
    """The power of two from `capacity` up."""
    return 1 << (capacity - 1).bit_length()


def top_of(tree: jax.Array) -> jax.Array:
    """Nodes 0 … 2·TOP − 1, or those of a smaller tree, with their sums; the root is node 1."""
    nodes = min(tree.size // 2, TOP)
    return sums_of(lax.slice(tree, (nodes,), (2 * nodes,)))


@jax.jit
def sums_of(leaves: jax.Array) -> jax.Array:
    """The whole tree over some leaves, a power of two of them."""
    levels = [leaves]
    while levels[0].size > 1:
        pairs = levels[0].reshape(-1, 2)
        levels.insert(0, pairs[:, 0] + pairs[:, 1])
    return jnp.concatenate([jnp.zeros(1, leaves.dtype), *levels])


def locate(
    tree: jax.Array, top: jax.Array, targets: jax.Array, fresh: jax.Array | None = None
) -> tuple[jax.Array, jax.Array]:
    """The leaf i with Σ_{j<i} p_j ≤ target < Σ_{j≤i} p_j, for each target [n], and its p_i.

    Right is taken only where the right subtree holds something: rounding, or a target of the
    whole sum and more, ends at the last leaf that is not 0. With `fresh` fractions [n], the way on
    from below the top is drawn anew, which is the same law: a float32 target alone is one of 2²⁴
    points, some ten for each of a million leaves.
    """
    whole = jnp.broadcast_to(top[1], targets.shape)
    carry = _descend(top, (jnp.ones(targets.shape, jnp.uint32), targets, whole))
    if top.size < tree.size:
        nodes, targets, sums = carry
        targets = targets if fresh is None else fresh * sums
        carry = _descend(tree, (nodes, targets, sums), top.size // 2)
    nodes, _, priorities = carry
    return nodes - jnp.uint32(tree.size // 2), priorities


def _descend(sums: jax.Array, carry: Any, level: int = 1) -> Any:
    """From nodes of a level of `level` nodes down to the leaves of `sums`."""

    def step(_, carry: Any) -> Any:
        node, target, _ = carry
        left = node << 1
        weight, other = _at(sums, left), _at(sums, left + 1)
        right = (target >= weight) & (other > 0)
        target = jnp.where(right, target - weight, target)
        return left + right.astype(jnp.uint32), target, jnp.where(right, other, weight)

    return lax.fori_loop(0, (sums.size // (2 * level)).bit_length() - 1, step, carry)


def write(tree: jax.Array, slots: jax.Array, priorities: jax.Array, kept: Any) -> jax.Array:
    """Set leaves [n] where `kept`, the last of a duplicate winning, and the sums above them."""
    leaves = tree.size // 2
    nodes = jnp.where(kept, slots.astype(jnp.uint32) + jnp.uint32(leaves), jnp.uint32(0))
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
    """Set nodes one after the other: cheap on a CPU, where a scatter does no better."""

    def step(k, tree: jax.Array) -> jax.Array:
        return lax.dynamic_update_slice(tree, values[k][None], (nodes[k],))

    return lax.fori_loop(0, nodes.size, step, tree)


def set_last(tree: jax.Array, nodes: jax.Array, values: jax.Array) -> jax.Array:
    """Set nodes all at once, in whatever order: no node but 0 comes twice."""
    return tree.at[last_of_each(nodes, tree.size)].set(values, mode="promise_in_bounds")


def last_of_each(nodes: jax.Array, size: int) -> jax.Array:
    """`nodes` below `size`, with 0 in place of all but the last of each."""
    places = lax.iota(jnp.int32, nodes.size)
    last = jnp.full(size, -1, jnp.int32).at[nodes].max(places, mode="promise_in_bounds")
    return jnp.where(_at(last, nodes) == places, nodes, jnp.uint32(0))


def _at(array: jax.Array, nodes: jax.Array) -> jax.Array:
    return array.at[nodes].get(mode="promise_in_bounds")
