"""The device's prioritized ring against lists: law, weights, priorities that cannot be."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from jax import lax
from support.device_buffers import (
    CARTPOLE,
    add,
    cartpole,
    compiled_text,
    copies,
    leaves,
    likely,
    sample,
    stack,
    update,
    words_of,
)

from loopless import process
from loopless.reference.replay import PriorityList, TransitionList, importance_weights
from loopless.replay.device import (
    PrioritizedBuffer,
    PrioritizedState,
    RingBuffer,
    prioritized,
)
from loopless.replay.device.prioritized import importance_weights as device_weights

pytestmark = pytest.mark.slow  # XLA compiles a program for nearly every test

KEY = jax.random.key(0)
FIELDS = {"obs": ((3,), np.float32), "number": ((), np.int32)}
FLOATS = ["float32", "float64"]


def rows(first, count):
    numbers = np.arange(first, first + count, dtype=np.int32)
    return {"obs": np.stack([numbers, -numbers, 2 * numbers], 1).astype("f4"), "number": numbers}


def with_priorities(priorities, capacity=None, alpha=1.0, dtype="float64"):
    buffer = PrioritizedBuffer(capacity or len(priorities), FIELDS, alpha=alpha, dtype=dtype)
    state = add(buffer, buffer.init(), rows(0, len(priorities)))
    return buffer, update(buffer, state, np.arange(len(priorities)), np.asarray(priorities))


def held(buffer, state):
    return np.asarray(state.tree[buffer.leaves :])[: int(state.size)]


class DevicePrioritizedMachine(RuleBasedStateMachine):
    """State, list of transitions and list of priorities, driven side by side."""

    @initialize(capacity=st.sampled_from([1, 50]))
    def start(self, capacity, alpha=0.6):
        self.buffer = PrioritizedBuffer(capacity, FIELDS, alpha=alpha)
        self.state, self.number = self.buffer.init(), 0
        self.twin, self.priorities = TransitionList(capacity), PriorityList(capacity, alpha)

    @rule(valid=st.lists(st.booleans(), min_size=20, max_size=20), all_of_them=st.booleans())
    def add(self, valid, all_of_them):
        given = rows(self.number, 20)
        self.state = add(self.buffer, self.state, given, None if all_of_them else np.array(valid))
        for k in range(20):
            if all_of_them or valid[k]:
                self.twin.add({name: array[k] for name, array in given.items()})
                self.priorities.add()
        self.number += 20

    @rule(data=st.data())
    def update(self, data):
        if not int(self.state.size):
            return
        slot = st.integers(-2, int(self.state.size) + 1)
        number = st.integers(0, 64) | st.sampled_from([np.nan, np.inf, -1.0])
        pairs = data.draw(st.lists(st.tuples(slot, number), min_size=12, max_size=12))
        slots, given = [s for s, _ in pairs], [p / 8 for _, p in pairs]
        self.state = update(self.buffer, self.state, np.array(slots), np.array(given))
        fine = [
            (s, p)
            for s, p in zip(slots, given, strict=True)
            if 0 <= s < int(self.state.size) and p >= 0 and p**self.buffer.alpha < np.inf
        ]
        self.priorities.update([s for s, _ in fine], [p for _, p in fine])

    @rule(key=st.integers(0, 1000), batches=st.sampled_from([None, 3]), beta=st.floats(0, 1))
    def sample(self, key, batches, beta):
        priorities = held(self.buffer, self.state)
        drawn = draw(self.buffer, self.state, jax.random.key(key), beta, (5, batches))
        assert drawn["indices"].shape == ((5,) if batches is None else (batches, 5))
        if not priorities.any():
            assert not drawn["weights"].any()
            return
        assert (priorities[drawn["indices"]] > 0).all()
        numbers = [self.twin.at(slot)["number"] for slot in drawn["indices"].reshape(-1).tolist()]
        np.testing.assert_array_equal(drawn["number"].reshape(-1), numbers)
        np.testing.assert_array_equal(drawn["obs"][..., 0].reshape(-1), numbers)
        for slots, weights in zip(
            drawn["indices"].reshape(-1, 5), drawn["weights"].reshape(-1, 5), strict=True
        ):
            total, count = priorities.sum(), len(priorities)
            wanted = importance_weights(priorities[slots].tolist(), total, count, beta)
            np.testing.assert_allclose(weights, wanted, rtol=1e-6)

    @invariant()
    def same_priorities(self):
        if hasattr(self, "state"):
            size = int(self.state.size)
            tree = np.asarray(self.state.tree)
            wanted = self.priorities.slots[:size]
            np.testing.assert_allclose(held(self.buffer, self.state), wanted, rtol=1e-14)
            np.testing.assert_allclose(self.state.peak, self.priorities.peak, rtol=1e-14)
            assert not tree[self.buffer.leaves + size :].any()


draw = jax.jit(lambda buffer, state, key, beta, shape: buffer.sample(
    state, key, *shape, beta=beta), static_argnums=(0, 4))  # fmt: skip
TestDevicePrioritized = DevicePrioritizedMachine.TestCase
TestDevicePrioritized.settings = settings(max_examples=20, stateful_step_count=12)

LAW = np.array([0, 1, 2, 0, 3, 10, 0.5, 4, 0, 0], float)


def counts(buffer, state, batches=4000, key=KEY):
    drawn = np.asarray(sample(buffer, state, key, (8, batches), ())["indices"]).reshape(-1)
    return np.bincount(drawn, minlength=buffer.capacity)


@pytest.mark.parametrize(("alpha", "dtype"), [(0.5, "float32"), (1.0, "float64")])
def test_draws_follow_the_priorities_by_chi_square(alpha, dtype):
    buffer, state = with_priorities(LAW, alpha=alpha, dtype=dtype)
    law = np.where(LAW > 0, LAW**alpha, 0)
    found = counts(buffer, state)
    assert likely(found, law / law.sum())
    assert not likely(found, np.where(LAW > 0, 1, 0) / (LAW > 0).sum())


def test_e19_alpha_0_draws_uniformly_but_never_a_priority_of_0():
    buffer, state = with_priorities(LAW, alpha=0.0)
    assert likely(counts(buffer, state), (LAW > 0) / (LAW > 0).sum())


def test_e19_beta_0_weighs_all_alike():
    buffer, state = with_priorities(LAW)
    assert (draw(buffer, state, KEY, 0.0, (8, None))["weights"] == 1).all()


def test_the_weights_of_the_specification():
    weights = device_weights(jnp.array([1.0, 2, 4, 8]), 0.4)
    np.testing.assert_allclose(weights, [1, 0.757858, 0.574349, 0.435275], atol=5e-7)
    assert weights.dtype == jnp.float32


def test_unnormalised_weights_are_caught():
    unnormalised = (100 * np.array([1.0, 2, 4, 8]) / 50) ** -0.4
    with pytest.raises(AssertionError):
        np.testing.assert_allclose(unnormalised, [1, 0.757858, 0.574349, 0.435275], atol=5e-7)


def test_e20_without_priorities_above_0_rows_are_weighted_0():
    buffer, state = with_priorities(np.zeros(5))
    drawn = sample(buffer, state, KEY, (4,), ())
    assert drawn["indices"].tolist() == [0] * 4
    assert drawn["weights"].tolist() == [0] * 4


@pytest.mark.parametrize("dtype", FLOATS)
def test_every_part_of_the_sum_is_drawn_from_once(dtype):
    buffer, state = with_priorities(np.ones(64), dtype=dtype)
    drawn = sample(buffer, state, KEY, (64, 50), ())["indices"]
    assert (drawn == np.arange(64)).all()


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf, -1.0, 3e38])
def test_a_priority_that_cannot_be_leaves_its_row_as_it_was(bad, dtype):
    buffer, state = with_priorities(LAW, dtype=dtype)
    if bad == 3e38 and dtype == "float64":
        bad = 1.7e308
    changed = update(buffer, state, np.array([5, 2, 5]), np.array([7, bad, bad]))
    wanted = LAW.copy()
    wanted[5] = 7
    np.testing.assert_array_equal(held(buffer, changed), wanted)
    assert changed.peak == state.peak == 10
    assert likely(counts(buffer, changed), wanted / wanted.sum())


@pytest.mark.parametrize("slot", [-1, 6, 9, 10, 2**31 - 1])
def test_a_slot_that_is_not_filled_gets_no_priority(slot):
    buffer, state = with_priorities(LAW[:6], capacity=10)
    changed = update(buffer, state, np.array([slot]), np.array([50.0]))
    np.testing.assert_array_equal(changed.tree[1:], state.tree[1:])
    assert changed.peak == state.peak


def test_e21_the_last_priority_of_a_duplicate_counts():
    buffer, state = with_priorities(LAW)
    changed = update(buffer, state, np.array([1, 4, 1, 1]), np.array([9.0, 8, 7, 6]))
    assert held(buffer, changed)[[1, 4]].tolist() == [6, 8]
    assert prioritized.sum_top(changed.tree)[1] == held(buffer, changed).sum()


def test_new_rows_have_the_largest_priority_given_so_far():
    buffer, state = with_priorities(LAW, alpha=0.5)
    state = update(buffer, state, np.array([5]), np.array([1.0]))  # the largest was 10
    state = add(buffer, state, rows(10, 3))
    np.testing.assert_array_equal(held(buffer, state)[:3], [10**0.5] * 3)


def test_a_row_that_was_overwritten_is_never_drawn_again():
    buffer, state = with_priorities([1e6, 1, 1, 1, 1])
    drawn = sample(buffer, add(buffer, state, rows(5, 1)), KEY, (5, 100), ())
    assert (drawn["indices"] == 0).any()
    assert (drawn["number"] == np.where(drawn["indices"] == 0, 5, drawn["indices"])).all()


MILLIONS = 2**21  # of leaves: eight float32 targets for each


def off_by(located):
    """How far off the law draws are, at most and in parts of it, over the leaves of a subtree.

    `located` maps tree, top, and uint32 words [2, 2¹⁶] that cover the subtree to slots.
    """
    priorities = 1 + np.arange(MILLIONS) % 7 / 10
    tree = prioritized.sum_tree(jnp.asarray(priorities, jnp.float32))
    places = np.arange(2**16, dtype=np.uint64)
    middle = (2**23 + places // 8) << np.uint64(8)  # each of 2¹³ targets, which are 2²⁴ in all
    words = words_of((middle << np.uint64(32)) | (places << np.uint64(16)))
    slots = np.asarray(located(tree, prioritized.sum_top(tree), words))
    inner = np.sort(slots)[slots.size // 4] + np.arange(400)
    found = (slots[:, None] == inner).sum(0)
    wanted = priorities[inner] / priorities.sum() * 2**24 * 8
    return np.abs(found / wanted - 1).max()


def test_float32_draws_leaves_finer_than_its_targets():
    def located(tree, top, words):
        buffer = PrioritizedBuffer(MILLIONS, {"x": ((), np.int32)}, dtype="float32")
        state = PrioritizedState(RingBuffer(1, {"x": ((), np.int32)}).init(), tree, tree[1])
        return jax.jit(buffer.locate)(state, words[:, :, None])[0][:, 0]

    assert off_by(located) < 0.02


def test_draws_by_a_float32_target_alone_are_caught():
    def located(tree, top, words):
        targets = (words[0] >> 8).astype(jnp.float32) * (top[1] * jnp.float32(2.0**-24))
        return jax.jit(prioritized.descend)(tree, top, targets)[0]

    assert off_by(located) > 0.05


@pytest.mark.parametrize("x64", [True, False])
def test_sums_are_as_wide_as_jax_is_set_to(x64):
    with jax.enable_x64(x64):
        buffer = PrioritizedBuffer(4, {"x": ((), np.int32)})
        assert buffer.init().tree.dtype == ("float64" if x64 else "float32")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"alpha": -1}, "alpha must be a finite number of at least 0"),
        ({"alpha": np.nan}, "alpha must be a finite number of at least 0"),
        ({"alpha": "0.6"}, "alpha must be a finite number of at least 0"),
        ({"dtype": "int32"}, "must be float32"),
        ({"dtype": "float16"}, "must be float32"),
    ],
)
def test_a_wrong_declaration_is_refused(options, message):
    with pytest.raises(ValueError, match=message):
        PrioritizedBuffer(10, FIELDS, **options)


@pytest.mark.parametrize(
    ("indices", "priorities", "message"),
    [
        (np.array([1, 2]), np.array([1.0]), "indices has shape"),
        (np.array([1.0]), np.array([1.0]), "expected integers"),
        (np.array([1]), np.array([True]), "expected real numbers"),
    ],
)
def test_priorities_of_another_shape_or_kind_are_refused(indices, priorities, message):
    buffer, state = with_priorities(LAW)
    with pytest.raises(ValueError, match=message):
        buffer.update_priorities(state, indices, priorities)


def test_bytes_are_told_with_the_tree(monkeypatch):
    buffer = PrioritizedBuffer(1024, FIELDS)
    state = buffer.init()
    held_bytes = state.ring.packed.nbytes + state.tree.nbytes
    assert buffer.nbytes == held_bytes
    monkeypatch.setattr(process, "free_memory_bytes", lambda: held_bytes - 1)
    with pytest.raises(ValueError, match="1,024 transitions need"):
        buffer.init()


def test_handles_of_two_kinds_differ():
    assert PrioritizedBuffer(8, FIELDS) != RingBuffer(8, FIELDS)
    assert PrioritizedBuffer(8, FIELDS) == PrioritizedBuffer(8, FIELDS)
    assert len({PrioritizedBuffer(8, FIELDS), PrioritizedBuffer(8, FIELDS)}) == 1


# ── In a graph ─────────────────────────────────────────────────────────────────────────────────

MEMORY = PrioritizedBuffer(10_000, CARTPOLE)


def step(state, number):
    state = MEMORY.add(state, cartpole(jnp.arange(10) + number))
    batch = MEMORY.sample(state, jax.random.fold_in(KEY, number), 32, beta=0.4 + number / 100)
    state = MEMORY.update_priorities(state, batch["indices"], abs(batch["reward"]) + 1e-3)
    return state, sum(jnp.sum(array) for array in batch.values())


def test_a_scan_writes_ring_and_tree_where_they_stand():
    shapes = (10_000, 11), (2 * MEMORY.leaves,)
    assert copies(compiled_text(step, MEMORY.init()), *shapes) == 0


def test_a_tree_read_late_would_be_copied():
    def late(state, number):
        _, drawn = step(state, number)
        return step(state, number)[0], drawn + state.tree[MEMORY.leaves]

    assert copies(compiled_text(late, MEMORY.init()), (2 * MEMORY.leaves,)) > 0


def test_case_20_chunks_of_any_length_draw_the_same():
    run = jax.jit(lambda state, numbers: lax.scan(step, state, numbers))
    state, whole = run(MEMORY.init(), jnp.arange(12))
    other, parts = MEMORY.init(), []
    for chunk in jnp.arange(12).reshape(6, 2):
        other, drawn = run(other, chunk)
        parts.append(drawn)
    assert np.concatenate(parts).tolist() == whole.tolist()
    np.testing.assert_array_equal(state.tree, other.tree)


def test_vmapped_buffers_are_buffers():
    buffer = PrioritizedBuffer(7, FIELDS)

    def run(number, key):
        numbers = number * 100 + jnp.arange(5, dtype=jnp.int32)
        obs = jnp.stack([numbers] * 3, 1).astype(jnp.float32)
        state = buffer.add(buffer.init(), {"obs": obs, "number": numbers})
        state = buffer.update_priorities(state, jnp.arange(5), jnp.arange(5.0) + number)
        return buffer.sample(state, key, 4)

    numbers, keys = jnp.arange(3, dtype=jnp.int32), jax.random.split(KEY, 3)
    together, alone = jax.jit(jax.vmap(run))(numbers, keys), jax.jit(run)
    apart = stack([leaves(alone(number, key)) for number, key in zip(numbers, keys, strict=True)])
    for name, array in apart.items():
        np.testing.assert_array_equal(together[name], array)
