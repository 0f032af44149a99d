"""The encoder of Laplacian representations: its layers, and that its weights start orthogonal."""

import jax
import numpy as np
import pytest

from loopless.nets.encoder import GAIN, Encoder
from loopless.nets.mlp import as_vector
from loopless.nets.q_network import QNetwork

KEY = jax.random.key(3)


def test_features_are_the_layers_applied_one_after_the_other():
    encoder = Encoder((3,), 4, (6, 5), KEY)
    obs = np.random.default_rng(0).normal(size=(7, 3)).astype(np.float32)
    x = obs
    for number, (weight, bias) in enumerate(encoder.layers()):
        x = x @ weight + bias
        x = np.maximum(x, 0) if number < 2 else x
    np.testing.assert_allclose(encoder(obs), x, atol=1e-5)
    assert len(encoder.layers()) == 3


def test_weights_start_orthogonal_and_biases_at_zero():
    for weight, bias in Encoder((8,), 4, (6,), KEY).layers():
        np.testing.assert_allclose(weight.T @ weight, GAIN**2 * np.eye(weight.shape[1]), atol=1e-5)
        assert not bias.any()


@pytest.mark.parametrize(("shape", "conv"), [((3,), False), ((9, 9, 3), True)])
def test_its_vector_has_the_order_of_a_q_network_as_in_older_checkpoints(shape, conv):
    encoder, old = Encoder(shape, 4, (6,), KEY, conv=conv), QNetwork(shape, 4, (6,), KEY, conv=conv)
    vector, rebuild = as_vector(encoder)
    old_vector, rebuild_old = as_vector(old)
    assert vector.shape == old_vector.shape
    obs = np.random.default_rng(1).integers(0, 255, (2, *shape)).astype(np.uint8)
    np.testing.assert_allclose(rebuild(old_vector)(obs), rebuild_old(old_vector)(obs), atol=1e-3)
