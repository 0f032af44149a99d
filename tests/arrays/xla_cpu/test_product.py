"""The product of small matrices: NumPy's in float64, and the programs that it becomes part of."""

import os
import subprocess
import sys
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import export

from loopless.arrays.xla_cpu import product as jax_product
from loopless.arrays.xla_cpu.product import product
from loopless.arrays.xla_cpu.product_call import NAME
from loopless.compiled.product import COLUMNS, LANES, ROWS
from loopless.train.commands import SMALL_LOOP

SHAPES = [  # m, k, n
    (128, 120, 84),
    (ROWS, 600, COLUMNS),
    (ROWS + 1, 600, COLUMNS + 1),
    (2 * ROWS - 1, 401, 2 * COLUMNS - 1),
    (700, 7, COLUMNS + 5),
]


def factors(m: int, k: int, n: int, *more: int) -> tuple[jax.Array, jax.Array]:
    random = np.random.default_rng(m + k + n)
    shapes = (*more, m, k), (*more, k, n)
    return tuple(jnp.asarray(random.normal(size=shape), jnp.float32) for shape in shapes)


def exact(a, b) -> np.ndarray:
    return np.asarray(a, np.float64) @ np.asarray(b, np.float64)


def calls(function, *arguments) -> int:
    return jax.jit(function).lower(*arguments).as_text().count(f"@{NAME}")


def near(found, a, b) -> None:
    """No further from the exact product than rounding can bring a sum, in whatever order."""
    assert found.dtype == jnp.float32
    most = a.shape[-1] * 2.0**-24 * exact(abs(a), abs(b))
    np.testing.assert_array_less(abs(found - exact(a, b)), most + 1e-30)


@pytest.mark.parametrize(("m", "k", "n"), SHAPES)
def test_values_are_those_of_numpy(m, k, n):
    a, b = factors(m, k, n)
    assert calls(product, a, b) == 1
    near(product(a, b), a, b)


@pytest.mark.parametrize(("m", "k", "n"), SHAPES)
def test_so_are_those_of_a_turned_first_factor(m, k, n):
    a, b = factors(m, k, n)
    turned = partial(jax_product._product, (True, False))
    assert calls(turned, a.T, b) == 1
    near(turned(a.T, b), a, b)


@pytest.mark.parametrize(("m", "k", "n"), [*SHAPES, (300, LANES, COLUMNS), (300, LANES + 3, 70)])
def test_so_are_those_of_a_turned_second_factor(m, k, n):
    a, b = factors(m, k, n)
    turned = partial(jax_product._product, (False, True))
    assert calls(turned, a, b.T) == (k >= LANES)
    near(turned(a, b.T), a, b)
    if k >= LANES:  # all are the same sums, in the same order
        np.testing.assert_array_equal(turned(a, b.T), product(a, b))


def test_leading_axes_are_rows():
    a, b = factors(60, 80, 64)
    found = product(a.reshape(3, 4, 5, 80), b)
    assert found.shape == (3, 4, 5, 64)
    np.testing.assert_array_equal(found.reshape(60, 64), product(a, b))


@pytest.mark.parametrize(
    ("m", "k", "n"), [(ROWS - 1, 600, 64), (64, 600, COLUMNS - 1), (16, 16, 64), (256, 257, 256)]
)
def test_other_sizes_are_left_to_xla(m, k, n):
    a, b = factors(m, k, n)
    assert calls(product, a, b) == 0
    near(product(a, b), a, b)


@pytest.mark.parametrize(("cores", "ours"), [(1, 1), (2, 0)])
def test_large_ones_are_left_to_xla_where_it_has_several_cores(monkeypatch, cores, ours):
    monkeypatch.setattr(jax_product, "threads", lambda: cores)
    a, b = factors(150, 256, 130 + cores)  # of shapes for which nothing is traced yet
    assert calls(product, a, b) == ours
    near(product(a, b), a, b)


@pytest.mark.parametrize("dtype", [jnp.float64, jnp.bfloat16])
def test_so_are_other_types(dtype):
    a, b = (x.astype(dtype) for x in factors(64, 64, 64))
    assert calls(product, a, b) == 0
    assert product(a, b).dtype == dtype


def test_beside_an_accelerator_nothing_is_compiled_for_the_cpu(monkeypatch):
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    assert calls(product, *factors(61, 62, 63)) == 0  # of shapes for which nothing is traced yet


def test_programs_for_accelerators_are_of_jax_operations_alone():
    for platform, there in (("cuda", False), ("tpu", False), ("cpu", True)):
        lowered = export.export(
            jax.jit(product),
            platforms=[platform],
            disabled_checks=[export.DisabledSafetyCheck.custom_call(NAME)],
        )
        assert (NAME in lowered(*factors(64, 64, 64)).mlir_module()) == there


def test_gradients_of_all_orders_are_those_of_a_plain_product():
    a, b = (x / 8 for x in factors(64, 80, 72))

    def bent(multiply, a, b):
        return jnp.sin(multiply(a, b)).sum()

    def twice(multiply, a, b):
        first = jax.grad(partial(bent, multiply), (0, 1))(a, b)
        return sum((x * x).sum() for x in first)

    for of in (bent, twice):
        found = jax.jit(jax.grad(partial(of, product), (0, 1)))(a, b)
        want = jax.grad(partial(of, jnp.matmul), (0, 1))(a.astype(float), b.astype(float))
        for one, other in zip(found, want, strict=True):
            few = 16 * 2.0**-24 * abs(other).max()  # roundings of float32
            np.testing.assert_allclose(one, other, rtol=0, atol=few)


@pytest.mark.parametrize("which", [0, 1])
def test_a_gradient_is_one_call(which):
    a, b = factors(64, 80, 72)
    gradient = jax.grad(lambda a, b: product(a, b).sum(), which)
    assert calls(gradient, a, b) == 1  # its value is not needed


@pytest.mark.parametrize("axes", [(0, 0), (0, None), (None, 0)])
def test_vmap_is_the_product_of_each(axes):
    a, b = factors(64, 64, 64, 3)
    a, b = a if axes[0] == 0 else a[0], b if axes[1] == 0 else b[0]
    mapped = jax.vmap(product, axes)
    assert calls(mapped, a, b) == 1
    near(jax.jit(mapped)(a, b), a, b)


def test_what_is_not_finite_stays_in_its_row():
    a, b = factors(128, 120, 84)
    found = product(a.at[40, 3].set(jnp.nan), b)
    assert np.isnan(found[40]).all()
    np.testing.assert_array_equal(np.delete(found, 40, 0), np.delete(product(a, b), 40, 0))


LOOP = """
import jax, numpy as np
from loopless.arrays.xla_cpu.product import product

a, b = (np.random.default_rng(i).normal(size=(64, 64)).astype("f") for i in range(2))
loop = jax.jit(lambda a: jax.lax.scan(lambda x, _: (product(x, b) / 8, None), a, None, 3)[0])
text = loop.lower(a).compile().as_text()
steps = product(product(product(a, b) / 8, b) / 8, b) / 8
print("while(" in text, "loopless_product" in text, np.array_equal(loop(a), steps))
"""


@pytest.mark.slow
def test_inside_a_loop_that_is_one_function_it_is_the_same():
    flag = f"--xla_backend_extra_options=xla_cpu_small_while_loop_byte_threshold={SMALL_LOOP}"
    done = subprocess.run(
        [sys.executable, "-c", LOOP], env=os.environ | {"XLA_FLAGS": flag},
        capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert (done.stdout, done.stderr) == ("True True True\n", "")
