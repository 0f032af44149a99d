"""The network for Laplacian representations: observations to features, one for each component.

`train/allo/algorithm.py` trains it. Its parameters are saved as one vector (`mlp.as_vector`):
convolutions, hidden layers, output layer.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from loopless.nets.conv import Convolutions, filters_for
from loopless.nets.mlp import MLP, Linear, orthogonal

GAIN = 2**0.5  # from smaller weights, features start almost constant and take long to leave that


class Encoder(eqx.Module):
    """Maps observations [..., *shape] to features [..., components]; orthogonal at first."""

    images: Convolutions | None
    body: MLP
    output: Linear
    dims: int = eqx.field(static=True)

    def __init__(
        self, shape, components: int, hidden, key, *, activation="relu", conv=False
    ) -> None:
        self.images, self.dims, inputs = None, len(shape), int(np.prod(shape))
        if conv:
            self.images = Convolutions(shape, filters_for(shape), activation, key)
            inputs = jax.eval_shape(self.images, jax.ShapeDtypeStruct(shape, jnp.float32)).shape[-1]
        self.body = MLP(inputs, hidden, activation, key)
        self.output = Linear(hidden[-1] if hidden else inputs, components, key)
        # The layers above were made for their shapes only; here they get their first weights.
        parts = self.images, self.body, self.output
        self.images, self.body, self.output = orthogonal(parts, key, GAIN)

    def __call__(self, obs: jax.Array) -> jax.Array:
        if self.images is not None:
            x = self.images(obs)
        else:
            leading = obs.shape[: obs.ndim - self.dims]
            x = obs.reshape(*leading, -1).astype(self.output.weight.dtype)
        return self.output(self.body(x))

    def layers(self) -> list[tuple[np.ndarray, np.ndarray]]:
        """Return (weight, bias) of each dense layer."""
        layers = *self.body.layers, self.output
        return [(np.asarray(layer.weight), np.asarray(layer.bias)) for layer in layers]
