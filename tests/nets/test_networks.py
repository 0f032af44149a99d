"""The Q-network: shapes, the duelling head, pictures of bytes, parameters as one vector."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from loopless.nets.conv import Convolutions, filters_for
from loopless.nets.mlp import ACTIVATIONS, as_vector, product
from loopless.nets.q_network import QNetwork, plain_layers

pytestmark = pytest.mark.slow  # JAX compiles each network

KEY = jax.random.key(3)


def network(shape=(4,), actions=3, hidden=(6, 5), **options) -> QNetwork:
    """A network whose parameters NumPy drew: JAX would compile a generator for every shape."""
    net = eqx.filter_eval_shape(QNetwork, shape, actions, hidden, KEY, **options)
    return drawn(net)


def drawn(net, rng=None):
    rng = rng or np.random.default_rng(3)
    return jax.tree.map(
        lambda x: jnp.asarray(rng.normal(size=x.shape) / max(1, x.shape[0]) ** 0.5, x.dtype), net
    )


def observations(*leading, shape=(4,)):
    return np.random.default_rng(0).normal(size=(*leading, *shape)).astype(np.float32)


@pytest.mark.parametrize("leading", [(), (1,), (7,), (2, 3)], ids=str)
@pytest.mark.parametrize("duelling", [False, True], ids=["plain", "duelling"])
def test_values_of_a_batch_are_those_of_its_rows(leading, duelling):
    net, obs = eqx.filter_jit(network(duelling=duelling)), observations(*leading)
    values = np.asarray(net(obs))
    assert values.shape == (*leading, 3)
    rows = [np.asarray(net(row)) for row in obs.reshape(-1, 4)]
    np.testing.assert_allclose(values.reshape(-1, 3), rows, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("hidden", [(), (6,), (6, 5)], ids=str)
def test_values_are_those_of_plain_matrix_products(activation, hidden):
    net, x = network(hidden=hidden, activation=activation), observations(5).astype(np.float64)
    plain = {
        "relu": lambda x: np.maximum(x, 0),
        "tanh": np.tanh,
        "selu": lambda x: 1.0507009873554805 * np.where(x > 0, x, 1.6732632423543772 * np.expm1(x)),
    }[activation]
    expected = x
    for layer in net.body.layers:
        expected = plain(expected @ np.asarray(layer.weight, float) + np.asarray(layer.bias, float))
    head = net.advantage
    expected = expected @ np.asarray(head.weight, float) + np.asarray(head.bias, float)
    np.testing.assert_allclose(np.asarray(net(x)), expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    "shapes", [((5, 3), (3, 4)), ((5, 4), (4, 40)), ((2, 5, 4), (4, 9)), ((0, 3), (3, 2))], ids=str
)
def test_the_gradients_of_a_product_are_those_of_a_plain_one(shapes):
    rng = np.random.default_rng(1)
    x, weight = (jnp.asarray(rng.normal(size=shape)) for shape in shapes)
    _, back = jax.vjp(product, x, weight)
    _, plain = jax.vjp(jnp.matmul, x, weight)
    g = jnp.asarray(rng.normal(size=(*x.shape[:-1], weight.shape[1])))
    for found, expected in zip(back(g), plain(g), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-12)


def test_second_derivatives_of_a_product_are_those_of_a_plain_one_under_vmap():
    rng = np.random.default_rng(2)
    x, weight = (jnp.asarray(rng.normal(size=shape)) for shape in ((5, 6, 4), (5, 4, 3)))

    def curvature(multiply):
        def slope(x, weight):
            by_both = jax.grad(lambda x, w: jnp.sin(multiply(x, w)).sum(), (0, 1))(x, weight)
            return sum((y * y).sum() for y in by_both)

        return jax.vmap(jax.grad(slope, (0, 1)))(x, weight)

    for found, expected in zip(curvature(product), curvature(jnp.matmul), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-12)


def test_e31_a_constant_added_to_every_advantage_changes_no_value():
    net, obs = network(duelling=True), observations(5)
    raised = eqx.tree_at(lambda net: net.advantage.bias, net, net.advantage.bias + 100)
    np.testing.assert_allclose(np.asarray(raised(obs)), np.asarray(net(obs)), atol=2e-5)


def test_the_mean_of_duelling_values_is_the_state_value():
    net, obs = network(duelling=True), observations(5)
    value = np.asarray(net.value(net.body(obs)))[:, 0]
    np.testing.assert_allclose(np.asarray(net(obs)).mean(-1), value, atol=1e-6)


@pytest.mark.parametrize("duelling", [False, True], ids=["plain", "duelling"])
def test_plain_layers_give_the_same_values(duelling):
    net, x = network(duelling=duelling), observations(9)
    expected = np.asarray(net(x))
    *body, (weight, bias) = plain_layers(net)
    for inner, offset in body:
        x = np.maximum(x @ inner + offset, 0)
    np.testing.assert_allclose(x @ weight + bias, expected, rtol=1e-5, atol=1e-6)


# --- pictures ------------------------------------------------------------------------------------


def naive_convolution(x, weight, stride):
    """[height, width, in] by [size, size, in, out], no padding, in loops."""
    size, _, _, outputs = weight.shape
    rows, columns = ((n - size) // stride + 1 for n in x.shape[:2])
    out = np.zeros((rows, columns, outputs))
    for i in range(rows):
        for j in range(columns):
            patch = x[i * stride : i * stride + size, j * stride : j * stride + size]
            out[i, j] = np.tensordot(patch, weight, 3)
    return out


def test_convolutions_are_those_of_the_plain_loop():
    shape = (9, 8, 2)
    net = drawn(eqx.filter_eval_shape(Convolutions, shape, filters_for(shape), "relu", KEY))
    picture = np.random.default_rng(1).integers(0, 256, shape).astype(np.uint8)
    x = picture / 255
    for weight, bias, stride in zip(net.weights, net.biases, net.strides, strict=True):
        x = np.maximum(naive_convolution(x, np.asarray(weight, float), stride) + bias, 0)
    np.testing.assert_allclose(np.asarray(net(picture)), x.ravel(), rtol=1e-5, atol=1e-6)


def test_e25_bytes_are_scaled_once():
    net = network((8, 8, 3), conv=True)
    bytes_ = np.random.default_rng(1).integers(0, 256, (2, 8, 8, 3)).astype(np.uint8)
    bytes_[0, 0, 0], bytes_[0, 0, 1] = 0, 255
    scaled = bytes_.astype(np.float32) / 255
    values = np.asarray(net(bytes_))
    np.testing.assert_allclose(values, np.asarray(net(scaled)), rtol=1e-5, atol=1e-6)
    assert not np.allclose(values, np.asarray(net(scaled / 255)), atol=1e-4)
    assert not np.allclose(values, np.asarray(net(bytes_.astype(np.float32))), atol=1e-4)


@pytest.mark.parametrize("shape", [(84, 84, 4), (36, 40, 1), (16, 16, 3), (7, 7, 3), (4, 5, 1)])
def test_every_size_of_picture_has_layers_that_fit(shape):
    def values(key, obs):
        return QNetwork(shape, 3, (6,), key, conv=True)(obs)

    obs = jax.ShapeDtypeStruct((2, *shape), jnp.uint8)
    assert jax.eval_shape(values, KEY, obs).shape == (2, 3)


# --- one vector ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "options",
    [{}, {"duelling": True}, {"hidden": ()}, {"shape": (8, 8, 3), "conv": True}],
    ids=["plain", "duelling", "linear", "conv"],
)
def test_parameters_go_into_a_vector_and_back(options):
    net = network(**options)
    vector, rebuild = as_vector(net)
    leaves = jax.tree.leaves(eqx.filter(net, eqx.is_inexact_array))
    assert vector.shape == (sum(leaf.size for leaf in leaves),)
    for ours, theirs in zip(leaves, jax.tree.leaves(rebuild(vector)), strict=True):
        np.testing.assert_array_equal(ours, theirs)
    np.testing.assert_array_equal(as_vector(rebuild(vector + 1))[0], vector + 1)


def test_two_keys_make_two_networks_within_their_bounds():
    @jax.jit
    def weights(seed):
        return as_vector(QNetwork((4,), 2, (100,), jax.random.key(seed)))[0]

    first, second = weights(0), weights(1)
    assert not np.allclose(first, second)
    assert np.abs(np.asarray(first[:500])).max() <= 0.5  # 1/√4, of the first layer
    assert np.abs(np.asarray(first[:500])).max() > 0.49
    assert np.abs(np.asarray(first[500:])).max() <= 0.1
