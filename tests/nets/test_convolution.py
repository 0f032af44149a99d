"""Convolutions in canonical form: the gradients are JAX's own, whatever the shapes and loops."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from loopless.nets import convolution
from loopless.nets.conv import Convolutions
from loopless.nets.convolution import Window, convolve

CASES = {  # height, width, inputs, kernel, outputs, window
    "strides that leave a rest": (11, 10, 3, (4, 3), 5, Window((3, 2), ((0, 0),) * 2, (1, 1))),
    "uneven padding": (7, 9, 2, (3, 5), 3, Window((2, 1), ((1, 0), (2, 3)), (1, 1))),
    "dilation and groups": (9, 8, 4, (2, 3), 6, Window((1, 2), ((1, 2), (0, 1)), (2, 2), 2)),
    "a kernel as large as the picture": (5, 5, 1, (5, 5), 2, Window.valid(1)),
}


def plain(x, kernel, window):
    return lax.conv_general_dilated(
        x, kernel, window.stride, window.padding, None, window.dilation,
        dimension_numbers=("NHWC", "HWIO", "NHWC"), feature_group_count=window.groups,
    )  # fmt: skip


def arrays(case, dtype, leading=(), batch=5):
    height, width, inputs, size, outputs, window = CASES[case]
    rng = np.random.default_rng(0)
    x = rng.standard_normal((*leading, batch, height, width, inputs))
    kernel = rng.standard_normal((*leading, *size, inputs // window.groups, outputs))
    one = (0,) * len(leading)
    shape = jax.eval_shape(lambda x, k: plain(x, k, window), x[one], kernel[one]).shape
    gradient = rng.standard_normal((*leading, *shape))
    return tuple(jnp.asarray(array, dtype) for array in (x, kernel, gradient)), window


def results(function, x, kernel, gradient, window):
    y, pull = jax.vjp(lambda x, kernel: function(x, kernel, window), x, kernel)
    return y, *pull(gradient)


def check_equal(received, inputs, window):
    """Compare with JAX's own, within the rounding of sums of so many products."""
    expected = results(plain, *inputs, window)
    sizes = results(plain, *map(jnp.abs, inputs), window)
    epsilon = jnp.finfo(inputs[0].dtype).eps
    for array, other, size in zip(received, expected, sizes, strict=True):
        terms = max(x.size for x in inputs)
        assert array.dtype == other.dtype
        assert (jnp.abs(array - other) <= 2 * terms * epsilon * size).all()


@pytest.fixture
def small_parts(monkeypatch):
    """Cut the five pictures of a case into parts of two."""
    monkeypatch.setattr(convolution, "_count_parts", lambda x: 3)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("case", CASES)
def test_gradients_are_those_of_jax(case, dtype):
    with jax.enable_x64(dtype == "float64"):
        inputs, window = arrays(case, dtype)
        check_equal(results(convolve, *inputs, window), inputs, window)


@pytest.mark.parametrize("case", CASES)
def test_parts_give_the_same_numbers_as_the_whole(case, small_parts):
    inputs, window = arrays(case, "float32")
    check_equal(results(convolve, *inputs, window), inputs, window)


def test_agents_side_by_side_have_gradients_of_their_own(small_parts):
    """A vmap turns convolutions with different kernels into grouped ones."""
    inputs, window = arrays("uneven padding", "float32", leading=(3,))
    received = jax.vmap(lambda *one: results(convolve, *one, window))(*inputs)
    for agent in range(3):
        own = tuple(array[agent] for array in inputs)
        check_equal([array[agent] for array in received], own, window)


def test_all_convolutions_of_a_loop_are_in_the_form_that_is_fast_there():
    """XLA compiles a convolution of any other form to naive loops."""
    inputs, window = arrays("strides that leave a rest", "float32")

    def loop(x, kernel, gradient):
        def step(total, _):
            parts = results(convolve, x + total, kernel, gradient, window)
            return total + sum(part.sum() for part in parts), None

        return lax.scan(step, 0.0, None, 3)[0]

    program = jax.jit(loop).lower(*inputs).compile().as_text()
    labels = re.findall(r"dim_labels=([^,]*)", program)
    assert len(labels) >= 3
    assert set(labels) == {"b01f_01io->b01f"}


def not_mirrored(gradient, kernel, space, window):
    return input_gradient(gradient, kernel[::-1, ::-1], space, window)


def sides_swapped(gradient, kernel, space, window):
    padding = tuple((high, low) for low, high in window.padding)
    return input_gradient(gradient, kernel, space, window._replace(padding=padding))


def without_the_last_part(x, parts):
    size = x.shape[0] // parts
    return x[: parts * size].reshape(parts, size, *x.shape[1:])


input_gradient = convolution.input_gradient
MUTANTS = {
    "not mirrored": ("input_gradient", not_mirrored),
    "sides swapped": ("input_gradient", sides_swapped),
    "without the last part": ("_split", without_the_last_part),
}


@pytest.mark.parametrize("mutant", MUTANTS)
def test_mutants_are_caught(mutant, monkeypatch, small_parts):
    monkeypatch.setattr(convolution, *MUTANTS[mutant])
    inputs, window = arrays("uneven padding", "float32")
    with pytest.raises((AssertionError, TypeError, ValueError)):
        check_equal(results(convolve, *inputs, window), inputs, window)


@pytest.mark.parametrize("dtype", ["uint8", "float32"])
def test_layers_of_a_network_in_parts_have_the_features_and_gradients_of_the_whole(
    dtype, monkeypatch
):
    rng = np.random.default_rng(0)
    x = jnp.asarray(rng.integers(0, 255, (2, 3, 9, 8, 2)), dtype)
    net = Convolutions((9, 8, 2), ((4, 3, 2), (5, 2, 1)), "relu", jax.random.key(0))

    def both():
        return net(x), jax.grad(lambda net: (net(x) ** 2).sum())(net)

    expected = both()
    monkeypatch.setattr(convolution, "PART_BYTES", 4 * 2 * 9 * 8 * 2 * 2)  # of four images
    for array, other in zip(jax.tree.leaves(both()), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(array, other, rtol=1e-5, atol=1e-5 * np.abs(other).max())
