"""Numba inside compiled JAX programs: memory, shapes and integers arrive, versions are asked."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numba import carray

from loopless.arrays import xla_cpu as native
from loopless.kernels.avatarl.loss import avatarl_loss


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
    name = native.register("loopless_test_scaled_sums", scaled_sums)
    assert name

    def call(x, y):
        results = (
            jax.ShapeDtypeStruct(x.shape, x.dtype),
            jax.ShapeDtypeStruct(x.shape[:-1], x.dtype),
        )
        found = jax.ffi.ffi_call(name, results, vmap_method="broadcast_all")
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


def loss_by(setting, monkeypatch):
    """The value and gradient of AvataRL's loss, and the program that computes them."""
    monkeypatch.setenv(native.SWITCH, setting)
    jax.clear_caches()  # the variable is read while tracing
    rng = np.random.default_rng(0)
    student, critic = (jnp.asarray(rng.normal(size=(300, 65)), jnp.float32) for _ in range(2))
    targets = jnp.asarray(rng.integers(0, 65, 300))
    loss = jax.value_and_grad(lambda z: avatarl_loss(z, critic, targets, top_k=4)[0])
    lowered = jax.jit(loss).lower(student)
    return lowered.compile()(student), lowered.as_text()


@pytest.mark.slow
def test_the_loss_is_the_same_with_and_without_our_kernel(monkeypatch):
    (loss, gradient), program = loss_by("1", monkeypatch)
    (plain_loss, plain_gradient), plain_program = loss_by("0", monkeypatch)
    assert "loopless_avatarl_float32" in program
    assert "loopless_avatarl" not in plain_program
    np.testing.assert_allclose(loss, plain_loss, rtol=1e-6)
    np.testing.assert_allclose(gradient, plain_gradient, rtol=1e-5, atol=1e-8)


@pytest.mark.parametrize(("setting", "on"), [("1", True), (" 0 ", False), (None, True)])
def test_the_variable_says_whether_kernels_of_ours_are_used(monkeypatch, setting, on):
    monkeypatch.delenv(native.SWITCH, raising=False)
    if setting is not None:
        monkeypatch.setenv(native.SWITCH, setting)
    assert native.is_on() == on


@pytest.mark.parametrize("setting", ["", "yes", "product"])
def test_other_settings_are_refused(monkeypatch, setting):
    monkeypatch.setenv(native.SWITCH, setting)
    with pytest.raises(
        ValueError, match=rf"{native.SWITCH} must be 0 .* or 1; received '{setting}'"
    ):
        native.is_on()


def test_the_name_of_a_call_tells_versions_of_its_code_apart():
    """A program that was kept on disk must not meet another version of the code that it calls."""

    def handler_with(number):
        def handler(call):
            if not native.is_question(call):
                native.vector(call, native.RESULTS, 0, np.float32)[0] = number
            return 0

        return handler

    names = [native.register("constant", handler_with(number)) for number in (1.0, 2.0, 1.0)]
    assert names[0] == names[2] != names[1]
    result = jax.ShapeDtypeStruct((1,), np.float32)
    assert [float(jax.ffi.ffi_call(name, result)()[0]) for name in names] == [1.0, 2.0, 1.0]
