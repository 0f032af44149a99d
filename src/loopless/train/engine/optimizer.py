"""Adam, AdamW and plain gradient descent, gated: a step that is not accepted changes nothing.

`health.judge` decides what is accepted. The gate is inside the step, so that each array is read and
written once; with Optax's Adam and a choice between old and new after it, XLA copies the weights
and both moments at every step. Weights are one array or a tree of them.
"""

import math
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp


class Moments(NamedTuple):
    """The state of Adam."""

    count: Any  # accepted steps
    mu: Any  # mean of gradients
    nu: Any  # mean of their squares


@dataclass(frozen=True)
class Optimizer:
    """How gradients become steps. `decay` is AdamW's: a number for all weights, or a tree."""

    kind: Literal["adam", "adamw", "sgd"] = "adam"
    beta_1: float = 0.9
    beta_2: float = 0.999
    epsilon: float = 1e-8
    decay: Any = 0.0

    def init(self, weights: Any) -> Moments | tuple[()]:
        """Return the moments before the first step."""
        if self.kind == "sgd":
            return ()
        zeros = [jax.tree.map(jnp.zeros_like, weights) for _ in range(2)]
        return Moments(jnp.zeros((), jnp.int32), *zeros)

    def step(self, weights: Any, moments: Any, gradient: Any, rate: Any, accepted: Any) -> tuple:
        """Return weights and moments after a step of size `rate`; unchanged if not accepted."""
        if self.kind == "sgd":

            def descend(w, g):
                return jnp.where(accepted, (w - rate * g).astype(w.dtype), w)

            return jax.tree.map(descend, weights, gradient), moments
        count, decay = moments.count + accepted, self.decay if self.kind == "adamw" else 0.0
        if jax.tree.structure(decay) == jax.tree.structure(0.0):
            decay = jax.tree.map(lambda _: decay, weights)

        def gated(new, old):
            return jnp.where(accepted, new.astype(old.dtype), old)

        def move(w, mu, nu, g, decay) -> tuple:
            mu = gated(self.beta_1 * mu + (1 - self.beta_1) * g, mu)
            nu = gated(self.beta_2 * nu + (1 - self.beta_2) * g * g, nu)
            # Without the barrier XLA would compute the new moments again from the old ones.
            mu, nu = jax.lax.optimization_barrier((mu, nu))
            mean, square = (
                x / _seen_share(beta, count.astype(w.dtype))
                for x, beta in ((mu, self.beta_1), (nu, self.beta_2))
            )
            change = mean / (jnp.sqrt(square) + self.epsilon)
            change = change + decay * w if self.kind == "adamw" else change
            return gated(w - rate * change, w), mu, nu

        trees = weights, moments.mu, moments.nu, gradient, decay
        leaves = zip(*map(jax.tree.leaves, trees), strict=True)
        new = zip(*(move(*arrays) for arrays in leaves), strict=True)
        weights, mu, nu = map(jax.tree.structure(weights).unflatten, new)
        return weights, Moments(count, mu, nu)


def _seen_share(beta: Any, count: jax.Array) -> jax.Array:
    """Return 1 − βᵗ, by expm1, because a subtraction would lose digits while t is small."""
    if isinstance(beta, float):
        return -jnp.expm1(count * (math.log(beta) if beta else -math.inf))
    return -jnp.expm1(count * jnp.log(beta))


def clip_by_norm(gradient: Any, norm: Any, max_norm: Any) -> Any:
    """Shorten the gradient, whose norm is `norm`, to `max_norm`; None or 0 leaves it as it is."""
    if max_norm is None:
        return gradient
    factor = jnp.where((max_norm > 0) & (norm > max_norm), max_norm / norm, 1)
    return jax.tree.map(lambda g: g * factor, gradient)
