"""Every engine of the scan gives the loop's numbers: walks, directions, block sizes, devices."""

import jax
import jax.numpy as jnp
import jax.test_util
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from support.compare import assert_close

from loopless import reference
from loopless.arrays.scan import jax as jax_scan
from loopless.arrays.scan import torch as torch_scan
from loopless.arrays.scan import torch_blocked
from loopless.arrays.scan import triton as triton_scan
from loopless.compiled import scan as numba_scan


def numba_engine(a, b, init, reverse, lagged):
    out = np.empty_like(b)
    numba_scan.affine(
        *b.shape, *(np.ascontiguousarray(x).ravel() for x in (a, b, init)), out.ravel(),
        reverse, lagged,
    )  # fmt: skip
    return out


def torch_engine(function):
    def engine(a, b, init, reverse, lagged):
        tensors = [torch.from_numpy(np.ascontiguousarray(x)) for x in (a, b, init)]
        with np.errstate(invalid="ignore"):  # Triton's interpreter is NumPy, which warns of 0·∞
            return function(*tensors, reverse=reverse, lagged=lagged).numpy()

    return engine


def jax_engine(function):
    def engine(a, b, init, reverse, lagged):
        a, b = (np.moveaxis(x, 1, 0) for x in (a, b))  # NumPy's: JAX would compile each
        compiled = jax.jit(function, static_argnames="reverse")
        return np.moveaxis(np.asarray(compiled(a, b, init, reverse=reverse)), 0, 1)

    return engine


BOTH_WAYS = {
    "numba": numba_engine,
    "torch operator": torch_engine(torch_scan.affine_scan),
    "torch blocked": torch_engine(torch_scan.blocked_scan),
    "triton in its interpreter": torch_engine(triton_scan.affine_scan),
}
ENGINES = BOTH_WAYS | {
    "jax sequential": jax_engine(jax_scan.sequential_scan),
    "jax associative": jax_engine(jax_scan.associative_scan),
}


def engines(names):
    """Parametrize a test by engines; the quick lane has those that need no compiler of a device."""
    return pytest.mark.parametrize(
        "engine",
        [
            pytest.param(ENGINES[name], id=name, marks=[pytest.mark.slow] if other else [])
            for name in names
            for other in [name not in ("numba", "torch operator", "torch blocked")]
        ],
    )


every_engine, both_ways = engines(ENGINES), engines(BOTH_WAYS)


def problem(outer, steps, inner, seed=0, scale=1.0):
    rng = np.random.default_rng(seed)
    a = rng.uniform(-scale, scale, (outer, steps, inner))
    a[rng.random(a.shape) < 0.2] = 0.0
    return a, rng.standard_normal(a.shape), rng.standard_normal((outer, inner))


def expected(a, b, init, reverse, lagged):
    if not lagged:
        return reference.affine_scan(a, b, init, reverse=reverse, time_axis=1)
    # y_t = b_t + a_{t∓1} y_{t∓1}, and init enters the first row of the walk with weight 1
    edge = np.ones_like(init)[:, None]
    shifted = [a[:, 1:], edge] if reverse else [edge, a[:, :-1]]
    return reference.affine_scan(np.concatenate(shifted, 1), b, init, reverse=reverse, time_axis=1)


SHAPES = [(1, 1, 1), (1, 7, 3), (2, 33, 5), (3, 64, 1), (1, 65, 40), (2, 130, 2)]


@pytest.mark.parametrize("reverse", [True, False])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@every_engine
def test_equals_the_loop(engine, shape, reverse):
    arguments = problem(*shape)
    assert_close(engine(*arguments, reverse, False), expected(*arguments, reverse, False))


@pytest.mark.parametrize("reverse", [True, False])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@both_ways
def test_lagged_equals_the_loop(engine, shape, reverse):
    arguments = problem(*shape, seed=1)
    assert_close(engine(*arguments, reverse, True), expected(*arguments, reverse, True))


@every_engine
def test_case_20_coefficients_above_one_and_runs_of_zero(engine):
    a, b, init = problem(1, 40, 3, seed=2, scale=1.6)
    a[:, 10:20] = 0.0
    assert_close(engine(a, b, init, True, False), expected(a, b, init, True, False))


@every_engine
@pytest.mark.parametrize("poison", [np.nan, np.inf])
def test_a_coefficient_of_zero_lets_nothing_through(engine, poison):
    a, b, init = problem(1, 40, 3, seed=3)
    a[:, 20] = 0.0
    clean = engine(a, b, init, True, False)
    b[:, 25] = poison
    init[:] = poison
    np.testing.assert_array_equal(engine(a, b, init, True, False)[:, :21], clean[:, :21])


@pytest.mark.parametrize("block", [1, 2, 3, 32, 40, 41])
@pytest.mark.parametrize("steps", [31, 32, 33, 40])
def test_case_19_any_block_length_gives_the_same(block, steps, monkeypatch):
    arguments = problem(2, steps, 3, seed=4)
    want = expected(*arguments, True, False)
    monkeypatch.setattr(torch_blocked, "BLOCK", block)
    assert_close(BOTH_WAYS["torch blocked"](*arguments, True, False), want)


@pytest.mark.slow
@pytest.mark.parametrize("chunk", [1, 2, 4, 32, 64])  # powers of two, as Triton needs them
@pytest.mark.parametrize("steps", [31, 32, 33, 40])
def test_case_19_any_chunk_of_triton_gives_the_same(chunk, steps, monkeypatch):
    arguments = problem(2, steps, 3, seed=4)
    monkeypatch.setattr(triton_scan, "CHUNK", chunk)
    got = BOTH_WAYS["triton in its interpreter"](*arguments, True, False)
    assert_close(got, expected(*arguments, True, False))


@given(split=st.integers(0, 20), reverse=st.booleans())
def test_case_19_a_scan_equals_its_two_parts_at_any_split(split, reverse):
    a, b, init = problem(1, 20, 2, seed=5)
    whole = numba_engine(a, b, init, reverse, False)
    pieces = [slice(0, split), slice(split, 20)]
    carry, parts = init, {}
    for piece in reversed(pieces) if reverse else pieces:
        part = numba_engine(a[:, piece], b[:, piece], carry, reverse, False)
        if part.shape[1]:
            carry = part[:, 0 if reverse else -1]
        parts[piece.start == 0 and piece.stop == split] = part
    np.testing.assert_array_equal(np.concatenate([parts[True], parts[False]], 1), whole)


@pytest.mark.parametrize("inner", [1, 3, 4, 5, 1023, 1024, 1025, 2500])
def test_numba_tiles_of_every_width(inner):
    arguments = problem(2, 6, inner, seed=6)
    assert_close(numba_engine(*arguments, True, False), expected(*arguments, True, False))


def test_triton_takes_strided_and_expanded_tensors_without_copy():
    a, b, init = problem(2, 20, 6, seed=7)
    a[:] = a[:, :, :1]
    wide = torch.from_numpy(np.repeat(b, 2, 2))[:, :, ::2]
    thin = torch.from_numpy(a[:, :, :1].copy()).expand(a.shape)
    got = triton_scan.affine_scan(thin, wide, torch.from_numpy(init), reverse=True, lagged=False)
    assert_close(got.numpy(), expected(a, b, init, True, False))


@pytest.mark.parametrize("engine", [torch_scan.blocked_scan, triton_scan.affine_scan])
def test_other_devices_backward_is_the_walk_the_other_way(engine):
    # The operator's backward formula with each engine underneath, as on a device without Numba.
    a, b, init = (torch.from_numpy(x) for x in problem(2, 37, 3, seed=8))
    cotangent = torch.from_numpy(problem(2, 37, 3, seed=9)[1])
    want = reference.affine_scan_gradients(a, b, init, cotangent, reverse=True, time_axis=1)
    y = engine(a, cotangent, torch.zeros_like(init), reverse=False, lagged=True)
    x = engine(a, b, init, reverse=True, lagged=False)
    x_next = torch.cat([x[:, 1:], init[:, None]], 1)
    assert_close((y * x_next).numpy(), want[0])
    assert_close(y.numpy(), want[1])
    assert_close((a[:, -1] * y[:, -1]).numpy(), want[2])


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["sequential", "associative"])
def test_jax_engines_differentiate_twice_and_both_ways(engine, monkeypatch):
    # On this machine the platform switch would always take the sequential one.
    scan = getattr(jax_scan, f"{engine}_scan")
    monkeypatch.setattr(
        jax_scan.lax, "platform_dependent", lambda *args, cpu, default: scan(*args, **cpu.keywords)
    )
    a, b, init = (jnp.asarray(x) for x in (*problem(6, 2, 1, seed=10)[:2], np.ones((2, 1))))
    a = a + 0.05
    jax.test_util.check_grads(
        jax.jit(lambda a, b, init: jax_scan._affine_scan(a, b, init, True)), (a, b, init), order=2
    )
