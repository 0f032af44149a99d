"""How the multipliers of ALLO move: pure functions from the parts of a loss to the next state.

Descent on `allo_loss` moves duals and barrier too; here is the same without an optimiser, with what
the authors' codes add: an integral term, limits, and a barrier that follows an average. Loop twin:
`reference.laplacian.allo_updates`. Tests: `tests/kernels/test_laplacian_duals.py`.
"""

from typing import Any, NamedTuple

import numpy as np

from loopless.arrays import checks
from loopless.kernels.laplacian.arguments import number
from loopless.kernels.laplacian.losses import SCALES, AlloParts

_UNSET = 1e-13  # an average whose norm is below this has not begun


class Multipliers(NamedTuple):
    """What ALLO carries from step to step beside its encoder.

    duals β and integral [..., d, d]; barrier b [...]; products [..., d, d], the running average of
    E1 ∘ E2 that raises the barrier in "full".
    """

    duals: Any
    barrier: Any
    integral: Any
    products: Any


def first_multipliers(
    d: int,
    *,
    dual: float = -2.0,
    barrier: float = 0.5,
    diagonal: bool = False,
    dtype: str = "float32",
) -> Multipliers:
    """Where to begin, as NumPy arrays: `dual` on the lower triangle, or on the `diagonal` alone."""
    zeros = np.zeros((d, d), dtype)
    duals = dual * (np.eye(d, dtype=dtype) if diagonal else np.tril(np.ones((d, d), dtype)))
    return Multipliers(duals, np.asarray(barrier, dtype), zeros, zeros.copy())


def allo_updates(
    multipliers: Multipliers,
    parts: AlloParts,
    *,
    dual_rate: float,
    barrier_rate: float,
    scale: str = "half",
    proportional_gain: float = 1.0,
    integral_gain: float = 0.0,
    integral_decay: float = 0.99,
    product_rate: float = 0.1,
    dual_limit: float = np.inf,
    barrier_limit: float = np.inf,
) -> Multipliers:
    """The multipliers after a step whose `allo_loss` had these `parts`.

        β ← tril(clip(β + dual_rate (P E + I integral), ± dual_limit))      rows that take part
        b ← clip(b + barrier_rate r, 0, barrier_limit)
        integral ← integral_decay · integral + E
        products ← products + product_rate (E1 ∘ E2 − products)             the first time all of it

        "half"    E = E1               r = |q|, which raises b even if q < 0
        "full"    E = ½ (E1 + E2)      r = Σ max(products, 0) / d², of the new products

    Without an average and limits this is descent on `allo_loss`. Half-precision multipliers would
    not move: keep them in float32.
    """
    checks.choice("allo_updates", "scale", scale, SCALES)
    given = {
        "dual_rate": dual_rate,
        "barrier_rate": barrier_rate,
        "proportional_gain": proportional_gain,
        "integral_gain": integral_gain,
        "integral_decay": integral_decay,
        "product_rate": product_rate,
    }
    _ = [number("allo_updates", name, x) for name, x in given.items()]
    duals, barrier, integral, products = multipliers
    library = checks.library_or_refuse("allo_updates", "parts.errors", parts.errors)
    xp = library.xp
    both = parts.errors * parts.other_errors
    error = parts.errors if scale == "half" else 0.5 * (parts.errors + parts.other_errors)
    is_first = xp.sum(products * products, (-2, -1))[..., None, None] < _UNSET**2
    step = both - products
    products = products + xp.where(is_first, step, product_rate * step)
    push = proportional_gain * error + integral_gain * integral
    push = xp.where(parts.gate[..., None], push, 0.0)
    if scale == "half":
        rise = abs(parts.q)
    else:
        rise = xp.sum(xp.clip(products, 0, None), (-2, -1)) / products.shape[-1] ** 2
    duals = xp.tril(xp.clip(duals + dual_rate * push, -dual_limit, dual_limit))
    barrier = xp.clip(barrier + barrier_rate * rise, 0.0, barrier_limit)
    return Multipliers(duals, barrier, integral_decay * integral + error, products)
