"""What learned features are worth: their eigenvalues, and how near they are to the true vectors.

Pure, and of any of the three libraries, so that a trainer may ask inside its compiled step. Loop
twins: `reference.laplacian`. Tests: `tests/kernels/test_laplacian_scores.py`.
"""

from typing import Any

from loopless.arrays import checks
from loopless.kernels.laplacian.losses import SCALES

_FACTORS: dict[str, float] = {"half": 0.5, "full": 0.25}


def eigenvalues(duals, barrier, errors, *, scale: str = "half") -> Any:
    """λ̂ [..., d], the eigenvalues of the pairs' Laplacian that the multipliers stand for.

        λ̂_j = −c (β_jj + 2 b E_jj)        c = ½ in "half", ¼ in "full"

    β alone lags behind by 2b / rate steps; with the error's share the sum is right long before.
    `errors` are E as `allo_updates` has it, best an average over many steps. They are of the kernel
    of gaps ≥ 1: for those of the successor representation multiply by the discount.
    """
    checks.choice("eigenvalues", "scale", scale, SCALES)
    xp = checks.library_or_refuse("eigenvalues", "duals", duals).xp
    if hasattr(barrier, "ndim") and barrier.ndim:
        barrier = barrier[..., None]
    return -_FACTORS[scale] * (_diagonal(xp, duals) + 2.0 * barrier * _diagonal(xp, errors))


def similarities(features, vectors, spaces, weights=None) -> Any:
    """How much of each feature lies in the eigenspace of its place: [d], from 0 to 1.

        |P_j φ_j| / |φ_j|,  P_j onto all vectors of the same space as the j-th

    `features` [states, d]; `vectors` [states, k], k ≥ d, orthonormal under `weights` [states] that
    sum to 1 (uniform if left out); `spaces` [k], numbers that are equal within an eigenspace. For a
    simple eigenvalue this is |cos|. It knows no sign, no scale, no rotation within a space. A
    feature that is 0 everywhere scores 0.
    """
    library = checks.library_or_refuse("similarities", "features", features)
    xp = library.xp
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
    found = xp.sum(xp.where(same, shares, 0.0), 1)
    return xp.sqrt(xp.where(norms > 0, found / xp.where(norms > 0, norms, 1.0), 0.0))


def _diagonal(xp, matrix):
    return xp.diagonal(matrix, 0, -2, -1)
