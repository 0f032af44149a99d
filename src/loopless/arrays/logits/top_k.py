"""The k largest of each row on JAX arrays, for small k and rows of any length.

On a CPU XLA sorts each row's tokens one comparison at a time. Three things beat that. Many short
rows are sorted side by side, token by token into k places. A row's next largest entry is a plain
reduction, so that small k are selected one after the other. And the k largest of a long row are in
the k blocks of the largest maxima: those are selected first, and then only they are searched. Of
equal entries the first is taken, as `lax.top_k` does. Accelerators take `lax.top_k`. Tests:
`tests/arrays/test_vocabulary.py`.
"""

from functools import partial

import jax.numpy as jnp
from jax import lax

BLOCK = 64  # neighbours in a block
MOST = 32  # selected one after the other; for larger k a sort is cheaper


def top_k(x, k: int):
    """The largest entry of each row of x [N, V], and the tokens [N, k] of its k largest."""
    return lax.platform_dependent(x, cpu=partial(_on_cpu, k=k), default=partial(_sorted, k=k))


def _sorted(x, k: int):
    values, tokens = lax.top_k(x, k)
    return values[:, 0], tokens


def _on_cpu(x, k: int):
    count, size = x.shape
    if k > MOST:
        return _sorted(x, k)
    if size >= 4 * k * BLOCK:
        return in_blocks(x, k)
    return inserted(x, k) if size <= 512 <= count else selected(x, k)


def inserted(x, k: int):
    """Token by token into k sorted places, for all rows at once: few tokens and many rows."""
    count, size = x.shape
    x = jnp.maximum(x, jnp.finfo(x.dtype).min).T  # above the empty places, whatever it is

    def step(carry, column):
        held, tokens = carry
        entry, token = column
        stays = [value >= entry for value in held]
        # Below the place of the new one, each takes what stood before it
        held = [
            jnp.where(stay, value, jnp.where(above, entry, before))
            for stay, value, above, before in zip(
                stays, held, [True, *stays], [entry, *held], strict=False
            )
        ]
        tokens = [
            jnp.where(stay, own, jnp.where(above, token, before))
            for stay, own, above, before in zip(
                stays, tokens, [True, *stays], [token, *tokens], strict=False
            )
        ]
        return (held, tokens), None

    empty = [jnp.full(count, -jnp.inf, x.dtype)] * k, [jnp.zeros(count, jnp.int32)] * k
    (held, tokens), _ = lax.scan(step, empty, (x, jnp.arange(size, dtype=jnp.int32)))
    return held[0], jnp.stack(tokens, -1)


def selected(x, k: int):
    """One after the other: the largest of what stands below, or beside and behind, the last."""
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


def in_blocks(x, k: int):
    """The k largest, from the k blocks of the largest maxima.

    An entry outside of them stands behind one of each: of equal maxima the first block is taken.
    """
    count, size = x.shape
    whole = size // BLOCK
    maxima = x[:, : whole * BLOCK].reshape(count, whole, BLOCK).max(-1)
    if size % BLOCK:
        maxima = jnp.concatenate([maxima, x[:, whole * BLOCK :].max(-1, keepdims=True)], -1)
    _, blocks = selected(maxima, k)
    blocks = jnp.sort(blocks, -1)  # so that candidates stand in the order of their tokens
    tokens = (blocks[:, :, None] * BLOCK + jnp.arange(BLOCK, dtype=jnp.int32)).reshape(count, -1)
    # Past the end of the last block nothing stands; NaN behind the last token is never selected
    entries = jnp.take_along_axis(x, tokens, -1, mode="fill", fill_value=jnp.nan)
    value, places = selected(entries, k)
    return value, jnp.take_along_axis(tokens, places, -1)
