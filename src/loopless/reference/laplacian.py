"""ALLO and GGDO, one product at a time, and their gradients in closed form.

Features are [n, d], or [..., n, d] for several problems; results are float64. Gradients are what
descent sees: stopped operands are constants. The kernels are in `kernels.laplacian`.
"""

import math
from typing import Any

import numpy as np

PARTS = (
    "graph", "perturbation", "dual", "barrier", "dual_ascent", "barrier_ascent",
    "errors", "other_errors", "q", "gate",
)  # fmt: skip


def allo_loss(features, next_features, other_features, duals, barrier, **options):
    """Return the loss and its parts, as a dictionary; see `kernels.laplacian.allo_loss`."""
    return _over_problems(
        _allo_loss, features, next_features, other_features, duals, barrier, **options
    )


def allo_gradients(features, next_features, other_features, duals, barrier, **options):
    """Return the derivatives of the loss, by name of the argument."""
    return _over_problems(
        _allo_gradients, features, next_features, other_features, duals, barrier, **options
    )


def ggdo_loss(features, next_features, other_features, *, barrier=2.0, constraint_features=None):
    """Return the loss and its parts, as a dictionary; see `kernels.laplacian.ggdo_loss`."""
    return _over_problems(
        _ggdo_loss, features, next_features, other_features, None, barrier,
        constraint_features=constraint_features,
    )  # fmt: skip


def ggdo_gradients(
    features, next_features, other_features, *, barrier=2.0, constraint_features=None
):
    """Return the derivatives of the loss, by name of the argument."""
    return _over_problems(
        _ggdo_gradients, features, next_features, other_features, None, barrier,
        constraint_features=constraint_features,
    )  # fmt: skip


def _over_problems(
    function, features, next_features, other_features, duals, barrier, **options
) -> Any:
    """Return `function` of each leading index, results stacked."""
    features = np.asarray(features, np.float64)
    lead = features.shape[:-2]
    given = {"next_features": next_features, "other_features": other_features, "duals": duals}
    given |= {name: options.pop(name, None) for name in ("constraint_features", "integral")}
    given = {k: None if x is None else np.asarray(x, np.float64) for k, x in given.items()}
    barrier = np.broadcast_to(np.asarray(barrier, np.float64), lead)
    found = []
    for i in np.ndindex(lead):
        one = {name: None if x is None else x[i] for name, x in given.items()}
        found.append(function(features[i], barrier=float(barrier[i]), **one, **options))
    return _stacked(found, lead)


def _stacked(found, lead) -> Any:
    first = found[0]
    if isinstance(first, tuple):
        return tuple(_stacked([x[i] for x in found], lead) for i in range(len(first)))
    if isinstance(first, dict):
        return {k: _stacked([x[k] for x in found], lead) for k in first}
    return np.array(found).reshape((*lead, *np.shape(first)))


def inner_products(x):
    """Return ⟨x_j, x_k⟩: the mean over samples of x_ij x_ik."""
    n, d = x.shape
    products = np.zeros((d, d))
    for j in range(d):
        for k in range(d):
            products[j, k] = math.fsum(x[i, j] * x[i, k] for i in range(n)) / n
    return products


def off_orthonormal(x):
    """Return ⟨x_j, x_k⟩ − δ_jk."""
    products = inner_products(x)
    for j in range(len(products)):
        products[j, j] -= 1.0
    return products


def lower(matrix):
    """Return the lower triangle with its diagonal, 0 above."""
    kept = np.zeros_like(matrix)
    for j in range(len(matrix)):
        for k in range(j + 1):
            kept[j, k] = matrix[j, k]
    return kept


def gate_of(errors, threshold):
    """Return which components take part: all entries of earlier rows are below the threshold."""
    d = len(errors)
    gate, is_open = np.ones(d, bool), True
    for j in range(d):
        gate[j] = is_open
        if threshold is not None:
            for k in range(j + 1):
                if not abs(errors[j, k]) < threshold:  # NaN is not below
                    is_open = False
    return gate


def _allo_loss(
    features, next_features, other_features, duals, barrier, *, constraint_features, integral,
    scale="half", proportional_gain=1.0, integral_gain=0.0, gate_threshold=None,
    perturbation="none", perturbation_scale=0.01, perturbation_width=0.1,
):  # fmt: skip
    n, d = features.shape
    first = features if constraint_features is None else constraint_features
    errors, other_errors = lower(off_orthonormal(first)), lower(off_orthonormal(other_features))
    gate = gate_of(errors, gate_threshold)

    graph = 0.0
    for j in range(d):
        if gate[j]:
            steps = [(features[i, j] - next_features[i, j]) ** 2 for i in range(n)]
            graph += (0.5 if scale == "half" else 1.0) * sum(steps) / n
    lift = 0.0
    for j in range(1, d):
        height = _height(features[:, j], perturbation, perturbation_width)
        lift += perturbation_scale * min(max(height, 0.0), 1.0)

    dual = pushed = q = rise = 0.0
    for j in range(d):
        for k in range(j + 1):
            if not gate[j]:
                continue
            one, other = errors[j, k], other_errors[j, k]
            error = one if scale == "half" else 0.5 * (one + other)
            kept = 0.0 if integral is None else integral[j, k]
            dual += duals[j, k] * error
            pushed += duals[j, k] * (proportional_gain * error + integral_gain * kept)
            q += (2.0 if scale == "half" else 1.0) * one * other
            rise += max(one * other, 0.0) / d**2
    if scale == "half":
        rise = abs(q)
    terms = graph, lift, dual, barrier * q, -pushed, -barrier * rise
    parts = dict(zip(PARTS, (*terms, errors, other_errors, q, gate), strict=True))
    return sum(terms), parts


def _allo_gradients(
    features, next_features, other_features, duals, barrier, *, constraint_features, integral,
    scale="half", proportional_gain=1.0, integral_gain=0.0, gate_threshold=None,
    perturbation="none", perturbation_scale=0.01, perturbation_width=0.1,
):  # fmt: skip
    n, d = features.shape
    first = features if constraint_features is None else constraint_features
    errors, other_errors = lower(off_orthonormal(first)), lower(off_orthonormal(other_features))
    gate = gate_of(errors, gate_threshold)
    by_features, by_next = np.zeros((n, d)), np.zeros((n, d))
    for i in range(n):
        for j in range(d):
            if gate[j]:
                step = (1.0 if scale == "half" else 2.0) * (features[i, j] - next_features[i, j])
                by_features[i, j] += step / n
                by_next[i, j] -= step / n
    for j in range(1, d):
        slopes = _slopes(features[:, j], perturbation, perturbation_width)
        by_features[:, j] += perturbation_scale * slopes
    if scale == "half":
        by_first = _by_constraint(first, gate, duals + 2.0 * barrier * other_errors)
        by_other = np.zeros_like(other_features)
    else:
        by_first = _by_constraint(first, gate, 0.5 * duals + barrier * other_errors)
        by_other = _by_constraint(other_features, gate, 0.5 * duals + barrier * errors)
    by_duals, q, rise = np.zeros((d, d)), 0.0, 0.0
    for j in range(d):
        for k in range(j + 1):
            if gate[j]:
                one, other = errors[j, k], other_errors[j, k]
                error = one if scale == "half" else 0.5 * (one + other)
                kept = 0.0 if integral is None else integral[j, k]
                by_duals[j, k] = -(proportional_gain * error + integral_gain * kept)
                q += 2.0 * one * other
                rise += max(one * other, 0.0) / d**2
    found = {
        "next_features": by_next,
        "other_features": by_other,
        "duals": by_duals,
        "barrier": -abs(q) if scale == "half" else -rise,
    }
    if constraint_features is None:
        return found | {"features": by_features + by_first}
    return found | {"features": by_features, "constraint_features": by_first}


def _by_constraint(x, gate, multipliers):
    """Return (1/n) Σ_{k≤j} x_ik M_jk at (i, j): column k is frozen, row j moves."""
    n, d = x.shape
    found = np.zeros((n, d))
    for i in range(n):
        for j in range(d):
            if gate[j]:
                found[i, j] = math.fsum(x[i, k] * multipliers[j, k] for k in range(j + 1)) / n
    return found


def _height(column, perturbation, width):
    """Return how far one component is lifted, before it is clipped to 0 … 1."""
    n = len(column)
    centre, least = sum(column) / n, math.exp(-1.0 / width)
    if perturbation == "exponential":
        variance = sum((x - centre) ** 2 for x in column) / n
        return math.exp(-variance / width) - least
    if perturbation == "squared":
        return sum((abs(x - centre - 1.0) + least) ** 2 - least**2 for x in column) / n
    if perturbation == "squared-null-grad":
        return sum((x - centre - 1.0) ** 2 for x in column) / n
    return 0.0


def _slopes(column, perturbation, width):
    """Return the derivative of the clipped height by each sample.

    The squared heights are never below 1, as mean (x − centre − 1)² = variance + 1: clipped, they
    have no slope.
    """
    n = len(column)
    slopes = np.zeros(n)
    if perturbation == "exponential" and _height(column, perturbation, width) > 0.0:
        centre = sum(column) / n
        variance = sum((x - centre) ** 2 for x in column) / n
        for i in range(n):
            slopes[i] = -math.exp(-variance / width) / width * 2.0 * (column[i] - centre) / n
    return slopes


def _ggdo_loss(
    features, next_features, other_features, duals, barrier, *, constraint_features, integral
):
    n, d = features.shape
    first = features if constraint_features is None else constraint_features
    errors, other_errors = off_orthonormal(first), off_orthonormal(other_features)
    graph = 0.0
    for j in range(d):
        steps = [(features[i, j] - next_features[i, j]) ** 2 for i in range(n)]
        graph += (d - j) * sum(steps) / n
    weighted, weights = 0.0, 0.0
    for j in range(d):
        for k in range(d):
            weighted += min(d - j, d - k) * errors[j, k] * other_errors[j, k]
            weights += min(d - j, d - k)
    q = d**2 * weighted / weights
    parts = {"graph": graph, "barrier": barrier * q, "errors": errors}
    return graph + barrier * q, parts | {"other_errors": other_errors, "q": q}


def _ggdo_gradients(
    features, next_features, other_features, duals, barrier, *, constraint_features, integral
):
    n, d = features.shape
    first = features if constraint_features is None else constraint_features
    errors, other_errors = off_orthonormal(first), off_orthonormal(other_features)
    by_features, by_next = np.zeros((n, d)), np.zeros((n, d))
    for i in range(n):
        for j in range(d):
            step = 2.0 * (d - j) * (features[i, j] - next_features[i, j]) / n
            by_features[i, j] += step
            by_next[i, j] -= step
    by_first = _by_penalty(first, other_errors, barrier)
    by_other = _by_penalty(other_features, errors, barrier)
    found = {"next_features": by_next, "other_features": by_other}
    if constraint_features is None:
        return found | {"features": by_features + by_first}
    return found | {"features": by_features, "constraint_features": by_first}


def _by_penalty(x, others, barrier):
    """Return the derivative of b q by the samples x of one of the two errors, none frozen."""
    n, d = x.shape
    weights = sum(min(d - j, d - k) for j in range(d) for k in range(d))
    found = np.zeros((n, d))
    for i in range(n):
        for j in range(d):
            for k in range(d):
                slope = barrier * d**2 * min(d - j, d - k) * others[j, k] / weights
                found[i, j] += 2.0 * slope * x[i, k] / n
    return found


def allo_updates(
    duals, barrier, integral, products, parts, *, dual_rate, barrier_rate, scale="half",
    proportional_gain=1.0, integral_gain=0.0, integral_decay=0.99, product_rate=0.1,
    dual_limit=math.inf, barrier_limit=math.inf,
):  # fmt: skip
    """Return the next (duals, barrier, integral, products); see `allo_updates` of the kernels."""
    errors, other_errors, gate = parts["errors"], parts["other_errors"], parts["gate"]
    d = len(errors)
    duals, integral, products = (np.array(x, np.float64) for x in (duals, integral, products))
    is_first = all(products[j, k] == 0 for j in range(d) for k in range(d))
    rise = 0.0
    for j in range(d):
        for k in range(j + 1):
            error = errors[j, k]
            if scale == "full":
                error = 0.5 * (errors[j, k] + other_errors[j, k])
            if gate[j]:
                push = proportional_gain * error + integral_gain * integral[j, k]
                duals[j, k] += dual_rate * push
            duals[j, k] = min(max(duals[j, k], -dual_limit), dual_limit)
            integral[j, k] = integral_decay * integral[j, k] + error
            rate = 1.0 if is_first else product_rate
            products[j, k] += rate * (errors[j, k] * other_errors[j, k] - products[j, k])
            rise += max(products[j, k], 0.0) / d**2
    if scale == "half":
        rise = abs(parts["q"])
    barrier = min(max(barrier + barrier_rate * rise, 0.0), barrier_limit)
    return lower(duals), barrier, integral, products


def eigenvalues(duals, barrier, errors, *, scale="half"):
    """Return −c (β_jj + 2 b E_jj), c = ½ in "half" and ¼ in "full"."""
    factor = 0.5 if scale == "half" else 0.25
    return np.array(
        [-factor * (duals[j][j] + 2.0 * barrier * errors[j][j]) for j in range(len(duals))]
    )


def similarities(features, vectors, spaces, weights=None):
    """Return the length of each feature's projection onto its eigenspace, over its own length."""
    states, d = np.shape(features)
    weights = [1.0 / states] * states if weights is None else weights
    found = np.zeros(d)
    for j in range(d):
        norm = sum(weights[s] * features[s][j] ** 2 for s in range(states))
        share = 0.0
        for k in range(np.shape(vectors)[1]):
            if spaces[k] == spaces[j]:
                inner = sum(weights[s] * features[s][j] * vectors[s][k] for s in range(states))
                share += inner**2
        if norm > 0:
            found[j] = math.sqrt(share / norm)
    return found
