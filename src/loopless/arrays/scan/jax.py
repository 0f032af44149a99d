"""Scans and recipes on JAX arrays: sequential on the CPU, associative on accelerators.

Differentiable in both modes and any number of times: the tangent of a scan is the same scan of
other coefficients, linear in them, and JAX transposes that into the scan the other way.

`estimate` computes a whole recipe: on the CPU by one scan whose body is the recipe, so that each
input is read once. Accelerators, and derivatives everywhere, take the recipe over whole arrays.
"""

from functools import partial

import jax
import jax.numpy as jnp
from jax import lax

from loopless.arrays.library import library_of
from loopless.arrays.scan.recipe import rows_ahead


@partial(jax.custom_jvp, nondiff_argnums=(3,))
def _affine_scan(a, b, init, reverse: bool):
    """Return x_t = a_t·x_{t±1} + b_t along the first axis; a and b have one shape."""
    return lax.platform_dependent(
        a,
        b,
        init,
        cpu=partial(sequential_scan, reverse=reverse),
        default=partial(associative_scan, reverse=reverse),
    )


@_affine_scan.defjvp
def _affine_scan_jvp(reverse, primals, tangents):
    a, b, init = primals
    a_dot, b_dot, init_dot = tangents
    x = _affine_scan(a, b, init, reverse)
    previous = shift(x, init, forward=not reverse)
    # What a cut keeps out of x must not enter its tangent as 0·NaN either.
    previous = jnp.where((a == 0) & ~jnp.isfinite(previous), 0, previous)
    return x, _affine_scan(a, a_dot * previous + b_dot, init_dot, reverse)


affine_scan = jax.jit(_affine_scan, static_argnums=3, inline=True)


def sequential_scan(a, b, init, *, reverse: bool):
    """Scan one step after the other: the least work, and the fastest on a CPU."""

    def step(x, row):
        a_t, b_t = row
        x = jnp.where(a_t == 0, b_t, a_t * x + b_t)
        return x, x

    return lax.scan(step, init + zeros_of_a_row(a, b, dtype=b.dtype), (a, b), reverse=reverse)[1]


def zeros_of_a_row(*arrays, dtype):
    """Return zeros of one row that vary over the arrays' mesh axes, as shard_map wants carries."""
    return sum(jnp.zeros_like(x, dtype).sum(0) for x in arrays)


def associative_scan(a, b, init, *, reverse: bool):
    """Scan in ⌈log₂ T⌉ parallel rounds, for accelerators."""

    def compose(first, second):
        # Operands come in the order of the walk; the second map is applied after the first.
        passed = jnp.where(second[0] == 0, 0, second[0] * first[1])
        return second[0] * first[0], passed + second[1]

    products, sums = lax.associative_scan(compose, (a, b), reverse=reverse)
    return sums + jnp.where(products == 0, 0, products * init)


def shift(x, edge, *, forward: bool):
    """Return row t−1 of x at row t (forward), or row t+1, with `edge` where there is none."""
    edge = jnp.broadcast_to(edge, x.shape[1:])[None]
    return jnp.concatenate([edge, x[:-1]] if forward else [x[1:], edge])


@partial(jax.jit, static_argnums=(0, 1, 2, 3), inline=True)
def estimate(recipe, compose, dtype, axis, floats, flags, numbers, valid):
    """Return the recipe's outputs by one program: outside jit it is one dispatch, not thirty.

    Accelerators and derivatives use `compose` (of `arrays.scan`).
    """
    return _estimate(recipe, compose, dtype, axis, floats, flags, numbers, valid)


@partial(jax.custom_jvp, nondiff_argnums=(0, 1, 2, 3))
def _estimate(recipe, compose, dtype, axis, floats, flags, numbers, valid):
    return lax.platform_dependent(
        floats,
        flags,
        numbers,
        valid,
        cpu=partial(estimate_stepwise, recipe, dtype, axis),
        default=partial(_composed, recipe, compose, dtype, axis),
    )


@_estimate.defjvp
def _estimate_jvp(recipe, compose, dtype, axis, primals, tangents):
    return jax.jvp(partial(_composed, recipe, compose, dtype, axis), primals, tangents)


def _composed(recipe, compose, dtype, axis, floats, flags, numbers, valid):
    library = library_of(floats[0])
    return compose(recipe, library, dtype, axis, floats, flags, numbers, valid)


def estimate_stepwise(recipe, dtype, axis, floats, flags, numbers, valid):
    """Return the outputs row by row, the recipe being the body of one sequential scan."""
    wide = jnp.float64 if dtype == jnp.float64 else jnp.float32
    steps = floats[0].shape[axis]
    rows = [jnp.moveaxis(x, axis, 0) for x in (*floats, *flags)]
    ahead = [rows_ahead(jnp, rows[k], 0, 1) for k in recipe.ahead]
    valid = None if valid is None else jnp.moveaxis(valid, axis, 0)
    last = jnp.arange(steps) == steps - 1
    if valid is not None:
        last = last.reshape(-1, *[1] * (valid.ndim - 1)) | ~rows_ahead(jnp, valid, 0, 1)
    numbers = [jnp.asarray(x, wide) for x in numbers]
    # A number without an entry for each step stays outside the scan.
    by_step = [x.ndim > 0 and x.shape[axis] == steps for x in numbers]
    fixed = [
        x if x.ndim == 0 else x.squeeze(axis) if not s else None
        for x, s in zip(numbers, by_step, strict=True)
    ]
    varying = [jnp.moveaxis(x, axis, 0) for x, s in zip(numbers, by_step, strict=True) if s]

    def step(x_next, inputs):
        fields, varying, ahead, last, valid = inputs
        varying = iter(varying)
        fields = [x.astype(wide) if jnp.issubdtype(x.dtype, jnp.floating) else x for x in fields]
        ahead = [x.astype(wide) if jnp.issubdtype(x.dtype, jnp.floating) else x for x in ahead]
        numbers = [next(varying) if x is None else x for x in fixed]
        row = recipe.row(*fields, *numbers, *ahead)
        a, b = recipe.coefficients(jnp.where, row, last)
        x = jnp.where(a == 0, b, a * x_next + b)
        outs = recipe.readout(jnp.where, row, last, x, x_next)
        if valid is not None:
            x = jnp.where(valid, x, 0)
            outs = [jnp.where(valid, out, 0) for out in outs]
        return x, tuple(jnp.broadcast_to(out, x.shape).astype(dtype) for out in outs)

    start = zeros_of_a_row(*rows, dtype=wide)
    _, outs = lax.scan(step, start, (rows, varying, ahead, last, valid), reverse=True)
    return tuple(jnp.moveaxis(out, 0, axis) for out in outs)
