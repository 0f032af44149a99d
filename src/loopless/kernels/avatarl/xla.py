"""AvataRL's loss in JAX on the CPU: the compiled `avatarl_whole` inside of the JAX program.

XLA would write each intermediate to memory, and step through the k largest. Imports JAX,
`arrays` and Numba's part; imported on the first call only. Tests:
`tests/kernels/test_avatarl_tiles.py`.
"""

# Numba's decorators change what a function's signature means:
# pyright: reportGeneralTypeIssues=false

import functools
import math
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from loopless.arrays.xla_cpu import frame as native
from loopless.kernels.avatarl.positions import STATS
from loopless.kernels.avatarl.rewards import Numbers
from loopless.kernels.avatarl.rows import VARIANTS, rows
from loopless.kernels.avatarl.tiles import tiles
from loopless.kernels.avatarl.whole import whole


def loss(variant: str, k: int, by_arrays: Callable, student, critic, *fields) -> Any:
    """The mean loss with its gradient by `student`, and the statistics.

    Elsewhere than on the CPU, and for logits that the kernel does not read, `by_arrays`.
    """
    fields = student, critic, *fields
    # Nothing is compiled for a CPU that is there beside an accelerator.
    is_ours = jax.default_backend() == "cpu" and student.dtype == critic.dtype
    if not (is_ours and _is_here(_name(student))):
        return by_arrays(*fields)
    return lax.platform_dependent(*fields, cpu=partial(_loss, variant, k), default=by_arrays)


def _loss(variant, k, student, critic, gold, counted, numbers: Numbers, beta):
    dtype, shape = student.dtype, gold.shape
    told = jnp.ones(shape, bool) if counted is None else jnp.broadcast_to(counted, shape)
    positions = jnp.maximum(told.sum(), 1)
    confident = numbers.critic_weight is None
    fields = (*numbers, beta, 1 / positions)
    columns = [jnp.full(shape, 0.0 if x is None else x, dtype) for x in fields]
    table = jnp.stack(columns, -1)
    gold = jnp.clip(gold, -1, student.shape[-1]).astype(jnp.int32)
    form = VARIANTS[variant], int(confident), k
    means: Any = _means(form, student, (critic, gold, told, table), positions)
    return means[0], dict(zip(STATS, means[1:], strict=True))


@partial(jax.custom_vjp, nondiff_argnums=(0,))
def _means(form, student, fields, positions):
    return _over(positions, _call(form, student, fields, 0)[0])


def _over(positions, sheet):
    return tuple(sheet.reshape(-1, sheet.shape[-1]).sum(0) / positions)


def _forward(form, student, fields, positions):
    sheet, gradient = _call(form, student, fields, student.shape[-1])
    return _over(positions, sheet), gradient


def _backward(form, gradient, cotangents):
    return gradient * cotangents[0], None, None


_means.defvjp(_forward, _backward)


def _call(form, student, fields, width: int):
    shape, dtype = student.shape[:-1], student.dtype
    sheet = jax.ShapeDtypeStruct((*shape, len(STATS) + 1), dtype)
    results = sheet, jax.ShapeDtypeStruct((*shape, width), dtype)
    call = jax.ffi.ffi_call(_name(student), results, vmap_method="broadcast_all")
    return call(student, *fields, form=np.array(form, np.int64))


def _name(student) -> str:
    count = math.prod(student.shape[:-1])  # before any `vmap`, which adds rows
    return f"loopless_avatarl_{whole(student.shape[-1], count).__name__}_{student.dtype.name}"


@functools.cache
def _is_here(name: str) -> bool:
    """Whether there is such a kernel, and XLA takes it."""
    return name in _HANDLERS and native.register(name, _HANDLERS[name])


def _tiles_single(frame):
    if not native.asked(frame):
        tiles(*_told(frame, np.float32))
    return 0


def _tiles_double(frame):
    if not native.asked(frame):
        tiles(*_told(frame, np.float64))
    return 0


def _rows_single(frame):
    if not native.asked(frame):
        rows(*_told(frame, np.float32))
    return 0


def _rows_double(frame):
    if not native.asked(frame):
        rows(*_told(frame, np.float64))
    return 0


_HANDLERS = {
    "loopless_avatarl_tiles_float32": _tiles_single,
    "loopless_avatarl_tiles_float64": _tiles_double,
    "loopless_avatarl_rows_float32": _rows_single,
    "loopless_avatarl_rows_float64": _rows_double,
}


@native.jitable
def _told(frame, dtype):
    """What a kernel is called with."""
    variant, confident, k = native.integers(frame, 3)
    student = native.matrix(frame, native.ARGUMENTS, 0, dtype)
    critic = native.matrix(frame, native.ARGUMENTS, 1, dtype)
    gold = native.vector(frame, native.ARGUMENTS, 2, np.int32)
    told = native.vector(frame, native.ARGUMENTS, 3, np.bool_)
    table = native.matrix(frame, native.ARGUMENTS, 4, dtype)
    sheet = native.matrix(frame, native.RESULTS, 0, dtype)
    gradient = native.matrix(frame, native.RESULTS, 1, dtype)
    count, size = student.shape
    starts = np.arange(count) * size
    logits = (student.ravel(), starts), (critic.ravel(), starts)
    return variant, confident != 0, k, size, *logits, gold, told, table, sheet, gradient
