"""Host and device, given the same random words, draw the same: index for index, row for row."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numba import njit
from support.device_buffers import FIELDS, GAMMA, leaves, stack, transition, words_of

from loopless.compiled.random import bits
from loopless.replay import EpisodicReplayBuffer, PrioritizedReplayBuffer, ReplayBuffer
from loopless.replay.device import EpisodicBuffer, PrioritizedBuffer, RingBuffer

pytestmark = pytest.mark.slow  # XLA compiles a program for nearly every test

SIZES = [(50, 20), (50, 130)]  # capacity, rows added


@njit
def numbers_from(key, counter, count):
    found = np.empty(count, np.uint64)
    for k in range(count):
        found[k] = bits(key, counter + np.uint64(k))
    return found


def next_words(random, *shape):
    """The words that a host buffer will draw next, from its generator (key, counter)."""
    count = int(np.prod(shape))
    return words_of(numbers_from(random[0], random[1], count).reshape(shape))


def rows(first, count):
    ends = ["", "", "", "terminated", "", "truncated", ""]
    return stack([transition(n, ends[n % 7]) for n in range(first, first + count)])


def assert_same(ours, theirs):
    ours, theirs = leaves(ours), leaves(theirs)
    assert ours.keys() == theirs.keys()
    for name, array in theirs.items():
        if name in ("reward", "discount") and "discount" in theirs:
            # XLA may fuse a product and a sum, which rounds once where the host rounds twice
            np.testing.assert_allclose(ours[name], array, rtol=1e-15, atol=1e-15)
        else:
            np.testing.assert_array_equal(ours[name], array, err_msg=name)


@pytest.mark.parametrize(("capacity", "count"), SIZES)
@pytest.mark.parametrize(("n", "envs"), [(1, 1), (3, 2)])
def test_uniform_draws_are_the_hosts(capacity, count, n, envs):
    options = {"n_step": n, "gamma": GAMMA, "envs": envs}
    host, buffer = (
        ReplayBuffer(capacity, FIELDS, **options),
        RingBuffer(capacity, FIELDS, **options),
    )
    state = jax.jit(buffer.add)(buffer.init(), rows(0, count))
    for first in range(0, count, envs):
        host.add(**rows(first, envs))
    newest = 2 if n > 1 else 0
    draw = jax.jit(lambda state, words: buffer.sample_from(state, words, newest=newest))
    for _ in range(3):
        words = next_words(host._random, 4, 5)
        assert_same(draw(state, words), host.sample(5, 4, newest=newest))


@pytest.mark.parametrize(("capacity", "count"), SIZES)
def test_prioritized_draws_are_the_hosts(capacity, count):
    host = PrioritizedReplayBuffer(capacity, FIELDS, alpha=0.6)
    buffer = PrioritizedBuffer(capacity, FIELDS, alpha=0.6)
    state = jax.jit(buffer.add)(buffer.init(), rows(0, count))
    host.add(**rows(0, count))
    random = np.random.default_rng(0)
    draw, update = jax.jit(buffer.sample_from), jax.jit(buffer.update_priorities)
    for _ in range(10):
        words = next_words(host._random, 4, 5)
        theirs = host.sample(5, 4, beta=0.5)
        ours = draw(state, words, beta=0.5)
        np.testing.assert_allclose(ours.pop("weights"), theirs.pop("weights"), rtol=2e-7)
        assert_same(ours, theirs)
        given = random.lognormal(0, 3, (4, 5)) * (random.random((4, 5)) < 0.9)
        given[0, 0] = 1.0  # so that not all are 0
        host.update_priorities(theirs["indices"], given)
        state = update(state, ours["indices"], given)
        np.testing.assert_allclose(
            state.tree[buffer.leaves : buffer.leaves + len(host)], host.priorities, rtol=1e-15
        )
        # A power may differ in its last bit; the draws are compared on equal leaves.
        padded = np.zeros(buffer.leaves)
        padded[: len(host)] = host.priorities
        state = state._replace(tree=state.tree.at[buffer.leaves :].set(padded))


def test_a_tree_of_many_levels_draws_as_the_hosts():
    fields = {"number": ((), np.int32)}
    host, buffer = PrioritizedReplayBuffer(10_007, fields), PrioritizedBuffer(10_007, fields)
    numbers = np.arange(10_007, dtype=np.int32)
    given = np.random.default_rng(0).lognormal(0, 2, 10_007)
    host.add(number=numbers)
    host.update_priorities(numbers, given)
    state = jax.jit(buffer.add)(buffer.init(), {"number": numbers})
    state = state._replace(tree=jnp.asarray(host._tree))
    draw = jax.jit(buffer.sample_from)
    for _ in range(5):
        words = next_words(host._random, 256)
        ours, theirs = draw(state, words, beta=0.4), host.sample(256, beta=0.4)
        np.testing.assert_array_equal(ours["indices"], theirs["indices"])
        np.testing.assert_allclose(ours["weights"], theirs["weights"], rtol=2e-7)


def filled_host(law, capacity=90, rows=25, seed=0):
    """A host's buffer that has gone around several times."""
    random = np.random.default_rng(seed)
    fields = {"obs": {"at": ((2,), np.float32)}, "action": ((), np.int32)}
    host = EpisodicReplayBuffer(capacity, fields, terminals="single", law=law, seed=3)
    added = []
    for e in range(rows):
        length = int(random.integers(2, 20))
        marks = random.random(length) < 0.2
        marks[:2] = False
        obs = np.stack([np.full(length, e), np.arange(length)], 1).astype(np.float32)
        added.append(({"obs": {"at": obs}, "action": np.arange(length, dtype=np.int32)}, marks))
        host.add_episode(**added[-1][0], terminals=marks)
    return host, fields, added


def fill_device(buffer, added, longest=20):
    """The same rows, added in a graph."""
    add = jax.jit(buffer.add)
    state = buffer.init()
    for row, marks in added:
        short = longest - len(marks)
        padded = jax.tree.map(
            lambda x, short=short: np.pad(x, [(0, short)] + [(0, 0)] * (x.ndim - 1)), row
        )
        state = add(state, padded, terminals=np.pad(marks, (0, short)), length=len(marks))
    return state


DRAWS = [(0.0, None), (0.9, None), (0.999999, 3), (1.0, None)]  # discount, max_horizon


@pytest.mark.parametrize(("law", "way"), [("episode", "added"), ("transition", "from_host")])
def test_case_21_episodic_draws_are_the_hosts(law, way):
    host, fields, added = filled_host(law)
    buffer, state = EpisodicBuffer.from_host(host)
    if way == "added":
        buffer = EpisodicBuffer(host.capacity, fields, "single", law)
        state = fill_device(buffer, added)

    @jax.jit
    def draw_all(state, words):
        return [
            buffer.sample_from(state, each, discount=discount, max_horizon=cap)
            for each, (discount, cap) in zip(words, DRAWS, strict=True)
        ]

    words, theirs = [], []
    for discount, cap in DRAWS:
        words.append(jnp.moveaxis(next_words(host._arena.random, 5, 40, 3), -1, 1))
        theirs.append(host.sample(40, batches=5, discount=discount, max_horizon=cap))
    for one, other in zip(draw_all(state, words), theirs, strict=True):
        assert_same(one, other)


def test_a_copy_of_a_hosts_buffer_is_a_copy():
    host, _, added = filled_host("episode")
    buffer, state = EpisodicBuffer.from_host(host, max_rows=40)
    before = np.asarray(state.packed).copy()
    host.add_episode(**added[0][0], terminals=added[0][1])
    np.testing.assert_array_equal(state.packed, before)
    after = fill_device(buffer, added[:1]).rows
    state = jax.jit(buffer.add)(
        state, {"obs": {"at": np.zeros((5, 2), np.float32)}, "action": np.zeros(5, np.int32)},
        terminals=np.zeros(5, bool),
    )  # fmt: skip
    assert int(after) == 1
    assert int(state.rows) >= 2
