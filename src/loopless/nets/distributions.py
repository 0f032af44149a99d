"""The distributions of actions in a Discrete, MultiDiscrete or Box space.

A head describes the distribution and is static (hashable); `head(params, own, mask)` is the
distribution itself, a pytree, batched over leading axes. *Raw* actions are what a rollout stores
and `log_prob` takes; `head.to_env` turns them into the environment's actions. `compiled.mlp` draws
the same actions on the host.
"""

from dataclasses import dataclass
from typing import Any, ClassVar, TypeAlias

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from loopless.refusals import refuse

LARGEST_LOG_STD = 20.0  # either way: neither a scale nor its inverse squared overflows float32
_LOG_2PI = float(np.log(2 * np.pi))


# --- choices -------------------------------------------------------------------------------------


class Choices(eqx.Module):
    """k independent choices with P(i-th is a) ∝ exp(logits[..., i, a]); legal ones only.

    logits: [..., k, most]; an illegal choice has half the lowest number there is, so that its
    probability is exactly 0 and no gradient is NaN.
    """

    logits: jax.Array
    several: bool = eqx.field(static=True)

    def sample(self, noise: jax.Array) -> jax.Array:
        """Return raw actions from the Gumbel noise of `head.noise`."""
        return self._raw(self.logits + noise)

    def mode(self) -> jax.Array:
        """Return the likeliest action, the first of equals."""
        return self._raw(self.logits)

    def log_prob(self, raw: jax.Array) -> jax.Array:
        """Return log P(raw) [...]: hugely negative where illegal, meaningless out of range."""
        chosen = raw if self.several else raw[..., None]
        log_probs = jax.nn.log_softmax(self.logits)
        # A comparison: its derivative is a select, where a gather's would be a scatter.
        is_it = chosen[..., None] == jnp.arange(self.logits.shape[-1], dtype=chosen.dtype)
        return jnp.where(is_it, log_probs, 0).sum((-2, -1))

    def entropy(self, raw: jax.Array | None = None) -> jax.Array:
        """Return −Σ P log P [...]."""
        log_probs = jax.nn.log_softmax(self.logits)
        return -(jnp.exp(log_probs) * log_probs).sum((-2, -1))

    def _raw(self, scores: jax.Array) -> jax.Array:
        best = jnp.argmax(scores, -1).astype(jnp.int32)
        return best if self.several else best[..., 0]


@dataclass(frozen=True)
class ChoiceHead:
    """k choices, the i-th out of `sizes[i]`, with one logit for each option; masks are as wide.

    `several` tells a MultiDiscrete with one choice from a Discrete. Where a mask leaves nothing to
    choose, everything is legal: the environment has to make sense of it.
    """

    sizes: tuple[int, ...]
    several: bool

    own: ClassVar[int] = 0
    raw_dtype: ClassVar[str] = "int32"

    @property
    def outputs(self) -> int:
        return sum(self.sizes)

    @property
    def raw_shape(self) -> tuple[int, ...]:
        return (len(self.sizes),) if self.several else ()

    def start(self, log_std: float) -> tuple[jax.Array, jax.Array]:
        """Return the first bias of the output layer, and the first own parameters: none."""
        return jnp.zeros(self.outputs, jnp.float32), jnp.zeros(0, jnp.float32)

    def noise(self, key: jax.Array, shape: tuple[int, ...]) -> jax.Array:
        """Return the noise from which `sample` makes actions [*shape]."""
        return jax.random.gumbel(key, (*shape, len(self.sizes), max(self.sizes)), jnp.float32)

    def __call__(
        self, params: jax.Array, own: jax.Array | None = None, mask: jax.Array | None = None
    ) -> Choices:
        logits = self._grid(params, 0)
        if mask is not None or len(set(self.sizes)) > 1:
            legal = self._grid(jnp.ones(self.outputs, bool), False)
            if mask is not None:
                allowed = self._grid(mask, False)
                legal &= allowed | ~allowed.any(-1, keepdims=True)
            logits = jnp.where(legal, logits, jnp.finfo(logits.dtype).min / 2)
        return Choices(logits, self.several)

    def to_env(self, raw: jax.Array) -> jax.Array:
        return raw

    def _grid(self, flat: jax.Array, filler: Any) -> jax.Array:
        """Return [..., outputs] as [..., k, most]."""
        most = max(self.sizes)
        if len(set(self.sizes)) == 1:
            return flat.reshape(*flat.shape[:-1], len(self.sizes), most)
        ends = np.cumsum(self.sizes)[:-1].tolist()
        padding = [(0, 0)] * (flat.ndim - 1)
        parts = [
            jnp.pad(part, [*padding, (0, most - part.shape[-1])], constant_values=filler)
            for part in jnp.split(flat, ends, -1)
        ]
        return jnp.stack(parts, -2)


# --- numbers -------------------------------------------------------------------------------------


class Gaussian(eqx.Module):
    """Independent normal numbers: mean [..., d], log_std [..., d] or [d]."""

    mean: jax.Array
    log_std: jax.Array

    def sample(self, noise: jax.Array) -> jax.Array:
        """Return raw actions from the standard normal noise of `head.noise`."""
        return self.mean + jnp.exp(self.log_std) * noise

    def mode(self) -> jax.Array:
        return self.mean

    def log_prob(self, raw: jax.Array) -> jax.Array:
        """Return the log-density [...] at `raw`."""
        z = (raw - self.mean) * jnp.exp(-self.log_std)
        return -(0.5 * z * z + self.log_std + 0.5 * _LOG_2PI).sum(-1)

    def entropy(self, raw: jax.Array | None = None) -> jax.Array:
        """Return Σ log σ + ½ log 2πe [...]."""
        each = self.log_std + (0.5 + 0.5 * _LOG_2PI)
        return jnp.broadcast_to(each, self.mean.shape).sum(-1)


class SquashedGaussian(eqx.Module):
    """The distribution of a = middle + half · tanh u, u Gaussian. Raw is u: nothing is inverted.

    log p(a) = log N(u) − Σ log(1 − tanh² u) − Σ log half
    log(1 − tanh² u) = 2 (log 2 − u − softplus(−2u))          exact where tanh u rounds to ±1
    """

    before: Gaussian
    log_half: float = eqx.field(static=True)  # summed over d

    def sample(self, noise: jax.Array) -> jax.Array:
        return self.before.sample(noise)

    def mode(self) -> jax.Array:
        """Return the likeliest u; its action is the median."""
        return self.before.mode()

    def log_prob(self, raw: jax.Array) -> jax.Array:
        """Return the log-density [...] of the environment's action, given u."""
        return self.before.log_prob(raw) - _log_slope(raw).sum(-1) - self.log_half

    def entropy(self, raw: jax.Array | None = None) -> jax.Array:
        """Return −log p [...] of the action of `raw`: one sample's estimate. There is no formula.

        Its gradient is that of −log p(u(ε)), u = mean + std · ε, the noise ε held fixed: right on
        average. With u held fixed the gradient would be the score, whose mean is 0.
        """
        if raw is None:
            raise ValueError(
                "entropy: a squashed Gaussian's has no closed form and is estimated from actions; "
                "received none. Pass raw=, the actions that were sampled."
            )
        mean, log_std = self.before.mean, self.before.log_std
        z = lax.stop_gradient((raw - mean) * jnp.exp(-log_std))
        u = mean + jnp.exp(log_std) * z
        normal = 0.5 * z * z + log_std + 0.5 * _LOG_2PI
        return (normal + _log_slope(u)).sum(-1) + self.log_half


def _log_slope(u: jax.Array) -> jax.Array:
    """Return log(1 − tanh² u) = log d tanh u / du."""
    return 2 * (float(np.log(2)) - u - jax.nn.softplus(-2 * u))


@dataclass(frozen=True)
class GaussianHead:
    """d = prod(shape) normal numbers between `low` and `high`, which have d entries each.

    On the way to the environment they are clipped to the bounds, or with `squash` put between them
    by tanh. With `state_std` the scales are outputs of the network, not parameters of their own.
    """

    shape: tuple[int, ...]
    low: tuple[float, ...]
    high: tuple[float, ...]
    squash: bool = False
    state_std: bool = False

    raw_dtype: ClassVar[str] = "float32"

    @property
    def outputs(self) -> int:
        return len(self.low) * (2 if self.state_std else 1)

    @property
    def own(self) -> int:
        return 0 if self.state_std else len(self.low)

    @property
    def raw_shape(self) -> tuple[int, ...]:
        return (len(self.low),)

    def start(self, log_std: float) -> tuple[jax.Array, jax.Array]:
        """Return the first bias of the output layer, and the first own parameters (log-scales)."""
        scales = jnp.full(len(self.low), log_std, jnp.float32)
        means = jnp.zeros_like(scales)
        return (jnp.concatenate((means, scales)), means[:0]) if self.state_std else (means, scales)

    def noise(self, key: jax.Array, shape: tuple[int, ...]) -> jax.Array:
        """Return the noise from which `sample` makes actions [*shape]."""
        return jax.random.normal(key, (*shape, len(self.low)), jnp.float32)

    def __call__(
        self, params: jax.Array, own: jax.Array | None = None, mask: jax.Array | None = None
    ) -> Gaussian | SquashedGaussian:
        if mask is not None:
            raise ValueError(
                "head: a mask was given for continuous actions. Masks belong to discrete actions."
            )
        mean, log_std = jnp.split(params, 2, -1) if self.state_std else (params, own)
        if log_std is None:
            raise ValueError(f"head: log-scales [{self.own}] are missing. Pass them as own.")
        distribution = Gaussian(mean, jnp.clip(log_std, -LARGEST_LOG_STD, LARGEST_LOG_STD))
        if not self.squash:
            return distribution
        half = (np.asarray(self.high) - np.asarray(self.low)) / 2
        return SquashedGaussian(distribution, float(np.log(half).sum()))

    def to_env(self, raw: jax.Array) -> jax.Array:
        """Return actions [..., *shape] within the bounds."""
        low, high = jnp.asarray(self.low, raw.dtype), jnp.asarray(self.high, raw.dtype)
        inside = low + (jnp.tanh(raw) + 1) / 2 * (high - low) if self.squash else raw
        return jnp.clip(inside, low, high).reshape(*raw.shape[:-1], *self.shape)


Head: TypeAlias = ChoiceHead | GaussianHead


def head_of(space: Any, *, squash: bool = False, state_std: bool = False) -> Head:
    """Return the head for actions of a Discrete, MultiDiscrete or Box of `envs.spaces`.

    Options that do not go with the space are refused.
    """
    if not hasattr(space, "low"):  # choices, not a Box
        options = {"squash": squash, "state_std": state_std}
        problems = [f"{name} is for Box; received {space}" for name, on in options.items() if on]
        refuse("head_of", problems)
        if hasattr(space, "sizes"):
            return ChoiceHead(tuple(space.sizes), several=True)
        return ChoiceHead((space.n,), several=False)
    low, high = (_each(bound, space) for bound in (space.low, space.high))
    bounded = np.isfinite(low).all() and np.isfinite(high).all() and np.less(low, high).all()
    if squash and not bounded:
        refuse(
            "head_of",
            [f"squash needs finite bounds, low < high; received {space}"],
            note="Use squash=False: actions are then clipped where there is a bound.",
        )
    return GaussianHead(space.shape, low, high, squash, state_std)


def _each(bound: float | tuple[float, ...], space: Any) -> tuple[float, ...]:
    count = int(np.prod(space.shape))
    return tuple(np.broadcast_to(np.asarray(bound, float), (count,)).tolist())
