"""Updates of ALLO's multipliers, eigenvalues from them, and how good the features are.

Descent on `allo_loss` moves duals and barrier too; `allo_updates` does the same without an
optimizer, and adds what the authors' programs have: an integral term, limits, and a barrier that
follows an average. `eigenvalues` and `similarities` judge the result. All are pure functions
of any of the three libraries, so that a trainer may call them inside its compiled update. Loop
twins: `reference.laplacian`.
"""

from typing import Any, NamedTuple

import numpy as np

from loopless.arrays import checks
from loopless.kernels.laplacian.losses import SCALES, AlloParts, finite

_FACTORS: dict[str, float] = {"half": 0.5, "full": 0.25}
_UNSET = 1e-13  # an average whose norm is below this has not begun


class Multipliers(NamedTuple):
    """What ALLO carries from update to update beside its encoder.

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
    """Return the first multipliers, NumPy arrays: `dual` on the lower triangle, or the diagonal."""
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
    """Return the multipliers after an update whose `allo_loss` had these `parts`.

        β ← tril(clip(β + dual_rate (P E + I integral), ± dual_limit))      rows that take part
        b ← clip(b + barrier_rate r, 0, barrier_limit)
        integral ← integral_decay · integral + E
        products ← products + product_rate (E1 ∘ E2 − products)             at first with rate 1

        "half"    E = E1               r = |q|, which raises b even if q < 0
        "full"    E = ½ (E1 + E2)      r = Σ max(products, 0) / d², of the new products

    Without an average and limits this is descent on `allo_loss`. Half-precision multipliers would
    not move: keep them in float32.
    """
    checks.choice("allo_updates", "scale", scale, SCALES)
    rates = {
        "dual_rate": dual_rate,
        "barrier_rate": barrier_rate,
        "proportional_gain": proportional_gain,
        "integral_gain": integral_gain,
        "integral_decay": integral_decay,
        "product_rate": product_rate,
    }
    for name, x in rates.items():
        finite("allo_updates", name, x)
    duals, barrier, integral, products = multipliers
    xp = checks.Arguments("allo_updates", "parts.errors", parts.errors).library.xp
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


def eigenvalues(duals, barrier, errors, *, scale: str = "half") -> Any:
    """Return λ̂ [..., d], the eigenvalues of the pairs' Laplacian that the multipliers stand for.

        λ̂_j = −c (β_jj + 2 b E_jj)        c = ½ in "half", ¼ in "full"

    β alone lags behind by 2b / rate updates; with the error's share, λ̂ is right long before that.
    `errors` are E as `allo_updates` has it, best an average over many updates. λ̂ belongs to the
    kernel of gaps ≥ 1; for the successor representation, multiply it by the discount.
    """
    checks.choice("eigenvalues", "scale", scale, SCALES)
    xp = checks.Arguments("eigenvalues", "duals", duals).library.xp
    if hasattr(barrier, "ndim") and barrier.ndim:
        barrier = barrier[..., None]
    return -_FACTORS[scale] * (_diagonal(xp, duals) + 2.0 * barrier * _diagonal(xp, errors))


def similarities(features, vectors, spaces, weights=None) -> Any:
    """Return how much of each feature j lies in the eigenspace of vector j: [d], from 0 to 1.

        |P_j φ_j| / |φ_j|,  P_j onto all vectors of the same space as the j-th

    `features` [states, d]; `vectors` [states, k], k ≥ d, orthonormal under `weights` [states] that
    sum to 1 (uniform if left out); `spaces` [k], numbers that are equal within an eigenspace. For a
    simple eigenvalue this is |cos|. It ignores sign, scale and rotations within a space. A
    feature that is 0 everywhere scores 0.
    """
    xp = checks.Arguments("similarities", "features", features).library.xp
    states, d = features.shape
    if vectors.shape[0] != states or vectors.shape[1] < d or spaces.shape != (vectors.shape[1],):
        raise ValueError(
            f"similarities: features have shape {tuple(features.shape)}, vectors "
            f"{tuple(vectors.shape)} and spaces {tuple(spaces.shape)}; with [states, d] they must "
            f"be [states, k] and [k], k at least d."
        )
    weighted = features / states if weights is None else features * weights[:, None]
    shares = xp.matmul(xp.swapaxes(weighted, 0, 1), vectors) ** 2
    same = spaces[:d, None] == spaces
    norms = xp.sum(weighted * features, 0)
    inside = xp.sum(xp.where(same, shares, 0.0), 1)
    return xp.sqrt(xp.where(norms > 0, inside / xp.where(norms > 0, norms, 1.0), 0.0))


def _diagonal(xp, matrix):
    return xp.diagonal(matrix, 0, -2, -1)
