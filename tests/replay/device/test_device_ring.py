"""The device's uniform ring against a list of transitions, and what its handle refuses."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from support.device_buffers import (
    CARTPOLE,
    FIELDS,
    GAMMA,
    add,
    cartpole,
    check_batch,
    compiled_text,
    copies,
    gather,
    leaves,
    likely,
    sample,
    stack,
    transition,
)

from loopless import process
from loopless.reference.replay import TransitionList
from loopless.replay.device import RingBuffer, random_words
from loopless.replay.device.ring import Ring

pytestmark = pytest.mark.slow

KEY = jax.random.key(0)
ENDS = ["", "", "terminated", "truncated"]
# JAX compiles for each shape: capacity, envs, n and the sizes of blocks come from a short list.
CONFIGS = [(1, 1, 1), (11, 1, 3), (11, 3, 3)]
MANY = 104  # rows that are passed to fill a buffer, valid or not


def make(capacity=50, **options):
    return RingBuffer(capacity, FIELDS, **options)


def filled(count, capacity=50, ends=(), **options):
    """A buffer with transitions 0, 1, …, its state and its twin."""
    buffer, twin = make(capacity, **options), TransitionList(capacity)
    rows = [transition(n, ends[n] if n < len(ends) else "") for n in range(MANY)]
    for row in rows[:count]:
        twin.add(row)
    return buffer, add(buffer, buffer.init(), stack(rows), np.arange(MANY) < count), twin


class DeviceRingMachine(RuleBasedStateMachine):
    """State and list of transitions, driven side by side; every slot is looked at, every time."""

    @initialize(config=st.sampled_from(CONFIGS))
    def start(self, config):
        capacity, self.envs, self.n = config
        self.buffer = make(capacity, n_step=self.n, gamma=GAMMA, envs=self.envs)
        self.state, self.number = self.buffer.init(), 0
        self.twin = TransitionList(capacity, self.envs)

    def rows(self, ends):
        self.number += len(ends)
        return [transition(self.number - len(ends) + k, end) for k, end in enumerate(ends)]

    @rule(
        ends=st.lists(st.sampled_from(ENDS), min_size=24, max_size=24),
        count=st.sampled_from([3, 24]),
    )
    def add_block(self, ends, count):
        rows = self.rows(ends[:count])
        self.state = add(self.buffer, self.state, stack(rows))
        for row in rows:
            self.twin.add(row)

    @rule(
        ends=st.lists(st.sampled_from(ENDS), min_size=24, max_size=24),
        valid=st.lists(st.booleans(), min_size=24, max_size=24),
    )
    def add_some_of_a_block(self, ends, valid):
        if self.envs > 1:
            return
        rows = self.rows(ends)
        self.state = add(self.buffer, self.state, stack(rows), np.array(valid))
        for row, counts in zip(rows, valid, strict=True):
            if counts:
                self.twin.add(row)

    @rule(end=st.sampled_from(ENDS))
    def add_one(self, end):
        rows = self.rows([end] * self.envs)
        one = rows[0] if self.envs == 1 else stack(rows)
        self.state = add(self.buffer, self.state, one)
        for row in rows:
            self.twin.add(row)

    @invariant()
    def every_slot_is_the_twins(self):
        if hasattr(self, "state"):
            size = len(self.twin.rows)
            assert int(self.state.size) == size
            slots = np.arange(self.buffer.capacity) % max(size, 1)
            if size:
                check_batch(gather(self.buffer, self.state, slots), self.twin, self.n)


TestDeviceRing = DeviceRingMachine.TestCase
TestDeviceRing.settings = settings(max_examples=20, stateful_step_count=12)


@pytest.mark.parametrize(("batches", "newest"), [(None, 0), (3, 2), (None, 5)])
def test_a_batch_is_of_live_rows_with_the_newest_last(batches, newest):
    buffer, state, twin = filled(63)
    drawn = sample(buffer, state, KEY, (5, batches), (("newest", newest),))
    assert drawn["indices"].shape == ((5,) if batches is None else (batches, 5))
    check_batch(drawn, twin)
    wanted = twin.newest(newest)
    assert (drawn["indices"].reshape(-1, 5)[:, 5 - newest :] == np.array(wanted, int)).all()


def test_newest_of_an_underfilled_ring_are_live_rows():
    buffer, state, twin = filled(2)
    check_batch(sample(buffer, state, KEY, (5,), (("newest", 5),)), twin)


def test_an_empty_ring_gives_zeros():
    buffer = make()
    drawn = leaves(sample(buffer, buffer.init(), KEY, (4,), ()))
    assert not any(array.any() for array in drawn.values())
    assert not buffer.can_sample(buffer.init())


@pytest.mark.parametrize("x64", [True, False])
@pytest.mark.parametrize("count", [37, 73])
def test_draws_are_uniform_by_chi_square(count, x64):
    with jax.enable_x64(x64):
        buffer = RingBuffer(50, CARTPOLE)
        rows, valid = cartpole(jnp.arange(MANY)), np.arange(MANY) < count
        state = add(buffer, buffer.init(), rows, valid)
        drawn = sample(buffer, state, jax.random.key(count), (32, 1000), ())["indices"]
        size = min(50, count)
        law = np.arange(50) < size
        assert likely(np.bincount(np.asarray(drawn).reshape(-1), minlength=50), law / size)


def test_a_slot_that_never_comes_out_is_caught_by_chi_square():
    buffer = RingBuffer(50, CARTPOLE)
    state = add(buffer, buffer.init(), cartpole(jnp.arange(MANY)), np.arange(MANY) < 50)
    state = state._replace(size=jnp.int32(49))
    drawn = np.asarray(sample(buffer, state, KEY, (32, 1000), ())["indices"])
    assert not likely(np.bincount(drawn.reshape(-1), minlength=50), np.full(50, 1 / 50))


@pytest.mark.parametrize("row", [23, 49])
def test_the_oldest_row_gives_way(row):
    buffer, state, twin = filled(50 + row + 1)
    drawn = gather(buffer, state, np.array([row, (row + 1) % 50]))
    assert drawn["action"].tolist() == [50 + row, row + 1 if row < 49 else 50]
    check_batch(drawn, twin)


# ── n-step windows: the cases E5, E6, E7 and E23 of the specification ──────────────────────────


def window(ends, slot, count=None):
    count = len(ends) if count is None else count
    buffer, state, twin = filled(count, 10, ends, n_step=3, gamma=GAMMA)
    drawn = gather(buffer, state, np.array([slot]))
    check_batch(drawn, twin, 3)
    return {name: array[0] for name, array in leaves(drawn).items()}


def test_e5_a_window_stops_at_a_termination():
    drawn = window(["", "terminated", "", ""], 0)
    np.testing.assert_allclose(drawn["reward"], np.sin(0) + GAMMA * np.sin(1))
    assert drawn["terminated"]


def test_e6_a_window_stops_at_a_truncation_and_keeps_its_final_observation():
    drawn = window(["", "truncated", "", ""], 0)
    np.testing.assert_allclose(drawn["discount"], GAMMA**2)
    assert not drawn["terminated"]
    assert drawn["next_obs/near"][0] == 1001


@pytest.mark.parametrize(("slot", "steps"), [(7, 2), (8, 1), (6, 3), (9, 3), (5, 3)])
def test_e7_a_window_ends_with_the_newest_row(slot, steps):
    drawn = window([], slot, count=19)  # the newest row, number 18, stands in slot 8
    np.testing.assert_allclose(drawn["discount"], GAMMA**steps)


def test_e23_the_next_observation_of_the_newest_row_is_its_own():
    drawn = window([], 8, count=19)
    assert drawn["next_obs/near"][0] == 1018


class CrossesEnds(Ring):
    """A mutant: windows go on over ends."""

    def _gather(self, state, indices, gamma=None):
        rows = self.layout.read(state.packed, state.large, jnp.arange(self.capacity), ["reward"])
        slots = jnp.asarray(indices)
        total = sum(GAMMA**k * rows["reward"][(slots + k) % self.capacity] for k in range(3))
        found = super()._gather(state, indices, gamma)
        return found | {"reward": total}


def test_a_window_across_a_truncation_is_caught():
    class Mutant(CrossesEnds, RingBuffer):
        pass

    twin = TransitionList(10)
    rows = [transition(n, "truncated" if n == 1 else "") for n in range(6)]
    for row in rows:
        twin.add(row)
    mutant = Mutant(10, FIELDS, n_step=3, gamma=GAMMA)
    state = add(mutant, mutant.init(), stack(rows))
    with pytest.raises(AssertionError, match="Not equal to tolerance"):
        check_batch(gather(mutant, state, np.array([0])), twin, 3)


# ── What is stored ─────────────────────────────────────────────────────────────────────────────

DTYPES = ["bool", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64",
          "float16", "bfloat16", "float32", "float64", "complex64", "float8_e4m3fn"]  # fmt: skip


@pytest.mark.parametrize("shape", [(), (3,), (2, 0), (9, 9)])
def test_every_dtype_comes_out_as_it_went_in(shape):
    random, rows = np.random.default_rng(0), {}
    for name in DTYPES:
        bits = random.integers(0, 256, (3, *shape, jnp.dtype(name).itemsize)).astype(np.uint8)
        rows[name] = bits[..., 0] > 127 if name == "bool" else bits.view(name)[..., 0]
    buffer = RingBuffer(4, {name: (shape, jnp.dtype(name)) for name in DTYPES})
    drawn = gather(buffer, add(buffer, buffer.init(), rows), np.array([2, 0]))
    for name, array in rows.items():
        assert drawn[name].dtype == array.dtype
        np.testing.assert_array_equal(drawn[name], array[[2, 0]], err_msg=name)


def test_e25_e26_nothing_is_narrowed():
    buffer = RingBuffer(2, {"image": ((2,), np.uint8), "obs": ((2,), np.float32)})
    rows = {"image": np.array([[255, 0]], np.uint8), "obs": np.array([[7e4, 2049]], np.float32)}
    drawn = gather(buffer, add(buffer, buffer.init(), rows), np.array([0]))
    assert drawn["image"].tolist() == [[255, 0]]
    assert drawn["obs"].tolist() == [[70000.0, 2049.0]]


def test_steps_by_envs_are_rows_step_after_step():
    buffer = make(24, envs=3)
    rows = stack([transition(n) for n in range(12)])
    blocks = jax.tree.map(lambda x: x.reshape(4, 3, *x.shape[1:]), rows)
    first, second = add(buffer, buffer.init(), rows), add(buffer, buffer.init(), blocks)
    for x, y in zip(jax.tree.leaves(first), jax.tree.leaves(second), strict=True):
        np.testing.assert_array_equal(x, y)


def test_a_block_of_more_rows_than_slots_writes_no_slot_twice():
    buffer = RingBuffer(7, CARTPOLE)
    valid = np.arange(24) % 2 == 0
    _, slots = jax.jit(buffer._append)(buffer.init(), cartpole(jnp.arange(24)), valid)
    assert sorted(slots.tolist()) == [*range(7), *[7] * 17]  # 7 is none: rows left out


def test_fields_are_those_of_an_example():
    buffer = RingBuffer.like({"obs": np.zeros(4, np.float32), "deep": {"x": np.int8(1)}}, 9)
    assert buffer == RingBuffer(9, {"obs": ((4,), "float32"), "deep": {"x": ((), "int8")}})


def test_a_handle_is_a_static_argument_that_compiles_once():
    traced = []

    def step(buffer, state):
        traced.append(buffer)
        return buffer.add(state, cartpole(jnp.arange(2)))

    run = jax.jit(step, static_argnums=0)
    for _ in range(3):
        run(RingBuffer(5, CARTPOLE), RingBuffer(5, CARTPOLE).init())
    assert len(traced) == 1
    assert dataclasses.replace(traced[0], capacity=6) == RingBuffer(6, CARTPOLE)
    assert RingBuffer(6, dict(traced[0].fields)) == RingBuffer(6, CARTPOLE)


def test_bytes_are_told_and_right():
    buffer = make(1000)
    held = jax.tree.leaves(buffer.init()._replace(head=None, size=None))
    assert buffer.nbytes == sum(array.nbytes for array in held)
    assert "1,000 transitions, 644.0 kB: obs/near (3,) float32" in repr(buffer)


def test_what_does_not_fit_is_refused_before_it_is_allocated(monkeypatch):
    monkeypatch.setattr(process, "free_memory_bytes", lambda: 10**6)
    with pytest.raises(ValueError, match=r"1,000,000 transitions need 644.0 MB.*1.0 MB is free"):
        make(1_000_000).init()
    make(1000).init()


# ── Refusals ───────────────────────────────────────────────────────────────────────────────────


def test_all_that_is_wrong_with_rows_is_said_at_once():
    buffer = make(10)
    rows = stack([transition(n) for n in range(3)])
    rows["action"] = rows["action"].astype(np.int32)
    rows["reward"] = rows["reward"][:2]
    del rows["truncated"]
    rows["tuncated"] = rows["terminated"]
    with pytest.raises(ValueError, match=r"RingBuffer\.add: ") as caught:
        buffer.add(buffer.init(), rows)
    for part in (
        "truncated is missing",
        "tuncated is unknown (did you mean truncated?)",
        "action has dtype int32, expected int16",
        "reward has shape (2,), expected (3,)",
    ):
        assert part in str(caught.value)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"capacity": 0}, "capacity must be an integer of at least 1"),
        ({"capacity": 2**31}, "must be from envs=1 to 2³¹ − 1"),
        ({"capacity": 4, "envs": 5}, "must be from envs=5"),
        ({"n_step": 3}, "needs gamma from 0 to 1"),
        ({"n_step": 0}, "n_step must be an integer of at least 1"),
        ({"fields": {}}, "fields is empty"),
        ({"fields": {"indices": ((), np.int32)}}, "a name that the buffer uses itself"),
        ({"fields": {"x": ((), "datetime64[s]")}}, "only numbers are stored"),
    ],
)
def test_a_wrong_declaration_is_refused(options, message):
    with pytest.raises(ValueError, match=message):
        RingBuffer(**({"capacity": 10, "fields": FIELDS} | options))


def test_64_bits_are_refused_where_jax_would_narrow_them():
    with (
        jax.enable_x64(False),
        pytest.raises(ValueError, match=r"reward is .*would narrow float64"),
    ):
        make()


@pytest.mark.parametrize(
    ("value", "dtype", "fine"),
    [
        (1, np.float32, True),
        (1.5, np.float32, True),
        (1.5, np.int32, False),
        (np.float64(1), np.float32, False),
        (jnp.float32(1), np.float64, True),
        (np.int8(1), np.float32, True),
        (np.int64(1), np.float64, False),
        (True, np.int32, True),
    ],
)
def test_only_what_loses_nothing_is_converted(value, dtype, fine):
    buffer = RingBuffer(3, {"x": ((), dtype)})
    state = buffer.init()
    if fine:
        jax.eval_shape(lambda: buffer.add(state, {"x": value}))
    else:
        with pytest.raises(TypeError, match="x has dtype"):
            buffer.add(state, {"x": value})


@pytest.mark.parametrize("leading", [(4,), (2, 2), (1, 1, 3)])
def test_parts_of_steps_are_refused(leading):
    buffer = RingBuffer(12, {"x": ((), np.float32)}, envs=3)
    with pytest.raises(ValueError, match="leading shape"):
        buffer.add(buffer.init(), {"x": np.zeros(leading, np.float32)})


def test_streams_that_would_shift_are_refused():
    buffer = make(12, n_step=2, gamma=0.9, envs=2)
    rows = stack([transition(n) for n in range(2)])
    with pytest.raises(ValueError, match="shift streams"):
        buffer.add(buffer.init(), rows, np.array([True, False]))


@pytest.mark.parametrize(("shape", "newest"), [((0,), 0), ((4,), 5), ((4, 0), 0), ((2.5,), 0)])
def test_a_draw_of_no_shape_is_refused(shape, newest):
    buffer, state, _ = filled(5)
    with pytest.raises(ValueError, match=r"RingBuffer\.sample"):
        buffer.sample(state, KEY, *shape, newest=newest)


# ── In a graph ─────────────────────────────────────────────────────────────────────────────────

RING = RingBuffer(10_000, CARTPOLE)


def add_and_sample(state, step):
    state = RING.add(state, cartpole(jnp.arange(10) + step))
    batch = RING.sample(state, jax.random.fold_in(KEY, step), 32)
    return state, sum(jnp.sum(array) for array in batch.values())


def sample_and_add(state, step):
    batch = RING.sample(state, jax.random.fold_in(KEY, step), 32)
    state = RING.add(state, cartpole(jnp.arange(10) + step))
    return state, sum(jnp.sum(array) for array in batch.values())


def test_a_scan_writes_the_ring_where_it_stands():
    assert copies(compiled_text(add_and_sample, RING.init()), (10_000, 11)) == 0


def test_a_copy_would_be_seen():
    assert copies(compiled_text(sample_and_add, RING.init()), (10_000, 11)) > 0


def test_words_of_a_whole_chunk_draw_what_single_keys_draw():
    buffer, state, _ = filled(50)
    keys = jax.vmap(lambda step: jax.random.fold_in(KEY, step))(jnp.arange(3))
    words = jax.vmap(lambda key: random_words(key, (4,)))(keys)
    for key, each in zip(keys, words, strict=True):
        drawn = jax.jit(buffer.sample_from)(state, each)
        wanted = sample(buffer, state, key, (4,), ())
        np.testing.assert_array_equal(drawn["indices"], wanted["indices"])


def test_vmapped_rings_are_rings():
    buffer = RingBuffer(7, CARTPOLE)
    rows = jax.vmap(cartpole)(jnp.arange(3)[:, None] * 100 + jnp.arange(5))
    keys = jax.random.split(KEY, 3)

    def run(rows, key):
        state = buffer.add(buffer.add(buffer.init(), rows), rows)
        return buffer.sample(state, key, 4)

    together, run = jax.jit(jax.vmap(run))(rows, keys), jax.jit(run)
    for k in range(3):
        alone = run(jax.tree.map(lambda x, k=k: x[k], rows), keys[k])
        for name, array in alone.items():
            np.testing.assert_array_equal(together[name][k], array)
