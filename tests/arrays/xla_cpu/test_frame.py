"""Numba inside compiled JAX programs: memory, shapes and integers arrive, versions are asked."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numba import carray

from loopless.arrays.xla_cpu import frame as native


def scaled_sums(frame):
    """Operands x [..., n] and y [...]; results x·a + y and the sum of each row, b times."""
    if native.is_question(frame):
        return 0
    factor, times = native.integers(frame, 2)
    x = native.matrix(frame, native.ARGUMENTS, 0, np.float32)
    y = native.vector(frame, native.ARGUMENTS, 1, np.int32)
    out = native.matrix(frame, native.RESULTS, 0, np.float32)
    sums = native.vector(frame, native.RESULTS, 1, np.float32)
    for i in range(x.shape[0]):
        sums[i] = 0
        for j in range(x.shape[1]):
            out[i, j] = x[i, j] * factor + y[i]
            sums[i] += x[i, j] * times
    return 0


@pytest.fixture(scope="module")
def call():
    assert native.register("loopless_test_scaled_sums", scaled_sums)

    def call(x, y):
        results = (
            jax.ShapeDtypeStruct(x.shape, x.dtype),
            jax.ShapeDtypeStruct(x.shape[:-1], x.dtype),
        )
        found = jax.ffi.ffi_call("loopless_test_scaled_sums", results, vmap_method="broadcast_all")
        return found(x, y, factors=np.array([3, 2], np.int64))

    return call


@pytest.mark.parametrize("shape", [(4, 3), (3,), (2, 5, 3), (0, 3)])
def test_rows_of_any_leading_axes_arrive(call, shape):
    x = jnp.arange(np.prod(shape), dtype=jnp.float32).reshape(shape)
    y = jnp.arange(np.prod(shape[:-1]), dtype=jnp.int32).reshape(shape[:-1])
    out, sums = jax.jit(call)(x, y)
    np.testing.assert_array_equal(out, 3 * x + y[..., None])
    np.testing.assert_array_equal(sums, 2 * x.sum(-1))


def test_vmap_is_one_larger_call(call):
    x, y = jnp.ones((6, 4, 3), jnp.float32), jnp.arange(6, dtype=jnp.int32)
    batched = jax.vmap(lambda x, y: call(x, jnp.full(4, y)))
    out, _ = batched(x, y)
    np.testing.assert_array_equal(out, np.broadcast_to(3 + np.arange(6)[:, None, None], out.shape))
    text = jax.jit(batched).lower(x, y).as_text()
    assert text.count("loopless_test_scaled_sums") == 1


def of_another_version(frame):
    if native.is_question(frame):
        extension = native.words(carray(frame, (2,))[1], 4)
        native.words(extension[3], 5)[3] = 1 << 20
    return 0


def test_another_version_of_the_interface_is_declined():
    assert not native.register("loopless_test_of_another_version", of_another_version)
