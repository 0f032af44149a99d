"""Random numbers inside compiled samplers: a counter through a mixer.

The generator of a buffer is two integers, a key and a counter: draw number c is `bits(key, c)` and
nothing else, so that state is saved exactly, draws can be made in any order, and a sampler of n
draws just moves the counter by n. The mixer is splitmix64's (Steele et al. 2014).
"""

import numpy as np

from loopless.compiled.jit import jit

_INCREMENT = np.uint64(0x9E3779B97F4A7C15)
_FIRST = np.uint64(0xBF58476D1CE4E5B9)
_SECOND = np.uint64(0x94D049BB133111EB)
_HALF = np.uint64(32)
_LOW = np.uint64(0xFFFFFFFF)


@jit(inline=True)
def bits(key, counter):
    """Return 64 random bits: draw number `counter` of the generator `key`, both uint64."""
    z = key + (counter + np.uint64(1)) * _INCREMENT
    z = (z ^ (z >> np.uint64(30))) * _FIRST
    z = (z ^ (z >> np.uint64(27))) * _SECOND
    return z ^ (z >> np.uint64(31))


@jit(inline=True)
def below(x, n):
    """Return an integer in [0, n), n < 2³²: the high half of x·n, biased by less than 2⁻³²."""
    high = (x >> _HALF) * n
    low = (x & _LOW) * n
    return (high + (low >> _HALF)) >> _HALF


@jit(inline=True)
def unit(x):
    """Return the bits x as a float64 in (0, 1], one of 2⁵³ equally likely values."""
    return (np.float64(x >> np.uint64(11)) + 1.0) * 2.0**-53
