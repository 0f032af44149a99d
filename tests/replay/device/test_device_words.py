"""Random words on the device: Threefry's, and the integers and fractions made of them."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numba import njit
from support.device_buffers import MASK, likely, words_of

from loopless.compiled import random
from loopless.replay.device import random_words
from loopless.replay.device.words import below, fraction, threefry, unit

ENDS = [0, 1, 2**11, 2**32 - 1, 2**32, MASK - 2**11, MASK - 1, MASK]


@pytest.mark.parametrize(
    ("key", "block", "answer"),  # of Random123's own test file
    [
        ((0, 0), (0, 0), (0x6B200159, 0x99BA4EFE)),
        ((2**32 - 1,) * 2, (2**32 - 1,) * 2, (0x1CB996FC, 0xBB002BE7)),
        ((0x13198A2E, 0x03707344), (0x243F6A88, 0x85A308D3), (0xC4923A9C, 0x483DF7A0)),
    ],
)
def test_threefry_gives_the_known_answers(key, block, answer):
    high, low = threefry(jnp.array(key, jnp.uint32), *jnp.array(block, jnp.uint32))
    assert (int(high), int(low)) == answer


@pytest.mark.parametrize("shape", [(5,), (3, 4)])
def test_words_are_the_64_bits_that_jax_draws(shape):
    words = random_words(jax.random.key(3), shape)
    with jax.threefry_partitionable(True):
        wanted = jax.random.bits(jax.random.key(3), shape, "uint64")
    np.testing.assert_array_equal(words, words_of(wanted))


def test_a_raw_key_is_the_key_that_it_wraps():
    np.testing.assert_array_equal(
        random_words(jax.random.PRNGKey(3), (5,)), random_words(jax.random.key(3), (5,))
    )


def test_keys_of_other_kinds_are_taken():
    first, second = (random_words(jax.random.key(k, impl="rbg"), (5,)) for k in (1, 2))
    assert first.shape == (2, 5)
    assert (first != second).any()


integers_below = jax.jit(below)
integers = st.integers(0, MASK) | st.sampled_from(ENDS)
sizes = st.integers(0, 2**32 - 1) | st.sampled_from([0, 1, 2**24 + 1, 2**31 - 1, 2**32 - 1])


@given(numbers=st.lists(integers, min_size=8, max_size=8), n=sizes)
def test_integers_are_the_upper_half_of_a_long_product(numbers, n):
    wanted = [number * n >> 64 for number in numbers]
    assert integers_below(words_of(numbers), np.uint32(n)).tolist() == wanted


@njit
def host_integers(numbers, n):
    return np.array([random.below(x, n) for x in numbers])


@pytest.mark.parametrize("n", [1, 7, 100_000, 2**24 + 3, 2**31 - 1])
def test_integers_are_the_hosts(n):
    numbers = np.random.default_rng(n).integers(0, MASK, 1000, np.uint64, endpoint=True)
    np.testing.assert_array_equal(
        below(words_of(numbers), np.uint32(n)), host_integers(numbers, np.uint64(n))
    )


def last_digits(slots, n):
    """Draws of slots by their remainder modulo 8, and its law."""
    law = np.array([len(range(r, n, 8)) for r in range(8)]) / n
    return np.bincount(np.asarray(slots) % 8, minlength=8), law


LARGE = 2**30 + 11  # as many slots as no buffer of a test could have


def test_every_slot_of_a_large_ring_can_be_drawn():
    words = random_words(jax.random.key(0), (100_000,))
    assert likely(*last_digits(below(words, np.uint32(LARGE)), LARGE))


def test_an_index_scaled_in_float32_is_caught():
    words = random_words(jax.random.key(0), (100_000,))
    scaled = (fraction(words, jnp.float32) * jnp.float32(LARGE)).astype(jnp.uint32)
    assert not likely(*last_digits(scaled, LARGE))


def test_fractions_are_the_hosts_in_float64():
    numbers = np.random.default_rng(0).integers(0, MASK, 1000, np.uint64, endpoint=True)
    numbers[: len(ENDS)] = ENDS
    wanted = ((numbers >> np.uint64(11)) + 1.0) * 2.0**-53
    np.testing.assert_array_equal(unit(words_of(numbers), jnp.float64), wanted)
    np.testing.assert_array_equal(fraction(words_of(numbers), jnp.float64), 1 - wanted)


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float64])
def test_both_ends_of_the_words_stay_in_range(dtype):
    words = words_of(ENDS)
    assert unit(words, dtype).dtype == fraction(words, dtype).dtype == dtype
    assert ((unit(words, dtype) > 0) & (unit(words, dtype) <= 1)).all()
    assert ((fraction(words, dtype) >= 0) & (fraction(words, dtype) < 1)).all()


def test_words_are_uniform_by_chi_square():
    words = np.asarray(random_words(jax.random.key(1), (50_000,)))
    for half in words:
        assert likely(np.bincount(half >> 26, minlength=64), np.full(64, 1 / 64))
