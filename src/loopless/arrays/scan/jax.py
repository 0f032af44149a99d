"""The scan on JAX arrays: sequential on the CPU, associative on accelerators.

Differentiable in both modes and any number of times: the tangent of a scan is the same scan of
other coefficients, linear in them, and JAX transposes that into the scan the other way.
"""

import functools
from collections.abc import Callable
from functools import partial

import jax
import jax.numpy as jnp
from jax import lax


@functools.cache
def compiled(function: Callable, static: tuple[int, ...]) -> Callable:
    """`function` as one program: outside jit an estimator is then one dispatch, not thirty."""
    return jax.jit(function, static_argnums=static, inline=True)


@partial(jax.custom_jvp, nondiff_argnums=(3,))
def _affine_scan(a, b, init, reverse: bool):
    """x_t = a_t·x_{t±1} + b_t along the first axis; a has b's shape, init is b's without time."""
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
    """One step after the other: the least work, and the fastest on a CPU."""

    def step(x, row):
        a_t, b_t = row
        x = jnp.where(a_t == 0, b_t, a_t * x + b_t)
        return x, x

    return lax.scan(step, init + zeros_of_a_row(a, b, dtype=b.dtype), (a, b), reverse=reverse)[1]


def zeros_of_a_row(*arrays, dtype):
    """Zeros of one row, varying over the arrays' mesh axes: a carry that shard_map accepts."""
    return sum(jnp.zeros_like(x, dtype).sum(0) for x in arrays)


def associative_scan(a, b, init, *, reverse: bool):
    """In ⌈log₂ T⌉ parallel rounds, for accelerators."""

    def compose(first, second):
        # Operands come in the order of the walk; the second map is applied after the first.
        passed = jnp.where(second[0] == 0, 0, second[0] * first[1])
        return second[0] * first[0], passed + second[1]

    products, sums = lax.associative_scan(compose, (a, b), reverse=reverse)
    return sums + jnp.where(products == 0, 0, products * init)


def shift(x, edge, *, forward: bool):
    """Row t of the result is row t−1 of x (forward) or t+1, with `edge` where there is none."""
    edge = jnp.broadcast_to(edge, x.shape[1:])[None]
    return jnp.concatenate([edge, x[:-1]] if forward else [x[1:], edge])
