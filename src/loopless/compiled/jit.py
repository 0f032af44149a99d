"""How every kernel is compiled: cached on disk where there is a place for it."""

import warnings
from functools import partial
from typing import Any

from numba import cfunc, njit


def jit(*, contract: bool = True, reassociate: bool = False):
    """Numba's `njit` with the options that all kernels share.

    Nothing may change how NaN and infinity behave. A product and a sum may `contract` to one
    instruction with one rounding; sums may be reordered if `reassociate`.
    """
    allowed = {name for name, on in (("contract", contract), ("reassoc", reassociate)) if on}
    options = {
        "nogil": True,
        "error_model": "numpy",
        "fastmath": allowed or False,
        "boundscheck": False,
    }

    return lambda function: _cached(partial(njit, **options), function)


def c_function(signature):
    """What makes a C function of this signature of a Python function; as cached as kernels are."""
    options = {"error_model": "numpy", "boundscheck": False}
    return lambda function: _cached(partial(cfunc, signature, **options), function)


def _cached(decorator, function) -> Any:
    try:
        return decorator(cache=True)(function)
    except RuntimeError:  # neither the package's folder nor a home can be written to
        warnings.warn(
            "loopless: no folder for compiled kernels can be written to, so every process "
            "compiles its own. Set NUMBA_CACHE_DIR to one that can.",
            RuntimeWarning,
            stacklevel=3,
        )
        return decorator()(function)
