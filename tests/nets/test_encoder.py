"""The encoder of Laplacian representations: its layers, and that its weights start orthogonal."""

import equinox as eqx
import jax
import numpy as np
import pytest

from loopless.nets.encoder import GAIN, Encoder
from loopless.nets.mlp import as_vector
from loopless.nets.q_network import QNetwork

pytestmark = pytest.mark.slow  # JAX compiles each network

KEY = jax.random.key(3)
# One program for all first weights of a network: JAX would compile every operation by itself.
encoder_of, q_network_of = eqx.filter_jit(Encoder), eqx.filter_jit(QNetwork)


def test_features_are_the_layers_applied_one_after_the_other():
    encoder = encoder_of((3,), 4, (6, 5), KEY)
    obs = np.random.default_rng(0).normal(size=(7, 3)).astype(np.float32)
    x = obs
    for number, (weight, bias) in enumerate(encoder.layers()):
        x = x @ weight + bias
        x = np.maximum(x, 0) if number < 2 else x
    np.testing.assert_allclose(encoder(obs), x, atol=1e-5)
    assert len(encoder.layers()) == 3


def test_weights_start_orthogonal_and_biases_at_zero():
    for weight, bias in encoder_of((8,), 4, (6,), KEY).layers():
        np.testing.assert_allclose(weight.T @ weight, GAIN**2 * np.eye(weight.shape[1]), atol=1e-5)
        assert not bias.any()


@pytest.mark.parametrize(("shape", "conv"), [((3,), False), ((9, 9, 3), True)])
def test_its_vector_has_the_order_of_a_q_network_as_in_older_checkpoints(shape, conv):
    encoder = encoder_of(shape, 4, (6,), KEY, conv=conv)
    old = q_network_of(shape, 4, (6,), KEY, conv=conv)
    vector, rebuild = as_vector(encoder)
    old_vector, rebuild_old = as_vector(old)
    assert vector.shape == old_vector.shape
    obs = np.random.default_rng(1).integers(0, 255, (2, *shape)).astype(np.uint8)
    np.testing.assert_allclose(rebuild(old_vector)(obs), rebuild_old(old_vector)(obs), atol=1e-3)
