"""Random words in a compiled graph: 64 bits a draw from the caller's key, and numbers made of them.

`jax.random.randint` hashes twice and divides three times a draw; here a draw is one Threefry block
and one multiplication, as on the host, in 32-bit integers only. Every sampler takes its words as an
argument, so that a test can pass the host's. Host twin: `compiled.random`.
"""

import math
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

HALF = 16
LOW = 0xFFFF
PARITY = 0x1BD11BDA
ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))


def random_words(key: Any, shape: tuple[int, ...]) -> jax.Array:
    """Return 64 random bits for each element of `shape`: uint32 [2, *shape], the upper half first.

    With a Threefry key, element c is block number c of the cipher. In x64 mode
    `jax.random.bits(key, shape, "uint64")` returns the same bits; here x64 is not needed. Keys of
    other kinds go through `jax.random.bits`.
    """
    if not jnp.issubdtype(key.dtype, jax.dtypes.prng_key):
        key = jax.random.wrap_key_data(key)
    if str(jax.random.key_impl(key)) != "threefry2x32":
        return jax.random.bits(key, (2, *shape), jnp.uint32)
    counter = lax.iota(jnp.uint32, math.prod(shape)).reshape(shape)
    words = threefry(jax.random.key_data(key), jnp.zeros_like(counter), counter)
    return jnp.stack(words)


@jax.jit
def threefry(key: jax.Array, high: jax.Array, low: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Return Threefry-2x32 of 20 rounds (Salmon et al. 2011) of the blocks (`high`, `low`).

    The rounds are unrolled: on the CPU JAX's own version is a loop, which goes through memory.
    """
    parts = (key[0], key[1], key[0] ^ key[1] ^ jnp.uint32(PARITY))
    high, low = high + parts[0], low + parts[1]
    for turn in range(5):
        for rotation in ROTATIONS[turn % 2]:
            high = high + low
            low = high ^ ((low << rotation) | (low >> (32 - rotation)))
        high = high + parts[(turn + 1) % 3]
        low = low + parts[(turn + 2) % 3] + jnp.uint32(turn + 1)
    return high, low


def check_words(where: str, words: Any, axes: int) -> None:
    """Raise unless `words` have the dtype of random words and at least `axes` axes."""
    if words.dtype != jnp.uint32 or words.ndim < axes or words.shape[0] != 2:
        raise ValueError(
            f"{where}: words must be uint32 [2, ...], as random_words returns them; received "
            f"{words.shape} {words.dtype}."
        )


def below(words: jax.Array, n: Any) -> jax.Array:
    """Return an integer in [0, n) from each pair of words, n < 2³²: floor(x·n / 2⁶⁴) of 64-bit x.

    The result is uint32. Every integer below n can come, while a float32 times n would skip some
    from 2²⁴ on; the bias is below 2⁻³². n = 0 gives 0.
    """
    n = jnp.asarray(n, jnp.uint32)

    def step(carry: jax.Array, word: jax.Array) -> tuple[jax.Array, None]:
        low = word * n + carry
        return _upper_half(word, n) + (low < carry).astype(jnp.uint32), None

    # A loop over the two words, as in long multiplication, because XLA stores the result of a loop.
    # Without a loop it would compute an index anew for every number that is gathered with it.
    return lax.scan(step, jnp.zeros(words.shape[1:], jnp.uint32), words, reverse=True)[0]


def unit(words: jax.Array, dtype: Any) -> jax.Array:
    """Return a number in (0, 1] from each pair of words.

    float64: one of 2⁵³ equally likely, as on the host. float32: as precise near 0 as floats are.
    """
    if dtype == jnp.float64:
        x = (words[0].astype(jnp.uint64) << 32) | words[1].astype(jnp.uint64)
        return ((x >> 11).astype(jnp.float64) + 1) * 2.0**-53
    return (words[0].astype(jnp.float32) + 1) * jnp.float32(2.0**-32)


def fraction(words: jax.Array, dtype: Any) -> jax.Array:
    """Return a number in [0, 1) from each pair of words.

    It is one of 2⁵³ equally likely values in float64, one of 2²⁴ in float32.
    """
    if dtype == jnp.float64:
        return 1 - unit(words, dtype)
    return (words[0] >> 8).astype(jnp.float32) * jnp.float32(2.0**-24)


def wrap(x: jax.Array, capacity: int) -> jax.Array:
    """Return uint32 `x` modulo `capacity`, for `x` < 2·capacity: cheaper than a division."""
    return jnp.where(x >= capacity, x - jnp.uint32(capacity), x)


def _upper_half(a: jax.Array, b: jax.Array) -> jax.Array:
    """Return the upper 32 bits of a·b."""
    low_a, high_a, low_b, high_b = a & LOW, a >> HALF, b & LOW, b >> HALF
    cross, other = low_a * high_b, high_a * low_b
    middle = ((low_a * low_b) >> HALF) + (cross & LOW) + (other & LOW)
    return high_a * high_b + (cross >> HALF) + (other >> HALF) + (middle >> HALF)
