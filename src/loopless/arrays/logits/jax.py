"""Rows of logits on JAX arrays, in chunks of rows, and their derivative as a rule of reverse mode.

The chunks are steps of one sequential loop, so that a chunk's rows are still in the cache when
they are read again. The last chunk is moved back to end with the last row: what overlaps is
computed twice, and nothing is padded. The gradient is computed in the backward pass, from the
logits and a few numbers a row. Tests: `tests/arrays/test_vocabulary.py`.
"""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from loopless.arrays.logits import Apart
from loopless.arrays.logits import top_k as jax_top_k

CHUNK = 1 << 18  # numbers of a chunk of rows: a megabyte, which second-level caches hold


def survey(logits, k: int, rate, floor: float) -> tuple[Any, ...]:
    shape = logits.shape[:-1]
    found = _by_chunks(partial(_survey, k, rate, floor), _flat(logits, len(shape)))
    return tuple(x.reshape(*shape, *x.shape[1:]) for x in found)


def _survey(k: int, rate, floor: float, x):
    x = _wide(x)
    peak, top = jax_top_k.top_k(x, k)
    shifted = (x - peak[:, None]) * rate
    e = jnp.exp(shifted)
    total = e.sum(-1)
    log_total = jnp.log(total)
    if floor:
        pi = e / total[:, None]
        raised = pi + floor
        entropy = -(pi * jnp.log(raised)).sum(-1)
        return top, peak, log_total, entropy, (pi * pi / raised).sum(-1) - entropy
    entropy = log_total - (e * _above_nothing(shifted)).sum(-1) / total
    return top, peak, log_total, entropy, -entropy


def picked(logits, tokens):
    """logits[..., tokens], NaN where there is no such token."""
    size = logits.shape[-1]
    tokens = jnp.where((tokens < 0) | (tokens >= size), size, tokens)  # indexing would wrap −1
    return jnp.take_along_axis(logits, tokens, -1, mode="fill")


def divergence(logits, slope: Apart):
    axes = logits.ndim - 1
    fields = [_flat(x, axes) for x in (logits, slope.others, *_columns(slope))]
    return _by_chunks(partial(_divergence, slope.rate), *fields).reshape(logits.shape[:-1])


def _divergence(rate, x, other, *row):
    log_pi, log_q = _logs(rate, x, other, *row)
    q = jnp.exp(log_q)
    return jnp.where(q > 0, q * (log_q - log_pi), 0).sum(-1)


def gradient(logits, slope, floor: float):
    """The slope written out, in the logits' own dtype."""
    axes = logits.ndim - 1
    if isinstance(slope, Apart):
        fields = (slope.others, *_columns(slope), slope.alpha, slope.counted)
        one = partial(_apart, slope.rate)
    else:
        fields = slope[:-1]
        one = partial(_slopes, slope.rate, floor)
    fields = [None if x is None else _flat(x, axes) for x in (logits, *fields)]
    # One pass where XLA needs nothing in between; half precision and a floor it would write out.
    at_once = logits.dtype.itemsize > 2 and not floor and not isinstance(slope, Apart)
    found = one(*fields) if at_once else _by_chunks(one, *fields)
    return found.reshape(logits.shape)


def _slopes(rate, floor, x, peak, log_total, alpha, beta, tokens, less, counted):
    log_pi = (_wide(x) - peak[:, None]) * rate - log_total[:, None]
    out = slope_of(log_pi, alpha[:, None], beta[:, None], floor)
    if counted is not None:
        out = jnp.where(counted[:, None], out, 0)
    rows = jnp.arange(len(out))[:, None]
    return out.at[rows, tokens].add(-less, mode="drop").astype(x.dtype)


def slope_of(log_pi, alpha, beta, floor: float):
    """π (α + β h), h being what `vocabulary.Slope` says."""
    pi = jnp.exp(log_pi)
    if floor:
        raised = pi + floor
        return pi * (alpha + beta * (jnp.log(raised) + pi / raised))
    return pi * (alpha + beta * _above_nothing(log_pi))


def _apart(rate, x, other, peak, log_total, other_peak, other_log_total, alpha, counted):
    log_pi, log_q = _logs(rate, x, other, peak, log_total, other_peak, other_log_total)
    out = alpha[:, None] * (jnp.exp(log_pi) - jnp.exp(log_q))
    if counted is not None:
        out = jnp.where(counted[:, None], out, 0)
    return out.astype(x.dtype)


def _columns(slope):
    return slope.peak, slope.log_total, slope.other_peak, slope.other_log_total


def _logs(rate, x, other, peak, log_total, other_peak, other_log_total):
    log_pi = (_wide(x) - peak[:, None]) * rate - log_total[:, None]
    other = other.astype(log_pi.dtype)
    return log_pi, (other - other_peak[:, None]) * rate - other_log_total[:, None]


@partial(jax.custom_vjp, nondiff_argnums=(0,))
def sloped(floor, logits, loss, slope):
    """`loss` with the derivative by `logits` that the slope tells; in reverse mode, once."""
    return loss


def _forward(floor, logits, loss, slope):
    return loss, (logits, slope)


def _backward(floor, saved, cotangent):
    logits, slope = saved
    names = [name for name in ("alpha", "beta", "less") if name in slope._fields]
    slope = slope._replace(**{name: getattr(slope, name) * cotangent for name in names})
    return gradient(logits, slope, floor), None, None


sloped.defvjp(_forward, _backward)


def _above_nothing(x):
    """Logarithms cut where e to them is 0: 0 times minus infinity is not 0.

    Asked of e to them instead, XLA would keep those in memory for the answer.
    """
    return jnp.maximum(x, -750.0 if x.dtype == jnp.float64 else -104.0)


def _wide(x):
    return x if x.dtype == jnp.float64 else x.astype(jnp.float32)


def _flat(x, axes: int):
    return x.reshape(-1, *x.shape[axes:])


def _by_chunks(function, *fields):
    """function(rows of the fields), for all rows [N, ...]; a field may be None."""
    count, size = fields[0].shape
    length = max(1, CHUNK // size)
    if count <= length:
        return function(*fields)
    chunks = -(-count // length)
    length = -(-count // chunks)  # even, so that next to nothing overlaps

    def rows(first):
        cut = (None if x is None else lax.dynamic_slice_in_dim(x, first, length) for x in fields)
        return function(*cut)

    def step(place, outs):
        first = jnp.minimum(place * length, count - length)
        return jax.tree.map(
            lambda out, x: lax.dynamic_update_slice_in_dim(out, x, first, 0), outs, rows(first)
        )

    shapes = jax.eval_shape(rows, 0)
    outs = jax.tree.map(lambda x: jnp.zeros((count, *x.shape[1:]), x.dtype), shapes)
    return lax.fori_loop(0, chunks, step, outs)
