"""AvataRL's loss in JAX on the CPU: the kernel of `compiled.py` inside the JAX program.

XLA alone would write each intermediate to memory, and is slow to find the k largest. Imported on
the first call with JAX arrays, by `loss.py`. How XLA calls the kernel: `arrays/xla_cpu.py`.
"""

# Numba's decorators change what a function's signature means:
# pyright: reportGeneralTypeIssues=false

import functools
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from numba.extending import register_jitable

from loopless.arrays import xla_cpu as frame
from loopless.kernels.avatarl.compiled import evaluate
from loopless.kernels.avatarl.recipe import STATS, VARIANTS, Numbers


def loss(variant: str, k: int, by_arrays: Callable, student, critic, *fields) -> Any:
    """Return the mean loss with its gradient by `student`, and the statistics.

    Anywhere but on the CPU, and for logits that the kernel cannot read, the result is
    by_arrays(student, critic, *fields).
    """
    fields = student, critic, *fields
    # Beside an accelerator nothing is compiled for the CPU.
    is_cpu = frame.is_on() and jax.default_backend() == "cpu"
    if not (is_cpu and student.dtype == critic.dtype and target(student.dtype.name)):
        return by_arrays(*fields)
    return lax.platform_dependent(*fields, cpu=partial(_loss, variant, k), default=by_arrays)


def _loss(variant, k, student, critic, gold, mask, numbers: Numbers, beta):
    dtype, shape = student.dtype, gold.shape
    counted = jnp.ones(shape, bool) if mask is None else jnp.broadcast_to(mask, shape)
    positions = jnp.maximum(counted.sum(), 1)
    is_confident = numbers.critic_weight is None
    fields = (*numbers, beta, 1 / positions)
    columns = [jnp.full(shape, 0.0 if x is None else x, dtype) for x in fields]
    table = jnp.stack(columns, -1)
    gold = jnp.clip(gold, -1, student.shape[-1]).astype(jnp.int32)
    form = VARIANTS.index(variant), int(is_confident), k
    means: Any = _means(form, student, (critic, gold, counted, table), positions)
    return means[0], dict(zip(STATS, means[1:], strict=True))


@partial(jax.custom_vjp, nondiff_argnums=(0,))
def _means(form, student, fields, positions):
    return _average(positions, _call(form, student, fields, 0)[0])


def _average(positions, sheet):
    return tuple(sheet.reshape(-1, sheet.shape[-1]).sum(0) / positions)


def _forward(form, student, fields, positions):
    sheet, gradient = _call(form, student, fields, student.shape[-1])
    return _average(positions, sheet), gradient


def _backward(form, gradient, cotangents):
    return gradient * cotangents[0], None, None


_means.defvjp(_forward, _backward)


def _call(form, student, fields, width: int):
    shape, dtype = student.shape[:-1], student.dtype
    sheet = jax.ShapeDtypeStruct((*shape, len(STATS) + 1), dtype)
    results = sheet, jax.ShapeDtypeStruct((*shape, width), dtype)
    name = target(dtype.name)
    assert name is not None
    call = jax.ffi.ffi_call(name, results, vmap_method="broadcast_all")
    return call(student, *fields, form=np.array(form, np.int64))


@functools.cache
def target(dtype: str) -> str | None:
    """Return the kernel's name in XLA; None if there is none for this dtype, or XLA refuses it."""
    handler = _HANDLERS.get(dtype)
    return handler and frame.register(f"loopless_avatarl_{dtype}", handler)


def _float32(call):
    if not frame.is_question(call):
        evaluate(*_arguments(call, np.float32))
    return 0


def _float64(call):
    if not frame.is_question(call):
        evaluate(*_arguments(call, np.float64))
    return 0


_HANDLERS: dict[str, Any] = {"float32": _float32, "float64": _float64}


@register_jitable
def _arguments(call, dtype):
    """Read from XLA's frame the arguments of `evaluate`."""
    variant, is_confident, k = frame.integers(call, 3)
    student = frame.matrix(call, frame.ARGUMENTS, 0, dtype)
    critic = frame.matrix(call, frame.ARGUMENTS, 1, dtype)
    gold = frame.vector(call, frame.ARGUMENTS, 2, np.int32)
    counted = frame.vector(call, frame.ARGUMENTS, 3, np.bool_)
    numbers = frame.matrix(call, frame.ARGUMENTS, 4, dtype)
    sheet = frame.matrix(call, frame.RESULTS, 0, dtype)
    gradient = frame.matrix(call, frame.RESULTS, 1, dtype)
    count, size = student.shape
    starts = np.arange(count) * size
    logits = (student.ravel(), starts), (critic.ravel(), starts)
    return variant, is_confident != 0, k, size, *logits, gold, counted, numbers, sheet, gradient
