"""The polynomials of `numba_math` against the library's functions."""

import numpy as np
from numba import njit

from loopless.compiled import math as numba_math

WITHIN = 2 * 2.0**-24 * 1.5  # two units of the last place


@njit
def exps(x, out):
    for i in range(x.size):
        out[i] = numba_math.exp(x[i])


@njit
def logs(x, out):
    for i in range(x.size):
        out[i] = numba_math.log(x[i])


def each(function, x):
    out = np.empty_like(x)
    function(x, out)
    return out


def test_exponentials_are_within_two_units_of_the_last_place():
    x = np.append(np.linspace(-87, 0, 100_001), [-0.0, -1e-30]).astype(np.float32)
    exact = np.exp(x.astype(float))
    assert np.max(np.abs(each(exps, x) - exact) / exact) < WITHIN
    assert not each(exps, np.full(3, -np.inf, np.float32)).any()


def test_logarithms_are_within_two_units_of_the_last_place():
    near = 1 + np.linspace(-0.5, 1, 100_001)
    far = np.exp2(np.linspace(-125.9, 127.9, 100_001))
    x = np.concatenate([near, far]).astype(np.float32)
    exact = np.log(x.astype(float))
    wrong = np.abs(each(logs, x) - exact)
    assert np.all(wrong <= WITHIN * np.abs(exact))


def test_the_ends_of_the_logarithm():
    x = np.array([0, 1, np.inf, np.nan], np.float32)
    np.testing.assert_array_equal(each(logs, x), [-np.inf, 0, np.inf, np.nan])


def test_double_precision_is_the_librarys():
    x = np.linspace(0.1, 9, 100)
    np.testing.assert_array_equal(each(logs, x), np.log(x))
    np.testing.assert_allclose(each(exps, -x), np.exp(-x), rtol=1e-15)
