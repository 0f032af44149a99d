"""The one primitive under every return estimator. Loop twin: `reference.scan`."""

import numpy as np

from loopless.arrays import checks, scan
from loopless.arrays.dispatch import as_numpy_on_cpu
from loopless.arrays.library import NUMBER


@as_numpy_on_cpu
def affine_scan(a, b, init=None, *, reverse=True, time_axis=0):
    """Return the solution x of the affine recurrence along time.

        x_t = a_t x_{t+1} + b_t,   x_T = init        reverse=True
        x_t = a_t x_{t−1} + b_t,   x_{−1} = init     reverse=False

    `b` is [T, ...] with time on `time_axis`; `a` is a number or spreads over b's shape; `init` is
    None for 0, or has b's shape without the time axis, or is a number. The result has b's shape;
    float16 and bfloat16 accumulate in float32. Differentiable in a, b and init, twice and more;
    the derivative is again a scan. Nothing is divided and no logarithm taken, so that T and the
    sign of a_t may be anything, and a_t may be 0.

    Blelloch 1990, §1.4. Loop twin: `reference.scan.affine_scan`.
    """
    function = "affine_scan"
    arguments = checks.Arguments(function, "b", b)
    library, dtype = arguments.library, arguments.floats({"b": b})
    axis = arguments.time_axis(time_axis)
    shape = tuple(b.shape)
    columns = shape[:axis] + shape[axis + 1 :]
    reverse = reverse if reverse.__class__ is bool else checks.flag(function, "reverse", reverse)
    init = 0.0 if init is None else init
    if isinstance(a, (*NUMBER, np.number)):
        a = checks.real(function, "a", a)
    if isinstance(init, (*NUMBER, np.number)):
        init = checks.real(function, "init", init)
    for name, x, spread in (("a", a, shape), ("init", init, columns)):
        if x.__class__ is float:
            continue
        arguments.spreads(name, x, spread)
        dtype = library.promote(dtype, x.dtype)  # pyright: ignore[reportAttributeAccessIssue]
    return scan.affine(library, a, library.cast(b, dtype), init, reverse=reverse, axis=axis)
