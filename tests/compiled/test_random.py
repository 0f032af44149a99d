"""The counter-based generator: known answers, ranges, uniformity, independence of neighbours."""

import numpy as np
import pytest
from numba import njit

from loopless.compiled import random

MASK = (1 << 64) - 1


def twin(key: int, counter: int) -> int:
    """splitmix64 with Python's integers."""
    z = (key + (counter + 1) * 0x9E3779B97F4A7C15) & MASK
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
    return z ^ (z >> 31)


@njit
def draws(key, start, n):
    out = np.empty(n, np.uint64)
    for i in range(n):
        out[i] = random.bits(key, start + np.uint64(i))
    return out


@njit
def integers(x, n):
    out = np.empty(x.size, np.uint64)
    for i in range(x.size):
        out[i] = random.below(x[i], n)
    return out


@njit
def units(x):
    out = np.empty(x.size)
    for i in range(x.size):
        out[i] = random.unit(x[i])
    return out


def test_the_first_numbers_are_those_of_splitmix64():
    # seed 1234567, as published with the generator
    assert draws(np.uint64(1234567), np.uint64(0), 3).tolist() == [
        6457827717110365317,
        3203168211198807973,
        9817491932198370423,
    ]


@pytest.mark.parametrize("key", [0, 1, 2**63, MASK])
@pytest.mark.parametrize("start", [0, 10**12, MASK - 50])
def test_equals_the_mixer_on_python_integers(key, start):
    got = draws(np.uint64(key), np.uint64(start), 20).tolist()
    assert got == [twin(key, (start + i) & MASK) for i in range(20)]


@pytest.mark.parametrize("n", [1, 2, 7, 1000, 2**24 + 1, 2**32 - 1])
def test_integers_are_the_exact_high_product(n):
    x = draws(np.uint64(3), np.uint64(0), 1000)
    assert integers(x, np.uint64(n)).tolist() == [(int(v) * n) >> 64 for v in x]
    edges = np.array([0, MASK], np.uint64)
    assert integers(edges, np.uint64(n)).tolist() == [0, n - 1]


def test_units_lie_in_the_half_open_interval():
    edges = np.array([0, MASK], np.uint64)
    assert units(edges).tolist() == [2.0**-53, 1.0]


@pytest.mark.parametrize("key", [0, 1, 12345])
def test_integers_are_uniform_by_chi_square(key):
    counts = np.bincount(
        integers(draws(np.uint64(key), np.uint64(0), 100_000), np.uint64(64)).astype(np.int64),
        minlength=64,
    )
    chi_square = ((counts - 100_000 / 64) ** 2 / (100_000 / 64)).sum()
    assert chi_square < 63 + 4 * (2 * 63) ** 0.5  # four standard deviations


def test_neighbouring_keys_and_counters_are_uncorrelated():
    x = units(draws(np.uint64(5), np.uint64(0), 100_000))
    y = units(draws(np.uint64(6), np.uint64(0), 100_000))
    assert abs(np.corrcoef(x, y)[0, 1]) < 4 / 100_000**0.5
    assert abs(np.corrcoef(x[:-1], x[1:])[0, 1]) < 4 / 100_000**0.5
