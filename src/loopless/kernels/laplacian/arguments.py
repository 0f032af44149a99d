"""What `kernels.laplacian` and its kin ask of their arguments; the rest of them reads as the maths.

Shapes, dtypes, libraries and devices are looked at always, values of Python numbers too. Tests:
`tests/kernels/test_laplacian_refusals.py`.
"""

import math
from typing import Any

import numpy as np

from loopless.arrays import checks
from loopless.arrays.library import NUMBER, NUMPY, Library


def of_allo(
    function: str,
    features: dict[str, Any],
    matrices: dict[str, Any],
    barrier,
    choices: dict[str, tuple[str, tuple[str, ...]]] | None = None,
    gate_threshold=None,
    numbers: dict[str, Any] | None = None,
) -> tuple[Library, Any, tuple[float, ...]]:
    """The library, the common dtype, and the numbers as Python's."""
    for name, (given, options) in (choices or {}).items():
        checks.choice(function, name, given, options)
    phi = features["features"]
    library = checks.library_or_refuse(function, "features", phi)
    if phi.ndim < 2 or 0 in phi.shape[-2:]:
        raise ValueError(
            f"{function}: features has shape {tuple(phi.shape)}; it must be [..., n, d] with at "
            f"least one sample and one component."
        )
    lead, d = tuple(phi.shape[:-2]), phi.shape[-1]
    dtype = phi.dtype
    for name, x in (features | matrices).items():
        if x is None:
            continue
        dtype = library.promote(dtype, _dtype(function, name, x, library, phi))
        if name in matrices:
            fits, wanted = x.shape == (*lead, d, d), (*lead, d, d)
        elif name == "next_features":
            fits, wanted = x.shape == phi.shape, tuple(phi.shape)
        else:
            fits = x.ndim == phi.ndim and 0 not in x.shape and x.shape[-1] == d
            fits = fits and tuple(x.shape[:-2]) == lead
            wanted = f"({', '.join([*map(str, lead), 'm', str(d)])})"
        if not fits:
            raise ValueError(
                f"{function}: {name} has shape {tuple(x.shape)}; beside features of shape "
                f"{tuple(phi.shape)} it must be {wanted}."
            )
    _check_barrier(function, barrier, library, lead, phi)
    if gate_threshold is not None:
        number(function, "gate_threshold", gate_threshold, above=0.0)
    found = {name: number(function, name, x) for name, x in (numbers or {}).items()}
    if not found.get("perturbation_width", 1.0) > 0:
        raise ValueError(
            f"{function}: perturbation_width must be above 0; received "
            f"{found['perturbation_width']}."
        )
    if found.get("integral_gain") and matrices.get("integral") is None:
        raise ValueError(
            f"{function}: integral_gain={found['integral_gain']} without an integral. Pass the "
            f"running sum of errors [..., d, d]."
        )
    return library, dtype, tuple(found.values())


def number(function: str, name: str, x, *, above: float | None = None) -> float:
    """`x` as a finite Python number."""
    if isinstance(x, np.number):
        x = x.item()
    if isinstance(x, bool) or not isinstance(x, NUMBER):
        raise TypeError(f"{function}: {name} is a {type(x).__name__}; it must be a number.")
    if not math.isfinite(x) or (above is not None and not x > above):
        bound = "finite" if above is None else f"above {above:g}"
        raise ValueError(f"{function}: {name} must be {bound}; received {x}.")
    return float(x)


def _dtype(function, name, x, library: Library, like) -> Any:
    checks.same_library(function, name, x, library)
    if not library.is_float(x):
        raise TypeError(
            f"{function}: {name} has dtype {x.dtype}; it must be float16, bfloat16, float32 or "
            f"float64."
        )
    if not library.same_device(x, like):
        raise checks.devices_differ(function, name, x.device, "features", like.device)
    return x.dtype


def _check_barrier(function, barrier, library: Library, lead, like) -> None:
    if isinstance(barrier, (*NUMBER, np.number)):
        if isinstance(barrier, bool) or not barrier >= 0 or math.isinf(barrier):
            raise ValueError(f"{function}: barrier must be at least 0; received {barrier}.")
        return
    _dtype(function, "barrier", barrier, library, like)
    if tuple(barrier.shape) not in ((), lead):
        raise ValueError(
            f"{function}: barrier has shape {tuple(barrier.shape)}; it is a number, or one for "
            f"each leading index, {lead}."
        )
    if library is NUMPY and not (barrier >= 0).all():
        raise ValueError(f"{function}: barrier must be at least 0; received {barrier.min()}.")
