"""Case 29: standardisation over the valid entries, its floor, its edges and its gradients."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from support.backends import BACKENDS, DTYPES, JAX, NUMPY, TORCH
from support.compare import assert_close

import loopless as ll
from loopless import reference

NAN = np.nan


class TorchWithGradients(type(TORCH)):
    """PyTorch as it is when a gradient is asked for: operations on tensors, sums in their dtype."""

    def array(self, x, dtype=None):
        tensor = super().array(x, dtype)
        return tensor.requires_grad_() if tensor.is_floating_point() else tensor


GRADIENTS = TorchWithGradients("torch")
ROADS = {"numpy": NUMPY, "torch": TORCH, "torch with gradients": GRADIENTS, "jax": JAX}
every_road = pytest.mark.parametrize("road", ROADS.values(), ids=ROADS)
every_dtype = pytest.mark.parametrize("dtype", DTYPES)


def run(road, x, valid=None, dtype="float64", **options) -> np.ndarray:
    valid = None if valid is None else road.array(valid)
    return road.numpy(ll.normalize(road.array(x, dtype), valid, **options))


def some(shape=(6, 4), seed=0, scale=1.0, offset=0.0) -> np.ndarray:
    return offset + scale * np.random.default_rng(seed).standard_normal(shape)


@every_road
@every_dtype
@settings(max_examples=12)
@given(
    seed=st.integers(0, 2**16),
    kept=st.sampled_from((0.0, 0.1, 0.6, 1.0)),
    scale=st.sampled_from((1e-3, 1.0, 1e3)),
    offset=st.sampled_from((0.0, 1.0, -30.0)),
    min_std=st.sampled_from((1e-8, 0.5)),
)
def test_case_29_equals_its_loop_twin(road, dtype, seed, kept, scale, offset, min_std):
    # Offsets of a few deviations: the twin's own mean is rounded to a unit of x, not of x − mean.
    x = some(seed=seed, scale=scale, offset=offset * scale).astype(dtype).astype(np.float64)
    valid = np.random.default_rng(seed).random(x.shape) < kept
    x[~valid] = NAN
    expected = reference.normalize(x, valid, min_std=min_std)
    assert_close(run(road, x, valid, dtype, min_std=min_std), expected, dtype)


@every_road
@every_dtype
@pytest.mark.parametrize("shape", [(7,), (2, 3, 4)], ids=str)
def test_case_29_without_a_mask_equals_its_loop_twin(road, dtype, shape):
    x = some(shape, 1).astype(dtype).astype(np.float64)
    assert_close(run(road, x, None, dtype), reference.normalize(x), dtype)


@pytest.mark.parametrize("backend", BACKENDS, ids=str)
@every_dtype
def test_keeps_library_dtype_and_shape(backend, dtype):
    out = ll.normalize(backend.array(some(), dtype))
    assert backend.owns(out)
    assert backend.dtype(out) == dtype
    assert tuple(out.shape) == (6, 4)


@every_road
def test_case_29_valid_entries_get_mean_0_and_deviation_1(road):
    x = some(scale=3.0, offset=5.0)
    valid = np.random.default_rng(2).random(x.shape) < 0.6
    x[~valid] = 1e6
    out = run(road, x, valid)
    assert_close(out[valid].mean(), 0.0)
    assert_close(out[valid].std(), 1.0)
    np.testing.assert_array_equal(out[~valid], 0.0)


@every_road
@pytest.mark.parametrize("fill", [NAN, np.inf, 1e30], ids=str)
def test_case_29_padding_may_hold_anything(road, fill):
    x = some()
    valid = np.random.default_rng(3).random(x.shape) < 0.6
    clean = run(road, np.where(valid, x, 0.0), valid)
    np.testing.assert_array_equal(run(road, np.where(valid, x, fill), valid), clean)


@every_road
def test_case_29_padding_in_front_is_not_the_shift(road):
    """Sums are of differences from the first valid entry, which need not be the first."""
    x = some(offset=3.0)
    valid = np.ones(x.shape, bool)
    valid[0] = False
    x[0] = NAN
    assert_close(run(road, x, valid), reference.normalize(x, valid))


@every_road
@every_dtype
def test_case_29_a_single_entry_gives_0(road, dtype):
    np.testing.assert_array_equal(run(road, np.array([3.7]), None, dtype), 0.0)


@every_road
@every_dtype
def test_case_29_a_single_valid_entry_gives_0(road, dtype):
    x, valid = np.full((6, 4), NAN), np.zeros((6, 4), bool)
    x[3, 2], valid[3, 2] = -3.7, True
    np.testing.assert_array_equal(run(road, x, valid, dtype), 0.0)


@every_road
@every_dtype
@pytest.mark.parametrize("constant", [0.0, 0.1, 1e6, -3.7, 1 / 3, 1e-30, 1e30])
@pytest.mark.parametrize("masked", [False, True], ids=["all valid", "masked"])
def test_case_29_a_constant_gives_exactly_0(road, dtype, constant, masked):
    x = np.full((6, 4), constant)
    valid = None
    if masked:
        valid = np.random.default_rng(4).random(x.shape) < 0.7
        x[~valid] = NAN
    np.testing.assert_array_equal(run(road, x, valid, dtype), 0.0)


@every_road
@every_dtype
def test_case_29_a_constant_gives_0_under_a_tiny_floor(road, dtype):
    """The floor's square is 0 in float32; 0/0 is not the answer."""
    out = run(road, np.full((6, 4), 0.1), None, dtype, min_std=1e-30)
    np.testing.assert_array_equal(out, 0.0)


@every_road
def test_case_29_a_deviation_below_the_floor_is_divided_by_the_floor(road):
    x = some(scale=0.01, offset=2.0)
    out = run(road, x, min_std=0.5)
    assert_close(out, (x - x.mean()) / 0.5)


@every_road
def test_case_29_a_deviation_above_the_floor_ignores_it(road):
    x = some(scale=2.0)
    np.testing.assert_array_equal(run(road, x, min_std=0.5), run(road, x, min_std=1e-8))


@every_road
@every_dtype
def test_case_29_is_idempotent(road, dtype):
    x = some(scale=3.0, offset=5.0)
    valid = np.random.default_rng(5).random(x.shape) < 0.7
    once = run(road, x, valid, dtype)
    assert_close(run(road, once, valid, dtype), once, dtype)


@every_road
@every_dtype
def test_case_29_without_a_valid_entry_all_is_0(road, dtype):
    out = run(road, np.full((6, 4), NAN), np.zeros((6, 4), bool), dtype)
    np.testing.assert_array_equal(out, 0.0)


@every_road
@pytest.mark.parametrize("shape", [(0,), (0, 3), (4, 0)], ids=str)
@pytest.mark.parametrize("masked", [False, True], ids=["all valid", "masked"])
def test_case_29_an_empty_array_stays_one(road, shape, masked):
    valid = np.zeros(shape, bool) if masked else None
    assert run(road, np.zeros(shape), valid).shape == shape


@every_road
@pytest.mark.parametrize("place", [0, 5])
@pytest.mark.parametrize("wrong", [NAN, np.inf, -np.inf], ids=str)
def test_a_valid_entry_that_is_not_finite_spoils_every_valid_one(road, place, wrong):
    """A spoilt batch must be seen as one, not pass for a constant."""
    x = some()
    x.flat[place] = wrong
    valid = np.ones(x.shape, bool)
    valid[-1] = False
    np.testing.assert_array_equal(run(road, x, valid), reference.normalize(x, valid))


OFFSET_SHAPE = (16, 16)


@every_road
def test_case_29_a_large_offset_costs_no_digits(road):
    x = some(OFFSET_SHAPE, 6, offset=1e6).astype(np.float32).astype(np.float64)
    expected = reference.normalize(x)
    # Numbers near 1e6 differ exactly in float32. Then, with u = 2⁻²⁴ and d the differences: a sum
    # of n terms errs by at most n·u·Σ|d|, so the mean by n·u·max|d|; the deviation, half of its
    # square, by (n + 3)·u/2 relatively and by the mean's error squared; the quotient by 2u more.
    n, u = x.size, 2.0**-24
    mean = n * u * np.abs(x - x.flat[0]).max() / x.std()
    bound = mean + np.abs(expected) * ((n + 3) * u / 2 + mean**2 + 2 * u)
    if road in (NUMPY, TORCH):
        # Sums in float64: only the result is rounded, and the mean of the twin.
        bound = np.abs(expected) * u + 2.0**-53 * 1e6 / x.std()
    assert (np.abs(run(road, x, None, "float32") - expected) <= bound).all()


@every_road
def test_case_29_an_outlier_in_front_costs_no_digits(road):
    """Shifting by the first entry is no help if that entry is far from the rest."""
    x = some((6, 4), 7)
    x[0, 0] = 1e9
    assert_close(run(road, x), reference.normalize(x))


@every_road
@pytest.mark.parametrize("scale", [1.0, 0.01], ids=["above the floor", "below the floor"])
def test_case_29_equals_espers_normalisation_up_to_its_epsilon(road, scale):
    x = some((3, 8), 8, scale=scale, offset=2.0)
    lengths = np.array([0, 5, 8])
    valid = np.arange(8) < lengths[:, None]
    esper, _, std, floored = reference.esper.normalize_advantages(x, lengths)
    assert floored == (scale < 0.1)
    out = run(road, x, valid, min_std=0.1)
    # esper divides by max(std, 0.1) + 1e-8
    expected = esper[valid] * (1 + 1e-8 / max(std, 0.1))
    assert_close(out[valid], expected)
    np.testing.assert_allclose(out[valid], esper[valid], rtol=1.01e-7, atol=0)


# Gradients


def gradient(road, x, valid, weights, dtype="float64", **options) -> np.ndarray:
    """The gradient of Σ weights·normalize(x)."""
    if road is JAX:
        mask, weights = road.array(valid), road.array(weights, dtype)
        return road.numpy(
            jax.grad(lambda x: jnp.vdot(weights, ll.normalize(x, mask, **options)))(
                road.array(x, dtype)
            )
        )
    tensor = road.array(x, dtype)
    out = ll.normalize(tensor, TORCH.array(valid), **options)
    (out * TORCH.array(weights, dtype)).sum().backward()
    return road.numpy(tensor.grad)


with_gradients = pytest.mark.parametrize("road", [GRADIENTS, JAX], ids=str)


@with_gradients
@every_dtype
def test_gradient_is_that_of_the_formula(road, dtype):
    x, weights = some(seed=9), some(seed=10)
    valid = np.random.default_rng(11).random(x.shape) < 0.7
    y, std = reference.normalize(x, valid)[valid], x[valid].std()
    g = weights[valid]
    expected = np.zeros(x.shape)
    expected[valid] = (g - g.mean() - y * (g * y).mean()) / std
    x[~valid] = NAN
    assert_close(gradient(road, x, valid, weights, dtype), expected, dtype)


@with_gradients
def test_gradient_below_the_floor_is_that_of_a_shift(road):
    x, weights = some(seed=9, scale=0.01), some(seed=10)
    valid = np.ones(x.shape, bool)
    expected = (weights - weights.mean()) / 0.5
    assert_close(gradient(road, x, valid, weights, min_std=0.5), expected)


@with_gradients
@every_dtype
@pytest.mark.parametrize("constant", [0.0, 0.1, 1e6])
def test_gradient_of_a_constant_is_finite(road, dtype, constant):
    weights, valid = some(seed=10), np.ones((6, 4), bool)
    got = gradient(road, np.full((6, 4), constant), valid, weights, dtype, min_std=0.1)
    assert_close(got, (weights - weights.mean()) / 0.1, dtype)
    assert np.isfinite(gradient(road, np.full((6, 4), constant), valid, weights, dtype)).all()


@with_gradients
@pytest.mark.parametrize("count", [0, 1])
def test_gradient_with_at_most_one_valid_entry_is_0(road, count):
    x, valid = np.full((6, 4), NAN), np.zeros((6, 4), bool)
    x.flat[5:6], valid.flat[5 : 5 + count] = 2.0, True
    np.testing.assert_array_equal(gradient(road, x, valid, some()), 0.0)


def test_case_26_no_graph_is_kept_where_none_is_asked_for():
    x = GRADIENTS.array(some())
    assert ll.normalize(x).requires_grad
    with torch.no_grad():
        assert not ll.normalize(x).requires_grad
