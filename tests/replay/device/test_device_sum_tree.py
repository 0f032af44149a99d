"""The device's sum tree: what it finds, what stands above its leaves, what it refuses to lose."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from loopless.compiled.tree import descend, rebuild
from loopless.reference.replay import draw_by_priority
from loopless.replay.device import prioritized

pytestmark = pytest.mark.slow  # XLA compiles a program for nearly every test

FLOATS = [jnp.float32, jnp.float64]
SMALL, LARGE = 64, 4 * prioritized.TOP  # leaves: all sums made anew, and not


@jax.jit
def locate(tree, targets):
    return prioritized.descend(tree, prioritized.sum_top(tree), targets)


write = jax.jit(prioritized.write_leaves)


def tree_of(priorities, leaves, dtype=jnp.float64):
    padded = np.zeros(leaves)
    padded[: len(priorities)] = priorities
    return prioritized.sum_tree(jnp.asarray(padded, dtype))


def sums_are_right(tree):
    """Every parent that is kept is the sum of its children, exactly."""
    tree = np.asarray(tree)
    nodes = np.arange(min(tree.size // 2, prioritized.TOP), tree.size // 2)
    return (tree[nodes] == tree[2 * nodes] + tree[2 * nodes + 1]).all()


@pytest.mark.parametrize("dtype", FLOATS)
@given(
    priorities=st.lists(st.integers(0, 40), min_size=1, max_size=40).filter(any),
    uniforms=st.lists(st.floats(0, 1, width=32), min_size=20, max_size=20),
)
def test_the_tree_draws_what_a_linear_scan_draws(dtype, priorities, uniforms):
    held = np.array(priorities) / 4
    targets = jnp.asarray(uniforms, dtype) * dtype(held.sum())
    slots, found = locate(tree_of(held, SMALL, dtype), targets)
    assert slots.tolist() == draw_by_priority(held.tolist(), targets.tolist())
    np.testing.assert_array_equal(found, held[np.asarray(slots)])


@pytest.mark.parametrize("leaves", [SMALL, LARGE])
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_the_tree_draws_what_the_hosts_tree_draws(leaves, seed):
    random = np.random.default_rng(seed)
    held = random.random(leaves) ** 4 * (random.random(leaves) < 0.7)
    tree, slots = np.zeros(2 * leaves), np.empty(500, np.int64)
    rebuild(tree, held)
    targets = random.random(500) * tree[1]
    descend(tree, targets.copy(), slots)
    ours, found = locate(tree_of(held, leaves), targets)
    np.testing.assert_array_equal(ours, slots)
    np.testing.assert_array_equal(found, held[slots])
    np.testing.assert_array_equal(tree_of(held, leaves)[1:], tree[1:])


@pytest.mark.parametrize("dtype", FLOATS)
@given(
    exponents=st.lists(st.none() | st.integers(-30, 30), min_size=1, max_size=60).filter(
        lambda found: any(e is not None for e in found)
    ),
    parts=st.lists(st.floats(0, 2, width=32), min_size=20, max_size=20),
)
def test_e22_a_leaf_of_priority_0_is_never_found(dtype, exponents, parts):
    held = np.array([0.0 if e is None else 1.1**e for e in exponents])
    tree = tree_of(held, SMALL, dtype)
    total = prioritized.sum_top(tree)[1]
    targets = jnp.asarray([*parts[:18], 1, 1 + 1e-7], dtype) * total  # the whole sum, and more
    slots, found = locate(tree, targets)
    assert (held[np.asarray(slots)] > 0).all()
    assert (found > 0).all()
    assert slots[18] == slots[19] == np.flatnonzero(held)[-1]


def test_a_tree_that_trusts_its_sums_finds_an_empty_leaf():
    """The mutant: right whenever the target is not below the left sum."""
    held = np.zeros(8, np.float32)
    held[:3] = 0.1, 0.7, 0.1
    tree = np.asarray(tree_of(held, 8, jnp.float32))
    node, target = 1, np.float32(tree[1])
    while node < 8:
        node *= 2
        if target >= tree[node]:
            target -= tree[node]
            node += 1
    assert held[node - 8] == 0
    assert held[int(locate(jnp.asarray(tree), jnp.full(20, tree[1]))[0][0])] > 0


@pytest.mark.parametrize("leaves", [SMALL, LARGE])
@pytest.mark.parametrize("dtype", FLOATS)
def test_sums_never_drift_and_the_last_of_a_duplicate_counts(dtype, leaves):
    random, held = np.random.default_rng(0), np.zeros(leaves)
    tree = tree_of(held, leaves, dtype)
    for _ in range(30):
        slots = random.integers(0, min(leaves, 500), 256)  # with many duplicates
        values = random.lognormal(0, 5, 256).astype(dtype)
        tree = write(tree, slots, values, True)
        held[slots] = values  # NumPy's last wins too
    np.testing.assert_array_equal(tree[leaves:], held)
    assert sums_are_right(tree)
    np.testing.assert_array_equal(tree[leaves:], tree_of(held, leaves, dtype)[leaves:])


def test_a_tree_that_adds_differences_drifts():
    """The mutant: sums moved by what a leaf gains."""
    random, leaves = np.random.default_rng(0), SMALL
    tree = np.zeros(2 * leaves, np.float32)
    for _ in range(200):
        node = leaves + random.integers(leaves)
        gain = np.float32(random.lognormal(0, 5)) - tree[node]
        while node:
            tree[node] += gain
            node //= 2
    nodes = np.arange(1, leaves)
    assert (tree[nodes] != tree[2 * nodes] + tree[2 * nodes + 1]).any()


@pytest.mark.parametrize("setter", [prioritized.set_in_turn, prioritized.set_last])
def test_both_ways_to_set_let_the_last_of_a_duplicate_win(setter):
    nodes = jnp.array([70, 99, 70, 0, 65, 70, 99], jnp.uint32)
    values = jnp.arange(1.0, 8.0)
    tree = np.asarray(jax.jit(setter)(jnp.zeros(128), nodes, values))
    assert (tree[[70, 99, 65]] == [6, 7, 5]).all()
    assert np.count_nonzero(tree[1:]) == 3


def test_a_scatter_without_order_gets_no_node_twice():
    nodes = jnp.array([70, 99, 70, 0, 65, 70, 99], jnp.uint32)
    assert prioritized.last_of_each(nodes, 128).tolist() == [0, 0, 0, 0, 65, 70, 99]


@pytest.mark.parametrize("leaves", [SMALL, LARGE])
def test_what_is_not_kept_changes_nothing(leaves):
    held = np.arange(1.0, 41)
    tree = tree_of(held, leaves)
    slots, values = np.array([3, 5, 3, 60_000, 0]), np.array([np.nan, 9, np.inf, 1, -1])
    changed = np.asarray(write(tree, slots, values, np.array([False, True, False, False, False])))
    wanted = held.copy()
    wanted[5] = 9
    at_top = np.arange(1, 2 * leaves) < min(leaves, prioritized.TOP)
    wanted_tree = np.where(at_top, tree[1:], tree_of(wanted, leaves)[1:])
    np.testing.assert_array_equal(changed[1:], wanted_tree)
    assert sums_are_right(changed)


def test_the_top_is_the_sum_of_what_is_below():
    held = np.random.default_rng(0).random(LARGE)
    tree = tree_of(held, LARGE)
    np.testing.assert_array_equal(prioritized.sum_top(tree), tree[: 2 * prioritized.TOP])


@pytest.mark.parametrize(
    ("capacity", "leaves"), [(1, 1), (2, 2), (7, 8), (11, 16), (1_000_003, 2**20)]
)
def test_leaves_are_a_power_of_two(capacity, leaves):
    assert prioritized.count_leaves(capacity) == leaves
