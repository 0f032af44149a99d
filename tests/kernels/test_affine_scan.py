"""The public scan: directions, axes, broadcasting, init, dtypes, derivatives, on every library."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from support.backends import BACKENDS, DTYPES, HALVES, NUMPY, TORCH
from support.compare import assert_close

import loopless as ll
from loopless import reference

every_backend = pytest.mark.parametrize("backend", BACKENDS, ids=str)


def problem(shape=(6, 4), seed=0):
    rng = np.random.default_rng(seed)
    return rng.uniform(-1, 1, shape), rng.standard_normal(shape)


@every_backend
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("reverse", [True, False])
@pytest.mark.parametrize("time_axis", [0, 1, -1])
@pytest.mark.parametrize("init", ["none", "number", "array"])
def test_equals_the_loop(backend, dtype, reverse, time_axis, init):
    a, b = problem((5, 4))
    columns = np.delete(b.shape, time_axis)
    init = {"none": None, "number": 0.7, "array": np.linspace(-1, 1, columns[0])}[init]
    got = ll.affine_scan(
        backend.array(a, dtype), backend.array(b, dtype), backend.array(init, dtype),
        reverse=reverse, time_axis=time_axis,
    )  # fmt: skip
    assert backend.dtype(got) == dtype
    expected = reference.affine_scan(a, b, init, reverse=reverse, time_axis=time_axis)
    assert_close(backend.numpy(got), expected, dtype)


@pytest.mark.parametrize("backend", [NUMPY, TORCH], ids=str)
@given(
    shape=st.lists(st.integers(0, 5), min_size=1, max_size=4),
    axis=st.integers(-4, 3),
    reverse=st.booleans(),
    seed=st.integers(0, 99),
)
def test_equals_the_loop_for_any_shape_and_axis(backend, shape, axis, reverse, seed):
    axis = axis % len(shape)
    a, b = problem(tuple(shape), seed)
    got = ll.affine_scan(backend.array(a), backend.array(b), reverse=reverse, time_axis=axis)
    assert tuple(got.shape) == tuple(shape)
    expected = reference.affine_scan(a, b, reverse=reverse, time_axis=axis)
    assert_close(backend.numpy(got), expected)


@every_backend
@pytest.mark.parametrize("shape", [(6, 1), (1, 4), (1, 1), ()])
def test_coefficients_spread_over_the_data(backend, shape):
    _, b = problem()
    a = np.random.default_rng(1).uniform(-1, 1, shape)
    got = ll.affine_scan(backend.array(a), backend.array(b))
    assert_close(backend.numpy(got), reference.affine_scan(a, b))


@every_backend
def test_a_number_as_coefficient_gives_discounted_sums(backend):
    _, b = problem()
    got = ll.affine_scan(0.5, backend.array(b))
    assert_close(backend.numpy(got), reference.affine_scan(0.5, b))


@pytest.mark.parametrize(
    ("backend", "half"), [(b, h) for b in BACKENDS for h in HALVES[b.name]], ids=str
)
def test_case_12_halves_accumulate_in_float32(backend, half):
    a = np.full((500, 2), 0.99)
    b = np.abs(np.random.default_rng(2).standard_normal((500, 2)))
    stored = [backend.numpy(backend.array(x, half)) for x in (a, b)]
    got = ll.affine_scan(backend.array(a, half), backend.array(b, half))
    assert backend.dtype(got) == half
    expected = reference.affine_scan(*stored)
    ulp = {"float16": 2.0**-10, "bfloat16": 2.0**-7}[half]
    assert (np.abs(backend.numpy(got) - expected) <= (0.5 * ulp + 1e-5) * expected).all()


@every_backend
def test_a_zero_coefficient_cuts_even_nan(backend):
    a, b = problem()
    a[2] = 0.0
    b[3] = np.nan
    got = backend.numpy(ll.affine_scan(backend.array(a), backend.array(b)))
    np.testing.assert_array_equal(np.isnan(got), np.arange(6)[:, None] == [3] * 4)


@pytest.mark.parametrize("reverse", [True, False])
@pytest.mark.parametrize("time_axis", [0, 1])
def test_case_16_torch_derivatives_in_a_b_and_init(reverse, time_axis):
    a, b = (torch.from_numpy(x).requires_grad_() for x in problem((4, 3), 3))
    init = torch.randn(b.select(time_axis, 0).shape, dtype=torch.float64, requires_grad=True)

    def call(a, b, init):
        return ll.affine_scan(a, b, init, reverse=reverse, time_axis=time_axis)

    assert torch.autograd.gradcheck(call, (a, b, init))
    assert torch.autograd.gradgradcheck(call, (a, b, init))


@pytest.mark.parametrize("reverse", [True, False])
def test_gradients_equal_the_loops_backward_pass(reverse):
    a, b = problem((7, 3), 4)
    init, cotangent = np.ones(3), problem((7, 3), 5)[1]
    want = reference.affine_scan_gradients(a, b, init, cotangent, reverse=reverse)
    tensors = [torch.from_numpy(x).requires_grad_() for x in (a, b, init)]
    ll.affine_scan(*tensors, reverse=reverse).backward(torch.from_numpy(cotangent))
    for tensor, expected in zip(tensors, want, strict=True):
        assert tensor.grad is not None
        assert_close(tensor.grad.numpy(), expected)
    _, pull = jax.vjp(
        lambda *args: ll.affine_scan(*args, reverse=reverse), *map(jnp.asarray, (a, b, init))
    )
    for got, expected in zip(pull(jnp.asarray(cotangent)), want, strict=True):
        assert_close(np.asarray(got), expected)


@pytest.mark.slow
def test_case_27_compiles_whole_and_differentiates():
    torch._dynamo.reset()
    compiled = torch.compile(ll.affine_scan, fullgraph=True, backend="aot_eager")
    a, b = (torch.from_numpy(x).requires_grad_() for x in problem((6, 3), 6))
    compiled(a, b).square().sum().backward()
    assert a.grad is not None
    got = a.grad.clone()
    a.grad = None
    ll.affine_scan(a, b).square().sum().backward()
    assert_close(got.numpy(), a.grad.numpy())


def test_results_that_are_still_held_are_never_overwritten():
    # Large results come from recycled memory; only what nobody holds may be used again.
    a, b = np.full((600, 600), 0.5), np.ones((600, 600))
    first = ll.affine_scan(a, b)
    view = first[10:20]
    kept = view.copy()
    del first
    for value in (2.0, 3.0, 4.0):
        ll.affine_scan(a, b * value)
    np.testing.assert_array_equal(view, kept)
