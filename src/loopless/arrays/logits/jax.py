"""Rows of logits on JAX arrays, in chunks of rows, and their derivative as a rule of reverse mode.

The chunks are steps of one sequential loop, so that a chunk's rows are still in the cache when
they are read again. The last chunk is moved back to end with the last row: overlapping rows are
computed twice, and nothing is padded. The gradient is computed in the backward pass, from the
logits and a few numbers a row.
"""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from loopless.arrays.logits.numpy import Difference

CHUNK = 1 << 18  # numbers of a chunk of rows: a megabyte, which second-level caches hold
BLOCK = 64  # tokens in a block
MOST = 32  # entries selected one after the other; for larger k a sort is cheaper


def survey(logits, k: int, rate, floor: float) -> tuple[Any, ...]:
    shape = logits.shape[:-1]
    fields = _by_chunks(partial(_survey, k, rate, floor), _flat(logits, len(shape)))
    return tuple(x.reshape(*shape, *x.shape[1:]) for x in fields)


def _survey(k: int, rate, floor: float, x):
    x = _wide(x)
    peak, top = top_k(x, k)
    shifted = (x - peak[:, None]) * rate
    e = jnp.exp(shifted)
    total = e.sum(-1)
    log_total = jnp.log(total)
    if floor:
        pi = e / total[:, None]
        raised = pi + floor
        entropy = -(pi * jnp.log(raised)).sum(-1)
        return top, peak, log_total, entropy, (pi * pi / raised).sum(-1) - entropy
    entropy = log_total - (e * _cut_low(shifted)).sum(-1) / total
    return top, peak, log_total, entropy, -entropy


def take(logits, tokens):
    """Return logits[..., tokens], NaN where there is no such token."""
    size = logits.shape[-1]
    tokens = jnp.where((tokens < 0) | (tokens >= size), size, tokens)  # indexing would wrap −1
    return jnp.take_along_axis(logits, tokens, -1, mode="fill")


def divergence(logits, slope: Difference):
    axes = logits.ndim - 1
    fields = [_flat(x, axes) for x in (logits, slope.others, *_columns(slope))]
    return _by_chunks(partial(_divergence, slope.rate), *fields).reshape(logits.shape[:-1])


def _divergence(rate, x, other, *row):
    log_pi, log_q = _logs(rate, x, other, *row)
    q = jnp.exp(log_q)
    return jnp.where(q > 0, q * (log_q - log_pi), 0).sum(-1)


def gradient(logits, slope, floor: float):
    """Return the derivative that the slope describes, [..., V], in the logits' own dtype."""
    axes = logits.ndim - 1
    if isinstance(slope, Difference):
        fields = (slope.others, *_columns(slope), slope.alpha, slope.counted)
        of_rows = partial(_differences, slope.rate)
    else:
        fields = slope[:-1]
        of_rows = partial(_slopes, slope.rate, floor)
    fields = [None if x is None else _flat(x, axes) for x in (logits, *fields)]
    # XLA does this in one pass, unless half precision or a floor makes it write intermediates.
    at_once = logits.dtype.itemsize > 2 and not floor and not isinstance(slope, Difference)
    out = of_rows(*fields) if at_once else _by_chunks(of_rows, *fields)
    return out.reshape(logits.shape)


def _slopes(rate, floor, x, peak, log_total, alpha, beta, tokens, less, counted):
    log_pi = (_wide(x) - peak[:, None]) * rate - log_total[:, None]
    out = _dense(log_pi, alpha[:, None], beta[:, None], floor)
    if counted is not None:
        out = jnp.where(counted[:, None], out, 0)
    rows = jnp.arange(len(out))[:, None]
    return out.at[rows, tokens].add(-less, mode="drop").astype(x.dtype)


def _dense(log_pi, alpha, beta, floor: float):
    """Return π (α + β h), with the h of `Slope`."""
    pi = jnp.exp(log_pi)
    if floor:
        raised = pi + floor
        return pi * (alpha + beta * (jnp.log(raised) + pi / raised))
    return pi * (alpha + beta * _cut_low(log_pi))


def _differences(rate, x, other, peak, log_total, other_peak, other_log_total, alpha, counted):
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


def with_slope(loss, logits, slope, floor: float):
    """Return `loss` with the slope as its derivative by `logits`, for reverse mode, once."""
    return _with_slope(floor, logits, loss, slope)


@partial(jax.custom_vjp, nondiff_argnums=(0,))
def _with_slope(floor, logits, loss, slope):
    return loss


def _forward(floor, logits, loss, slope):
    return loss, (logits, slope)


def _backward(floor, saved, cotangent):
    logits, slope = saved
    names = [name for name in ("alpha", "beta", "less") if name in slope._fields]
    slope = slope._replace(**{name: getattr(slope, name) * cotangent for name in names})
    return gradient(logits, slope, floor), None, None


_with_slope.defvjp(_forward, _backward)


def _cut_low(x):
    """Return logarithms, raised to a finite bound where e^x is 0: 0 times minus infinity is NaN.

    Comparing e^x with 0 instead would make XLA keep e^x in memory.
    """
    return jnp.maximum(x, -750.0 if x.dtype == jnp.float64 else -104.0)


def _wide(x):
    return x if x.dtype == jnp.float64 else x.astype(jnp.float32)


def _flat(x, axes: int):
    return x.reshape(-1, *x.shape[axes:])


def _by_chunks(function, *fields):
    """Return function(rows of the fields) for all rows [N, ...]; a field may be None."""
    count, size = fields[0].shape
    length = max(1, CHUNK // size)
    if count <= length:
        return function(*fields)
    chunks = -(-count // length)
    length = -(-count // chunks)  # of equal length, so that hardly any row overlaps

    def rows(first):
        parts = (None if x is None else lax.dynamic_slice_in_dim(x, first, length) for x in fields)
        return function(*parts)

    def step(chunk, outs):
        first = jnp.minimum(chunk * length, count - length)
        return jax.tree.map(
            lambda out, x: lax.dynamic_update_slice_in_dim(out, x, first, 0), outs, rows(first)
        )

    shapes = jax.eval_shape(rows, 0)
    outs = jax.tree.map(lambda x: jnp.zeros((count, *x.shape[1:]), x.dtype), shapes)
    return lax.fori_loop(0, chunks, step, outs)


# The k largest of each row, for small k and rows of any length.
#
# On a CPU XLA sorts each row one comparison at a time. Three ways are faster. A row's next largest
# entry is a plain reduction, so that small k are selected one after the other. The k largest of a
# long row are in the k blocks with the largest maxima, so that those blocks are selected first and
# then only they are searched. Many short rows are sorted side by side, token by token into k
# places. Of equal entries the first is taken, as `lax.top_k` does. Accelerators take `lax.top_k`.


def top_k(x, k: int):
    """Return the largest entry of each row of x [N, V], and the tokens [N, k] of its k largest."""
    return lax.platform_dependent(x, cpu=partial(_on_cpu, k=k), default=partial(_sorted, k=k))


def _sorted(x, k: int):
    values, tokens = lax.top_k(x, k)
    return values[:, 0], tokens


def _on_cpu(x, k: int):
    count, size = x.shape
    if k > MOST:
        return _sorted(x, k)
    if size >= 4 * k * BLOCK:
        return select_in_blocks(x, k)
    return insert_in_order(x, k) if size <= 512 <= count else select(x, k)


def insert_in_order(x, k: int):
    """Put token by token into k sorted places, for all rows at once: few tokens and many rows."""
    count, size = x.shape
    x = jnp.maximum(x, jnp.finfo(x.dtype).min).T  # so that even −inf is above an empty place

    def step(carry, column):
        values, tokens = carry
        entry, token = column
        stays = [value >= entry for value in values]

        def shift(places, new):
            """Put `new` after the places that stay; each place below takes the entry before it."""
            return [
                jnp.where(stay, place, jnp.where(above, new, before))
                for stay, place, above, before in zip(
                    stays, places, [True, *stays], [new, *places], strict=False
                )
            ]

        return (shift(values, entry), shift(tokens, token)), None

    empty = [jnp.full(count, -jnp.inf, x.dtype)] * k, [jnp.zeros(count, jnp.int32)] * k
    (values, tokens), _ = lax.scan(step, empty, (x, jnp.arange(size, dtype=jnp.int32)))
    return values[0], jnp.stack(tokens, -1)


def select(x, k: int):
    """Select one after the other: the largest below the last, or equal to it and further on."""
    value, tokens = _select(x, k)
    return value, jnp.minimum(tokens, x.shape[1] - 1)  # with NaN there may be none left to select


def _select(x, k: int):
    """Like `select`; where none is left, the token is one that does not exist."""
    count, size = x.shape
    x = x.T  # rows side by side, so that a reduction over tokens is elementwise
    places = jnp.arange(size, dtype=jnp.int32)[:, None]

    def step(i, carry):
        value, token, tokens = carry
        left = (x < value) | ((x == value) & (places > token))
        value = jnp.where(left, x, -jnp.inf).max(0)
        token = jnp.where(left & (x == value), places, size).min(0)
        return value, token, tokens.at[i].set(token)

    first = jnp.full(count, jnp.inf, x.dtype), jnp.full(count, -1, jnp.int32)
    value, token, tokens = step(0, (*first, jnp.zeros((k, count), jnp.int32)))
    _, _, tokens = lax.fori_loop(1, k, step, (value, token, tokens))
    return value, tokens.T


def select_in_blocks(x, k: int):
    """Select from the k blocks with the largest maxima.

    An entry outside of these blocks comes after the maximum of each: of equal maxima the first
    block is taken.
    """
    count, size = x.shape
    whole = size // BLOCK
    maxima = x[:, : whole * BLOCK].reshape(count, whole, BLOCK).max(-1)
    if size % BLOCK:
        maxima = jnp.concatenate([maxima, x[:, whole * BLOCK :].max(-1, keepdims=True)], -1)
    _, blocks = _select(maxima, k)  # there may be fewer than k
    blocks = jnp.sort(blocks, -1)  # so that candidates stand in the order of their tokens
    tokens = (blocks[:, :, None] * BLOCK + jnp.arange(BLOCK, dtype=jnp.int32)).reshape(count, -1)
    # The last block may end after the last token; NaN, which is never selected, fills it up
    entries = jnp.take_along_axis(x, tokens, -1, mode="fill", fill_value=jnp.nan)
    value, places = select(entries, k)
    return value, jnp.take_along_axis(tokens, places, -1)
