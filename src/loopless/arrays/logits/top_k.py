"""The k largest of each row on JAX arrays, for small k and rows of any length.

On a CPU XLA sorts each row one comparison at a time. Three ways are faster. A row's next largest
entry is a plain reduction, so that small k are selected one after the other. The k largest of a
long row are in the k blocks with the largest maxima, so that those blocks are selected first and
then only they are searched. Many short rows are sorted side by side, token by token into k places.
Of equal entries the first is taken, as `lax.top_k` does. Accelerators take `lax.top_k`.
"""

from functools import partial

import jax.numpy as jnp
from jax import lax

BLOCK = 64  # tokens in a block
MOST = 32  # entries selected one after the other; for larger k a sort is cheaper


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
    _, blocks = select(maxima, k)
    blocks = jnp.sort(blocks, -1)  # so that candidates stand in the order of their tokens
    tokens = (blocks[:, :, None] * BLOCK + jnp.arange(BLOCK, dtype=jnp.int32)).reshape(count, -1)
    # The last block may end after the last token; NaN, which is never selected, fills it up
    entries = jnp.take_along_axis(x, tokens, -1, mode="fill", fill_value=jnp.nan)
    value, places = select(entries, k)
    return value, jnp.take_along_axis(tokens, places, -1)
