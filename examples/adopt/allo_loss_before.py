"""ALLO's objective in the manner of asymexp: a scalar whose gradient moves encoder and duals."""

import jax.numpy as jnp
from jax.lax import stop_gradient


def compute_loss(features, next_features, other_features, duals, barrier):
    """Return the scalar of features [n, d] of states, their successors and other states."""
    n, d = features.shape
    graph = 0.5 * ((features - next_features) ** 2).mean(0).sum()
    eye = jnp.eye(d)
    first = jnp.tril(features.T @ stop_gradient(features) / n - eye)
    second = jnp.tril(other_features.T @ other_features / n - eye)
    quadratic = 2 * (first * stop_gradient(second)).sum()
    primal = (stop_gradient(duals) * first).sum() + stop_gradient(barrier) * quadratic
    dual = (duals * stop_gradient(first)).sum() + barrier * stop_gradient(jnp.abs(quadratic))
    return graph + primal - dual  # the duals descend on this, and so ascend on the Lagrangian
