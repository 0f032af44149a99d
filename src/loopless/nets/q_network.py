"""The network for Q-learning: a body for vectors or images, and one value for each action."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from loopless.nets.conv import Convolutions, filters_for
from loopless.nets.mlp import MLP, Linear


class QNetwork(eqx.Module):
    """Maps observations [..., *shape] to values [..., actions].

    With `duelling` (a dueling network), Q = V + A − mean A (Wang et al. 2016).
    """

    images: Convolutions | None
    body: MLP
    advantage: Linear
    value: Linear | None
    dims: int = eqx.field(static=True)

    def __init__(
        self, shape, actions: int, hidden, key, *, duelling=False, activation="relu", conv=False
    ) -> None:
        for_images, for_body, for_advantage, for_value = jax.random.split(key, 4)
        self.images, self.dims, inputs = None, len(shape), int(np.prod(shape))
        if conv:
            self.images = Convolutions(shape, filters_for(shape), activation, for_images)
            inputs = jax.eval_shape(self.images, jax.ShapeDtypeStruct(shape, jnp.float32)).shape[-1]
        self.body = MLP(inputs, hidden, activation, for_body)
        width = hidden[-1] if hidden else inputs
        self.advantage = Linear(width, actions, for_advantage)
        self.value = Linear(width, 1, for_value) if duelling else None

    def __call__(self, obs: jax.Array) -> jax.Array:
        if self.images is not None:
            x = self.images(obs)
        else:
            leading = obs.shape[: obs.ndim - self.dims]
            x = obs.reshape(*leading, -1).astype(self.advantage.weight.dtype)
        x = self.body(x)
        advantage = self.advantage(x)
        if self.value is None:
            return advantage
        return self.value(x) + advantage - advantage.mean(-1, keepdims=True)


def plain_layers(net: QNetwork) -> list[tuple[np.ndarray, np.ndarray]]:
    """Return (weight, bias) of each layer of an MLP that has the same values.

    A dueling head is linear, so it folds into one layer.
    """
    weight, bias = np.asarray(net.advantage.weight), np.asarray(net.advantage.bias)
    if net.value is not None:
        value, offset = np.asarray(net.value.weight), np.asarray(net.value.bias)
        weight, bias = fold(weight, bias, value, offset)
    body = [(np.asarray(layer.weight), np.asarray(layer.bias)) for layer in net.body.layers]
    return [*body, (weight, bias)]


def fold(weight, bias, value, offset) -> tuple[np.ndarray, np.ndarray]:
    """Return one layer for V + A − mean A: A by (weight, bias), V by (value, offset)."""
    return value + weight - weight.mean(1, keepdims=True), offset + bias - bias.mean()
