"""Adam, AdamW and plain gradient descent, gated: a step that is not sound changes nothing.

The gate is inside, so that each array is read and written once. A library's Adam with the choice
between old and new after it makes XLA copy weights and both moments at every step, which a test
counts. Weights are one array or a tree of them.

Imports JAX. Tests: `tests/train/test_optimizer.py`; the oracle is Optax.
"""

import math
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp

from loopless.process import threads

LEAST = 2**15  # weights whose step is compiled code of our own


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
        if self.kind == "sgd":
            moved = jax.tree.map(
                lambda w, g: jnp.where(sound, (w - rate * g).astype(w.dtype), w), weights, gradient
            )
            return moved, moments
        count, decay = moments.count + sound, self.decay
        if isinstance(decay, int | float):
            decay = jax.tree.map(lambda _: decay, weights)
        trees = weights, moments.mu, moments.nu, gradient
        one, two, step = self.beta_1, self.beta_2, _adam
        if _in_one_pass(trees):
            from loopless.arrays.xla_cpu.adam import adam

            step = partial(jax.lax.platform_dependent, cpu=adam, default=_adam)

        def moved(w, mu, nu, g, decay) -> tuple:
            # 1 − βᵗ, of which a subtraction would lose digits while t is small.
            shares = (-jnp.expm1(count.astype(w.dtype) * _log(beta)) for beta in (one, two))
            numbers = one, 1 - one, two, 1 - two, self.epsilon, decay, rate, *shares, sound
            return step(w, mu, nu, g, numbers)

        found = [moved(*each) for each in zip(*map(jax.tree.leaves, (*trees, decay)), strict=True)]
        structure = jax.tree.structure(weights)
        weights, mu, nu = (structure.unflatten(leaves) for leaves in zip(*found, strict=True))
        return weights, Moments(count, mu, nu)


def _log(x: float) -> float:
    return math.log(x) if x else -math.inf


def _adam(w, mu, nu, g, numbers: tuple) -> tuple:
    """One array's step in JAX operations; the twin of `jax_native_adam.adam`."""
    one, rest_of_one, two, rest_of_two, epsilon, decay, rate, of_mu, of_nu, sound = numbers

    def gated(new, old):
        return jnp.where(sound, new.astype(old.dtype), old)

    mu, nu = gated(one * mu + rest_of_one * g, mu), gated(two * nu + rest_of_two * g * g, nu)
    # Only what is written is read again: there is no second use of the old moments.
    mu, nu = jax.lax.optimization_barrier((mu, nu))
    change = mu / of_mu / (jnp.sqrt(nu / of_nu) + epsilon)
    return gated(w - rate * (change + decay * w), w), mu, nu


def _in_one_pass(trees: tuple) -> bool:
    """Whether compiled code of our own does the step: a large one on a single core of a CPU.

    XLA spreads it over several cores, and a small one it makes part of what is around it.
    """
    if any(x.dtype != jnp.float32 for x in jax.tree.leaves(trees)):
        return False
    if sum(x.size for x in jax.tree.leaves(trees[0])) < LEAST:
        return False
    if threads() > 1 or jax.default_backend() != "cpu":
        return False
    from loopless.arrays.xla_cpu.adam import is_here

    return is_here()


def shortened(gradient: Any, norm: Any, most: float | None) -> Any:
    """The gradient, whose length is `norm`, no longer than `most`; None or 0: as it is."""
    if not most:
        return gradient
    factor = jnp.where(norm > most, most / norm, 1)
    return jax.tree.map(lambda g: g * factor, gradient)
