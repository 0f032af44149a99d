"""Losses whose minima are the eigenvectors of a Laplacian: ALLO, and GGDO to compare with.

Both take features [..., n, d] of NumPy, PyTorch or JAX and return a loss and its parts. Leading
axes are problems of their own. Half precision is computed in float32. Where a gradient is stopped
is part of the method, and is said with each loss. `laplacian.duals` updates the multipliers and
judges the features. Loop twins: `reference.laplacian`.
"""

import math
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from loopless.arrays import checks
from loopless.arrays.library import NUMBER, NUMPY, Library, compiled_once, typed
from loopless.arrays.scan.recipe import row_numbers

SCALES = ("half", "full")
PERTURBATIONS = ("none", "exponential", "squared", "squared-null-grad")


class AlloParts(NamedTuple):
    """The terms of `allo_loss`, and the quantities behind them; none has a gradient.

    graph, perturbation, dual, barrier: the terms that pull at the features.
    dual_ascent, barrier_ascent: the terms by which descent raises the duals and the barrier.
    errors, other_errors: E1 and E2 [..., d, d], lower triangles.
    q: an estimate of the squared violation of the constraints.
    gate [..., d]: which components take part.
    """

    graph: Any
    perturbation: Any
    dual: Any
    barrier: Any
    dual_ascent: Any
    barrier_ascent: Any
    errors: Any
    other_errors: Any
    q: Any
    gate: Any


def allo_loss(
    features,
    next_features,
    other_features,
    duals,
    barrier,
    *,
    scale="half",
    constraint_features=None,
    integral=None,
    proportional_gain=1.0,
    integral_gain=0.0,
    gate_threshold=None,
    perturbation="none",
    perturbation_scale=0.01,
    perturbation_width=0.1,
) -> tuple[Any, AlloParts]:
    """Return the augmented Lagrangian whose saddle point is the first d eigenvectors, in order.

        E1 = tril(⟨φ_j, sg φ_k⟩ − δ_jk)           over the batch of φ; E2 of `other_features`
        loss = c Σ_j mean (φ_j − φ'_j)²           graph: what neighbors in time differ by
             + Σ sg(β) ∘ E  +  sg(b) q            dual, barrier: orthonormal, one after the other
             − Σ β ∘ sg(P E + I integral)         so that descent raises β and b
             − b sg(r)

        scale     c    E              q                  r                         β_jj at the end
        "half"    ½    E1             2 Σ E1 ∘ sg(E2)    |q|                       −2 λ_j
        "full"    1    ½ (E1 + E2)    Σ E1 ∘ E2          Σ max(E1 ∘ E2, 0) / d²    −4 λ_j

    `features` φ and `next_features` φ' [..., n, d] are of pairs of a state and a later one,
    `other_features` [..., m, d] of states drawn apart from them: if E1 and E2 are not independent,
    q is biased. In "half" the others get no gradient, so that their backward pass costs nothing;
    in "full" they do. `constraint_features` [..., m', d], if given, stand in for φ in E1. `duals` β
    are [..., d, d] and `barrier` b is a number or [...]. Late components fail if b is below
    λ_d − λ_1 (twice that in "full").

    P and I are the gains, `integral` [..., d, d] the running sum of errors. With `gate_threshold`
    a component takes part only where all entries of earlier rows of E1 are below it; mind that the
    noise of a batch of n samples is 1/√n. A `perturbation` of that scale and width lifts all
    components but the first off the constant.

    Returns (loss [...], AlloParts). The loss is no measure of progress: its terms all but cancel.
    Log the parts, which for half-precision features are float32.

    Gomez, Bowling & Machado 2024, eq. 6. Loop twin: `reference.laplacian.allo_loss`.
    """
    function = "allo_loss"
    checks.choice(function, "scale", scale, SCALES)
    checks.choice(function, "perturbation", perturbation, PERTURBATIONS)
    optional = {"constraint_features": constraint_features, "integral": integral}
    library, dtype, barrier = _check(
        function,
        features,
        {"next_features": next_features, "other_features": other_features, "duals": duals}
        | {name: x for name, x in optional.items() if x is not None},
        barrier,
    )
    number = partial(finite, function)
    numbers = (
        number("proportional_gain", proportional_gain),
        number("integral_gain", integral_gain),
        number("perturbation_scale", perturbation_scale),
        number("perturbation_width", perturbation_width, above_0=True),
        None if gate_threshold is None else number("gate_threshold", gate_threshold, above_0=True),
    )
    if integral is None and not (isinstance(integral_gain, NUMBER) and integral_gain == 0):
        raise ValueError(
            f"{function}: integral_gain={integral_gain} without an integral. Pass the running sum "
            f"of errors [..., d, d]."
        )
    options = dtype, scale, perturbation
    arrays = features, next_features, other_features, constraint_features, duals, integral, barrier
    return compiled_once(library, _allo, (0, 1))(library, options, numbers, *arrays)


def _allo(
    library: Library,
    options,
    numbers,
    features,
    next_features,
    other_features,
    constraint_features,
    duals,
    integral,
    barrier,
):
    dtype, scale, perturbation = options
    proportional_gain, integral_gain, perturbation_scale, perturbation_width, threshold = numbers
    xp, sg = library.xp, partial(_stopped, library)
    wide = partial(library.cast, dtype=library.wide(dtype))

    features, next_features, duals = wide(features), wide(next_features), xp.tril(wide(duals))
    barrier = typed(library, barrier, library.wide(dtype), features)
    first = features if constraint_features is None else wide(constraint_features)
    other = wide(other_features if scale == "full" else sg(other_features))
    errors = xp.tril(_off_orthonormal(library, first, sg(first)))
    other_errors = xp.tril(_off_orthonormal(library, other, sg(other)))
    gate = _gate(xp, errors, threshold)

    def total(x):  # over rows of components that take part
        return xp.sum(x if threshold is None else xp.where(gate[..., None], x, 0), (-2, -1))

    steps = features - next_features
    if threshold is not None:
        steps = xp.where(gate[..., None, :], steps, 0)
    if scale == "half":
        weight, error, products = 0.5, errors, 2.0 * errors * sg(other_errors)
    else:
        weight, error, products = 1.0, 0.5 * (errors + other_errors), errors * other_errors
    push = proportional_gain * error
    if integral is not None:
        push = push + integral_gain * xp.tril(wide(integral))
    q = total(products)
    rise = abs(q) if scale == "half" else total(xp.clip(products, 0, None)) / duals.shape[-1] ** 2
    terms = (
        weight * xp.sum(xp.mean(steps * steps, -2), -1),
        perturbation_scale * _lift(xp, features[..., 1:], perturbation, perturbation_width),
        total(sg(duals) * error),
        sg(barrier) * q,
        -total(duals * sg(push)),
        -barrier * sg(rise),
    )
    loss = library.cast(sum(terms), dtype)
    parts = AlloParts(*terms, errors, other_errors, q, gate)
    return _array(library, loss), AlloParts(**{k: sg(x) for k, x in parts._asdict().items()})


def _gate(xp, errors, threshold):
    """Return [..., d]: whether all entries of earlier rows are below the threshold; NaN is not."""
    if threshold is None:
        return xp.ones_like(errors[..., 0]) > 0
    below = xp.all(abs(errors) < threshold, -1)
    before = xp.concatenate([xp.ones_like(below[..., :1]), below[..., :-1]], -1)
    return xp.cumprod(before * 1, -1) > 0


def _lift(xp, later, perturbation, width):
    """Return the sum of the perturbations of the components [..., n, d − 1] after the first."""
    centred = later - xp.mean(later, -2)[..., None, :]
    least = math.exp(-1.0 / width) if isinstance(width, float) else xp.exp(-1.0 / width)
    if perturbation == "none":
        height = xp.zeros_like(later[..., 0, :])
    elif perturbation == "exponential":
        height = xp.exp(-xp.mean(centred * centred, -2) / width) - least
    elif perturbation == "squared":
        distance = abs(centred - 1.0) + least
        height = xp.mean(distance * distance - least**2, -2)
    else:
        height = xp.mean((centred - 1.0) ** 2, -2)
    return xp.sum(xp.clip(height, 0.0, 1.0), -1)


class GgdoParts(NamedTuple):
    """The terms of `ggdo_loss`, E1 and E2 [..., d, d], and the penalty q; no gradients."""

    graph: Any
    barrier: Any
    errors: Any
    other_errors: Any
    q: Any


def ggdo_loss(
    features, next_features, other_features, *, barrier=2.0, constraint_features=None
) -> tuple[Any, GgdoParts]:
    """Return the generalized graph-drawing objective: weights give the order, a penalty the norm.

        loss = Σ_j c_j mean (φ_j − φ'_j)²  +  b q       c_j = d − j + 1
        q = d² Σ_jk w_jk E1_jk E2_jk / Σ w              w_jk = min(c_j, c_k)
        E1 = ⟨φ_j, φ_k⟩ − δ_jk                          E2 of `other_features`

    The baseline that `allo_loss` is compared with: all features get gradients, there are no
    multipliers, and for a finite b the eigenvectors are not its minimum. Arguments as there.

    Returns (loss [...], GgdoParts).

    Wang et al. 2021, with the penalty of Gomez et al. 2024. Loop twin:
    `reference.laplacian.ggdo_loss`.
    """
    others = {"next_features": next_features, "other_features": other_features}
    if constraint_features is not None:
        others["constraint_features"] = constraint_features
    library, dtype, barrier = _check("ggdo_loss", features, others, barrier)
    arrays = features, next_features, other_features, constraint_features, barrier
    return compiled_once(library, _ggdo, (0, 1))(library, dtype, *arrays)


def _ggdo(library, dtype, features, next_features, other_features, constraint_features, barrier):
    xp, wide = library.xp, partial(library.cast, dtype=library.wide(dtype))
    features, next_features, other = wide(features), wide(next_features), wide(other_features)
    barrier = typed(library, barrier, library.wide(dtype), features)
    first = features if constraint_features is None else wide(constraint_features)
    errors, other_errors = _off_orthonormal(library, first), _off_orthonormal(library, other)
    d = features.shape[-1]
    weights = wide(d - row_numbers(library, features, -1, d).reshape(d))
    pairs = xp.minimum(weights[:, None], weights)
    steps = features - next_features
    q = d**2 * xp.sum(pairs * errors * other_errors, (-2, -1)) / xp.sum(pairs)
    sg = partial(_stopped, library)
    terms = xp.sum(weights * xp.mean(steps * steps, -2), -1), sg(barrier) * q
    parts = GgdoParts(*terms, errors, other_errors, q)
    loss = _array(library, library.cast(sum(terms), dtype))
    return loss, GgdoParts(**{k: sg(x) for k, x in parts._asdict().items()})


def _off_orthonormal(library: Library, x, y=None):
    """Return ⟨x_j, y_k⟩ − δ_jk over the batch, [..., d, d]."""
    xp, (n, d) = library.xp, x.shape[-2:]
    place = {"device": x.device} if library.name == "torch" else {}
    products = xp.matmul(xp.swapaxes(x, -1, -2), x if y is None else y)
    return products / n - xp.eye(d, dtype=x.dtype, **place)


def _stopped(library: Library, x):
    return library.constant(_array(library, x))


def _array(library: Library, x):
    return library.xp.asarray(x) if library is NUMPY else x  # NumPy's sums are no arrays


def _check(function: str, features, others: dict[str, Any], barrier) -> tuple[Library, Any, Any]:
    """Return the library and the common dtype of features [..., n, d], and the barrier."""
    arguments = checks.Arguments(function, "features", features)
    shape = tuple(features.shape)
    if features.ndim < 2 or 0 in shape[-2:]:
        raise ValueError(
            f"{function}: features has shape {shape}; it must be [..., n, d] with at least one "
            f"sample and one component."
        )
    lead, d = shape[:-2], shape[-1]
    wanted = {
        "next_features": shape,
        "duals": (*lead, d, d),
        "integral": (*lead, d, d),
    }
    arguments.alike("features", features)
    dtype = arguments.floating("features", features)
    for name, x in others.items():
        dtype = arguments.library.promote(dtype, _floating(arguments, name, x))
        if name in wanted:
            fits = tuple(x.shape) == wanted[name]
        else:  # any number of samples
            fits = x.ndim == len(shape) and (*lead, d) == (*x.shape[:-2], x.shape[-1])
            fits = fits and 0 not in x.shape
        if not fits:
            raise ValueError(
                f"{function}: {name} has shape {tuple(x.shape)}; beside features of shape {shape} "
                f"it must be {wanted.get(name) or _shape_text((*lead, 'm', d))}."
            )
    return arguments.library, dtype, _check_barrier(arguments, barrier, lead)


def _shape_text(shape: tuple) -> str:
    return f"({', '.join(map(str, shape))})"


def _floating(arguments: checks.Arguments, name: str, x) -> Any:
    arguments.same_library(name, x)
    dtype = arguments.floating(name, x)
    arguments.alike(name, x)
    return dtype


def _check_barrier(arguments: checks.Arguments, barrier, lead: tuple[int, ...]) -> Any:
    """Return the barrier: a float, or an array of the leading shape."""
    function = arguments.function
    if isinstance(barrier, (*NUMBER, np.number)):
        barrier = checks.real(function, "barrier", barrier)
        if not barrier >= 0 or math.isinf(barrier):
            raise ValueError(f"{function}: barrier must be at least 0; received {barrier}.")
        return barrier
    _floating(arguments, "barrier", barrier)
    if tuple(barrier.shape) not in ((), lead):
        raise ValueError(
            f"{function}: barrier has shape {tuple(barrier.shape)}; it must be a number, or have "
            f"the leading shape of the features, {lead}."
        )
    if arguments.library is NUMPY and not (barrier >= 0).all():
        raise ValueError(f"{function}: barrier must be at least 0; received {barrier.min()}.")
    return barrier


def finite(function: str, name: str, x, *, above_0: bool = False) -> Any:
    """Return `x` as a finite Python number; a 0-d array of JAX, which may be traced, as it is."""
    if checks.is_scalar_array(x):
        return x
    x = checks.real(function, name, x)
    if not math.isfinite(x):
        raise ValueError(f"{function}: {name} must be finite; received {x}.")
    if above_0 and not x > 0:
        raise ValueError(f"{function}: {name} must be above 0; received {x}.")
    return float(x)
