"""Exponentials and logarithms that the compiler can vectorize, for compiled kernels only.

LLVM cannot vectorize calls to libm, so in float32 these are polynomials that it can, within two
units of the last place. In float64 they are libm's.
"""

# Numba's decorators change what a function's signature means:
# pyright: reportCallIssue=false, reportGeneralTypeIssues=false

import math

import numpy as np
from numba import types
from numba.extending import intrinsic

from loopless.compiled.jit import overload

_ZERO, _HALF, _ONE = np.float32(0), np.float32(0.5), np.float32(1)
_LN2_HIGH, _LN2_LOW = np.float32(0.693359375), np.float32(-2.12194440e-4)

_LOWEST = np.float32(-87.3)  # exp of it is the smallest normal number
_LOG2E = np.float32(1.44269504)
_E2, _E3, _E4 = np.float32(0.5), np.float32(1.6666665459e-1), np.float32(4.1665795894e-2)
_E5, _E6 = np.float32(8.3334519073e-3), np.float32(1.3981999507e-3)
_E7 = np.float32(1.9875691500e-4)

_INFINITY, _ROOT = np.float32(np.inf), np.float32(0.70710678)  # log's polynomial is for √½ to √2
_FRACTION, _OF_HALF = np.int32(0x007FFFFF), np.int32(0x3F000000)
_L3, _L4, _L5 = np.float32(3.3333331667e-1), np.float32(-2.5000820998e-1), np.float32(2.0001229e-1)
_L6, _L7, _L8 = np.float32(-1.6623359941e-1), np.float32(1.4201721355e-1), np.float32(-1.3160127e-1)
_L9, _L10 = np.float32(1.2761768903e-1), np.float32(-7.6348483984e-2)


@intrinsic
def _as_float(typing, bits):
    """Return the float32 that these 32 bits stand for."""

    def generate(context, builder, signature, arguments):
        return builder.bitcast(arguments[0], context.get_value_type(types.float32))

    return types.float32(types.int32), generate


@intrinsic
def _as_bits(typing, x):
    """Return the 32 bits of this float32 as an integer."""

    def generate(context, builder, signature, arguments):
        return builder.bitcast(arguments[0], context.get_value_type(types.int32))

    return types.int32(types.float32), generate


def exp(x):
    """Return e to the power x, x ≤ 0; in float32 exactly 0 below the smallest normal number."""
    return math.exp(x)


@overload(exp)
def _exp(x):
    if x != types.float32:
        return lambda x: math.exp(x)

    def polynomial(x):
        clamped = _LOWEST if x < _LOWEST else x
        whole = np.int32(clamped * _LOG2E - _HALF)  # to the nearest: int32 cuts towards 0
        n = np.float32(whole)
        r = clamped - n * _LN2_HIGH - n * _LN2_LOW
        p = ((((_E7 * r + _E6) * r + _E5) * r + _E4) * r + _E3) * r + _E2
        p = p * r * r + r + _ONE
        power = _as_float(np.int32((whole + np.int32(127)) << np.int32(23)))
        return _ZERO if x < _LOWEST else p * power

    return polynomial


def log(x):
    """Return the natural logarithm of x, which is 0, a normal number above 0, infinity or NaN."""
    return math.log(x) if x > 0 else -math.inf if x == 0 else math.nan


@overload(log)
def _log(x):
    if x != types.float32:
        return lambda x: math.log(x)

    def polynomial(x):
        bits = _as_bits(x)
        part = _as_float(np.int32((bits & _FRACTION) | _OF_HALF))  # x = part · 2^n, ½ ≤ part < 1
        low = part < _ROOT
        n = np.float32((bits >> np.int32(23)) - np.int32(126)) - (_ONE if low else _ZERO)
        r = (part + part if low else part) - _ONE
        s = r * r
        p = ((_L10 * r + _L9) * r + _L8) * r + _L7
        p = (((p * r + _L6) * r + _L5) * r + _L4) * r + _L3
        p = p * r * s + n * _LN2_LOW - _HALF * s + r + n * _LN2_HIGH
        p = p if x < _INFINITY else x
        return p if x != _ZERO else -_INFINITY

    return polynomial


def lowest(x):
    """Return the number below which `exp` of x's dtype is 0: finite, so that 0 times it is 0."""
    return -750.0


@overload(lowest)
def _lowest(x):
    if x == types.float32:
        return lambda x: _LOWEST
    return lambda x: -750.0
