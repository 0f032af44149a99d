"""ALLO's loss that goes wrong, in JAX."""

import jax
import jax.numpy as jnp


def gradient_on_both_sides(phi, phi_next, psi, duals, barrier):
    """The right number; but earlier features are moved by later ones."""
    stop = jax.lax.stop_gradient
    eye = jnp.eye(phi.shape[1])
    errors = jnp.tril(phi.T @ phi / len(phi) - eye)
    others = jnp.tril(stop(psi).T @ stop(psi) / len(psi) - eye)
    graph = 0.5 * ((phi - phi_next) ** 2).sum(1).mean()
    q = 2.0 * (errors * stop(others)).sum()
    pulled = (stop(duals) * errors).sum() + stop(barrier) * q
    raised = (duals * stop(errors)).sum() + barrier * stop(jnp.abs(q))
    return graph + pulled - raised
