"""Frames that are stored once: what is drawn is what a buffer with two copies of them gives."""

from functools import cache, partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loopless.replay.device import FrameBuffer, PrioritizedBuffer, RingBuffer

SHAPE, CHANNELS = (2, 3), 2
STEPS = 3  # of one add


def fields(stack):
    picture = (*SHAPE, stack * CHANNELS), np.uint8
    flag = (), np.bool_
    return {
        "obs": picture, "action": ((), np.int32), "reward": ((), np.float32), "next_obs": picture,
        "terminated": flag, "truncated": flag,
    }  # fmt: skip


def play(seed, stack, envs, steps, end=0.2):
    """Return transitions [steps, envs, ...] of streams, whose first stacks are anything."""
    rng = np.random.default_rng(seed)
    picture = (*SHAPE, stack * CHANNELS)
    rows = {
        name: np.zeros((steps, envs, *shape), dtype)
        for name, (shape, dtype) in fields(stack).items()
    }
    for env in range(envs):
        obs = rng.integers(0, 256, picture, dtype=np.uint8)
        for t in range(steps):
            frame = rng.integers(0, 256, (*SHAPE, CHANNELS), dtype=np.uint8)
            successor = np.concatenate([obs[..., CHANNELS:], frame], -1)
            ends = rng.random() < end
            late = rng.random() < 0.5
            rows["obs"][t, env], rows["next_obs"][t, env] = obs, successor
            rows["terminated"][t, env], rows["truncated"][t, env] = ends and late, ends and not late
            rows["reward"][t, env], rows["action"][t, env] = rng.normal(), t
            obs = rng.integers(0, 256, picture, dtype=np.uint8) if ends else successor
    return rows


@cache
def buffers(kind, capacity, stack, envs, n_step=1):
    options = {"n_step": n_step, "gamma": 0.9} if n_step > 1 else {}
    plain = kind(capacity, fields(stack), envs=envs, **options)
    once = FrameBuffer(plain, stack)
    sample = partial(jax.jit, static_argnums=2)
    return [(b, jax.jit(b.add), jax.jit(b.gather), sample(b.sample)) for b in (plain, once)]


def fill(pair, rows):
    """Add all rows to both buffers; return their states."""
    states = [buffer.init() for buffer, *_ in pair]
    for start in range(0, len(rows["reward"]), STEPS):
        part = {name: x[start : start + STEPS] for name, x in rows.items()}
        states = [add(state, part) for state, (_, add, *_) in zip(states, pair, strict=True)]
    return states


def check(pair, rows, seed=0):
    """Compare every transition that is left, and a draw if none had to leave early."""
    plain, once = states = fill(pair, rows)
    capacity, ring = pair[0][0].capacity, getattr(plain, "ring", plain)
    assert int(once.size) > 0
    ages = np.arange(int(once.size))
    slots = (int(ring.head) - 1 - ages) % capacity
    padded = np.resize(slots, capacity)  # one shape, and so one program
    expected, received = (
        gather(state, padded) for state, (*_, gather, _) in zip(states, pair, strict=True)
    )
    compare(received, expected)
    drawn = [
        sample(x, jax.random.key(seed), 8) for x, (*_, sample) in zip(states, pair, strict=True)
    ]
    if int(once.size) == int(plain.size):
        compare(drawn[1], drawn[0])
    assert set(np.asarray(drawn[1]["indices"]).tolist()) <= set(slots.tolist())
    return once


def compare(received, expected):
    assert received.keys() == expected.keys()
    for name, array in expected.items():
        np.testing.assert_array_equal(received[name], array, err_msg=name)


CASES = st.sampled_from(
    [(RingBuffer, 7, 3, 1), (RingBuffer, 12, 2, 2), (PrioritizedBuffer, 11, 1, 1)]
)


@pytest.mark.slow
@settings(max_examples=25, deadline=None)
@given(case=CASES, seed=st.integers(0, 2**20), adds=st.integers(1, 12), end=st.floats(0, 0.9))
def test_draws_are_those_of_two_copies(case, seed, adds, end):
    _, _, stack, envs = case
    rows = play(seed, stack, envs, STEPS * adds, end)
    check(buffers(*case), rows, seed)


def test_long_episodes_leave_room_for_all_transitions():
    rows = play(1, 3, 1, 60, end=0.0)
    state = check(buffers(RingBuffer, 7, 3, 1), rows)
    assert int(state.size) == 7


def test_short_episodes_drop_the_oldest_transitions_and_their_priorities():
    kind, capacity, stack = PrioritizedBuffer, 11, 1
    pair = buffers(kind, capacity, stack, 1)
    state = check(pair, play(2, stack, 1, 30, end=1.0))
    assert 0 < int(state.size) < capacity
    leaves = state.inner.tree[-(state.inner.tree.size // 2) :]
    assert int((leaves > 0).sum()) == int(state.size)


@pytest.mark.slow
def test_windows_of_several_steps_end_with_the_right_successor():
    check(buffers(RingBuffer, 12, 2, 1, 3), play(3, 2, 1, 24, end=0.1))


@pytest.mark.slow
def test_steps_that_are_not_valid_take_no_frame():
    pair = buffers(RingBuffer, 7, 3, 1)
    rows = play(4, 3, 1, 6, end=0.3)
    filler = {name: np.ones_like(x[:1]) for name, x in rows.items()}
    mixed = {name: np.concatenate([x, filler[name]]) for name, x in rows.items()}
    valid = np.array([[True]] * 6 + [[False]])
    _, once = (buffer for buffer, *_ in pair)
    left_out = jax.jit(once.add)(once.init(), mixed, valid)
    plain = jax.jit(once.add)(once.init(), rows)
    for x, y in zip(jax.tree.leaves(left_out), jax.tree.leaves(plain), strict=True):
        np.testing.assert_array_equal(x, y)


@pytest.mark.slow
def test_counting_frames_starts_again_without_a_trace():
    (_, add, *_), (once, add_once, gather, _) = buffers(RingBuffer, 7, 3, 1)
    rows = play(5, 3, 1, 12, end=0.1)
    near = once.init()._replace(written=jnp.uint32(once._period - 5))
    state, plain = near, buffers(RingBuffer, 7, 3, 1)[0][0].init()
    for start in range(0, 12, STEPS):
        part = {name: x[start : start + STEPS] for name, x in rows.items()}
        state, plain = add_once(state, part), add(plain, part)
    assert int(state.written) < 100
    slots = (int(plain.head) - 1 - np.arange(int(state.size))) % 7
    slots = np.resize(slots, 7)
    compare(gather(state, slots), buffers(RingBuffer, 7, 3, 1)[0][2](plain, slots))


def crosses_the_start(self, stream, step):
    """Link the first frames of an episode to the last frame of the one before."""
    written, newest, ended = stream
    return PLACE(self, (written, newest, jnp.zeros_like(ended)), step)


def forgets_overwritten_frames(self, state, most):
    return state


PLACE = FrameBuffer._place
MUTANTS = {
    "a stack crosses an episode's start": ("_place", crosses_the_start),
    "transitions outlive their frames": ("_drop", forgets_overwritten_frames),
}


@pytest.mark.slow
@pytest.mark.parametrize("mutant", MUTANTS)
def test_mutants_are_caught(mutant, monkeypatch):
    monkeypatch.setattr(FrameBuffer, *MUTANTS[mutant])
    pair = buffers.__wrapped__(RingBuffer, 7, 3, 1)
    with pytest.raises(AssertionError):
        check(pair, play(6, 3, 1, 30, end=0.9))


def test_a_successor_beyond_the_seam_is_caught(monkeypatch):
    """A frame's slot that does not begin again at 0 is outside of the ring."""
    monkeypatch.setattr(FrameBuffer, "_slot", lambda self, number: number.astype(jnp.int32))
    with pytest.raises(AssertionError):
        check(buffers.__wrapped__(RingBuffer, 7, 3, 1), play(1, 3, 1, 60, end=0.0))


def test_100_000_atari_transitions_take_three_quarters_of_a_gigabyte():
    obs = (84, 84, 4), np.uint8
    plain = RingBuffer(100_000, fields(4) | {"obs": obs, "next_obs": obs})
    assert FrameBuffer(plain, 4).nbytes <= 0.75e9
    assert plain.nbytes > 5.6e9


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"stack": 4}, "last axis is not 4 frames"),
        ({"stack": 0}, "stack must be"),
    ],
)
def test_wrong_stacks_are_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        FrameBuffer(RingBuffer(7, fields(3)), **changes)


def test_fields_without_successors_are_refused():
    with pytest.raises(ValueError, match="obs and next_obs"):
        FrameBuffer(RingBuffer(7, {"obs": ((2, 2, 3), np.uint8)}), 3)
