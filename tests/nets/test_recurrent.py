"""Recurrent cores: the formulas, and unrolling against a loop that resets memory by hand."""

import functools

import equinox as eqx
import jax
import numpy as np
import pytest
from support.compare import assert_close

from loopless.nets import recurrent
from loopless.nets.recurrent import CORES, forget, unroll

pytestmark = pytest.mark.slow  # JAX compiles each network

INPUTS, WIDTH, TIME, ENVS = 3, 5, 6, 4
STARTS = np.zeros((TIME, ENVS), bool)
STARTS[0, 0] = STARTS[3, 1] = STARTS[3, 2] = STARTS[4, 2] = STARTS[5, 3] = True


@functools.cache
def core(kind):
    """Parameters in float64, by NumPy: JAX would compile a generator for every shape."""
    shapes = eqx.filter_eval_shape(CORES[kind], INPUTS, WIDTH, jax.random.key(0))
    rng = np.random.default_rng(4)
    return jax.tree.map(lambda x: rng.normal(size=x.shape), shapes)


def inputs():
    return np.random.default_rng(5).normal(size=(TIME, ENVS, INPUTS))


def memory(kind):
    """What some earlier window left behind: h [ENVS, WIDTH], or h and c."""
    h, c = np.random.default_rng(6).normal(size=(2, ENVS, WIDTH))
    return h if kind == "gru" else (h, c)


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def plain_step(kind, memory, row):
    """One env's memory after one row, gate by gate."""
    net = core(kind)
    x = row @ np.asarray(net.inputs.weight) + np.asarray(net.inputs.bias)
    x = [x[i : i + WIDTH] for i in range(0, len(x), WIDTH)]
    h = memory if kind == "gru" else memory[0]
    u = h @ np.asarray(net.recurrent)
    u = [u[i : i + WIDTH] for i in range(0, len(u), WIDTH)]
    if kind == "gru":
        reset, keep = sigmoid(x[0] + u[0]), sigmoid(x[1] + u[1] + 1)
        new = np.tanh(x[2] + reset * (u[2] + np.asarray(net.bias)))
        return keep * h + (1 - keep) * new
    write, keep, show = sigmoid(x[0] + u[0]), sigmoid(x[1] + u[1] + 1), sigmoid(x[2] + u[2])
    c = keep * memory[1] + write * np.tanh(x[3] + u[3])
    return show * np.tanh(c), c


def plain_unroll(kind, memory, x, starts):
    """The memories after each row: one env, one step at a time, resets by hand."""
    parts = [memory] if kind == "gru" else list(memory)
    out = [np.zeros((TIME, ENVS, WIDTH)) for _ in parts]
    for env in range(ENVS):
        now = [part[env] for part in parts]
        for t in range(TIME):
            if starts[t, env]:
                now = [np.zeros(WIDTH) for _ in parts]
            after = plain_step(kind, now[0] if kind == "gru" else now, x[t, env])
            now = [after] if kind == "gru" else list(after)
            for kept, part in zip(out, now, strict=True):
                kept[t, env] = part
    return out[0] if kind == "gru" else tuple(out)


@functools.cache
def compiled(kind):
    return jax.jit(lambda memory, x, starts: unroll(core(kind), memory, x, starts))


def assert_same(ours, expected):
    for one, other in zip(jax.tree.leaves(ours), jax.tree.leaves(expected), strict=True):
        assert_close(one, other)


@pytest.mark.parametrize("kind", CORES)
def test_unrolled_memory_is_that_of_the_plain_loop_with_resets_by_hand(kind):
    ours = compiled(kind)(memory(kind), inputs(), STARTS)
    assert_same(ours, plain_unroll(kind, memory(kind), inputs(), STARTS))


@pytest.mark.parametrize("kind", CORES)
def test_memory_that_leaks_over_a_start_is_seen(kind, monkeypatch):
    monkeypatch.setattr(recurrent, "forget", lambda memory, starts: memory)
    leaking = jax.jit(lambda *args: unroll(core(kind), *args))(memory(kind), inputs(), STARTS)
    expected = plain_unroll(kind, memory(kind), inputs(), STARTS)
    with pytest.raises(AssertionError):
        assert_same(leaking, expected)


@pytest.mark.parametrize("kind", CORES)
def test_a_window_split_in_two_with_memory_carried_changes_nothing(kind):
    whole = compiled(kind)(memory(kind), inputs(), STARTS)
    first = compiled(kind)(memory(kind), inputs()[:3], STARTS[:3])
    carried = jax.tree.map(lambda part: np.asarray(part)[-1], first)
    second = compiled(kind)(carried, inputs()[3:], STARTS[3:])
    assert_same(jax.tree.map(lambda *x: np.concatenate(x), first, second), whole)


@pytest.mark.parametrize("kind", CORES)
def test_no_gradient_crosses_a_start(kind):
    @jax.jit
    @jax.grad
    def gradient(memory):
        last = unroll(core(kind), memory, inputs(), starts)
        return sum(part[-1].sum() for part in jax.tree.leaves(last))

    starts = np.zeros((TIME, ENVS), bool)
    starts[3, :2] = True
    for part in jax.tree.leaves(gradient(memory(kind))):
        assert not np.any(part[:2])
        assert np.all(part[2:])


def test_what_is_forgotten_is_zero_whatever_it_was():
    kept = np.array([[np.nan, np.inf], [1.0, 2.0]])
    np.testing.assert_array_equal(forget(kept, np.array([True, False])), [[0, 0], [1, 2]])


@pytest.mark.parametrize("kind", CORES)
def test_a_memory_of_nothing_is_zeros(kind):
    fresh = jax.tree.leaves(core(kind).memory(2))
    assert all(part.shape == (2, WIDTH) and not np.any(part) for part in fresh)
    assert core(kind).read(core(kind).memory(2)).shape == (2, WIDTH)
