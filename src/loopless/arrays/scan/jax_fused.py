"""Whole recipes on JAX arrays: on the CPU one scan whose body is the recipe, each input read once.

Accelerators take the recipe over whole arrays and the associative scan, and so do derivatives
everywhere: their rules are those of `jax_scan`.
"""

from functools import partial

import jax
import jax.numpy as jnp
from jax import lax

from loopless.arrays import scan
from loopless.arrays.library import library_of
from loopless.arrays.scan import jax as jax_scan


@partial(jax.jit, static_argnums=(0, 1, 2), inline=True)
def estimate(recipe, dtype, axis, floats, flags, numbers, valid):
    """What `scan.estimate` gives, as one program: outside jit it is one dispatch, not thirty."""
    return _estimate(recipe, dtype, axis, floats, flags, numbers, valid)


@partial(jax.custom_jvp, nondiff_argnums=(0, 1, 2))
def _estimate(recipe, dtype, axis, floats, flags, numbers, valid):
    return lax.platform_dependent(
        floats,
        flags,
        numbers,
        valid,
        cpu=partial(stepwise, recipe, dtype, axis),
        default=partial(_composed, recipe, dtype, axis),
    )


@_estimate.defjvp
def _estimate_jvp(recipe, dtype, axis, primals, tangents):
    return jax.jvp(partial(_composed, recipe, dtype, axis), primals, tangents)


def _composed(recipe, dtype, axis, floats, flags, numbers, valid):
    library = library_of(floats[0])
    return scan.composed(recipe, library, dtype, axis, floats, flags, numbers, valid)


def stepwise(recipe, dtype, axis, floats, flags, numbers, valid):
    """The recipe row by row, in the body of one sequential scan."""
    wide = jnp.float64 if dtype == jnp.float64 else jnp.float32
    steps = floats[0].shape[axis]
    rows = [jnp.moveaxis(x, axis, 0) for x in (*floats, *flags)]
    ahead = [scan.rows_ahead(jnp, rows[k], 0, 1) for k in recipe.ahead]
    valid = None if valid is None else jnp.moveaxis(valid, axis, 0)
    last = jnp.arange(steps) == steps - 1
    if valid is not None:
        last = last.reshape(-1, *[1] * (valid.ndim - 1)) | ~scan.rows_ahead(jnp, valid, 0, 1)
    numbers = [jnp.asarray(x, wide) for x in numbers]
    # A number without an entry for each step stays outside the scan.
    by_step = [x.ndim > 0 and x.shape[axis] == steps for x in numbers]
    fixed = [
        x if x.ndim == 0 else x.squeeze(axis) if not s else None
        for x, s in zip(numbers, by_step, strict=True)
    ]
    varying = [jnp.moveaxis(x, axis, 0) for x, s in zip(numbers, by_step, strict=True) if s]

    def step(x_next, row):
        fields, varying, ahead, last, valid = row
        varying = iter(varying)
        fields = [x.astype(wide) if jnp.issubdtype(x.dtype, jnp.floating) else x for x in fields]
        ahead = [x.astype(wide) if jnp.issubdtype(x.dtype, jnp.floating) else x for x in ahead]
        numbers = [next(varying) if x is None else x for x in fixed]
        fields = (*fields, *numbers, *ahead)
        a, b = recipe.coefficients(jnp.where, last, *fields)
        x = jnp.where(a == 0, b, a * x_next + b)
        outs = recipe.readout(jnp.where, last, x, x_next, *fields)
        if valid is not None:
            x = jnp.where(valid, x, 0)
            outs = [jnp.where(valid, out, 0) for out in outs]
        return x, tuple(jnp.broadcast_to(out, x.shape).astype(dtype) for out in outs)

    start = jax_scan.zeros_of_a_row(*rows, dtype=wide)
    _, outs = lax.scan(step, start, (rows, varying, ahead, last, valid), reverse=True)
    return tuple(jnp.moveaxis(out, 0, axis) for out in outs)
