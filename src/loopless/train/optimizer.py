"""Adam, AdamW and plain gradient descent, gated: a step that is not sound changes nothing.

The gate is inside, so that each array is read and written once. A library's Adam with the choice
between old and new after it makes XLA copy weights and both moments at every step, which a test
counts. Weights are one array or a tree of them.

Imports JAX. Tests: `tests/train/test_optimizer.py`; the oracle is Optax.
"""

from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp


class Moments(NamedTuple):
    """What Adam remembers."""

    count: Any  # sound steps
    mu: Any  # mean of gradients
    nu: Any  # mean of their squares


@dataclass(frozen=True)
class Optimizer:
    """`decay` pulls weights towards 0 (AdamW's): a number for all, or a tree of them."""

    kind: Literal["adam", "sgd"] = "adam"
    beta_1: float = 0.9
    beta_2: float = 0.999
    epsilon: float = 1e-8
    decay: Any = 0.0

    def init(self, weights: Any) -> Moments | tuple[()]:
        """Before the first step."""
        if self.kind == "sgd":
            return ()
        zeros = [jax.tree.map(jnp.zeros_like, weights) for _ in range(2)]
        return Moments(jnp.zeros((), jnp.int32), *zeros)

    def step(self, weights: Any, moments: Any, gradient: Any, rate: Any, sound: Any) -> tuple:
        """Weights and moments after a step of size `rate`; the same ones if it is not `sound`."""

        def gated(new, old):
            return jnp.where(sound, new.astype(old.dtype), old)

        if self.kind == "sgd":
            moved = jax.tree.map(lambda w, g: gated(w - rate * g, w), weights, gradient)
            return moved, moments
        count, one, two = moments.count + sound, self.beta_1, self.beta_2
        mu = jax.tree.map(lambda m, g: gated(one * m + (1 - one) * g, m), moments.mu, gradient)
        nu = jax.tree.map(lambda v, g: gated(two * v + (1 - two) * g * g, v), moments.nu, gradient)
        # Only what is written is read again: there is no second use of the old moments.
        mu, nu = jax.lax.optimization_barrier((mu, nu))

        def moved(w, m, v, decay):
            done = count.astype(w.dtype)
            change = m / (1 - one**done) / (jnp.sqrt(v / (1 - two**done)) + self.epsilon)
            return gated(w - rate * (change + decay * w), w)

        decay = self.decay
        if isinstance(decay, int | float):
            decay = jax.tree.map(lambda _: decay, weights)
        return jax.tree.map(moved, weights, mu, nu, decay), Moments(count, mu, nu)


def shortened(gradient: Any, norm: Any, most: float | None) -> Any:
    """The gradient, whose length is `norm`, no longer than `most`; None or 0: as it is."""
    if not most:
        return gradient
    factor = jnp.where(norm > most, most / norm, 1)
    return jax.tree.map(lambda g: g * factor, gradient)
