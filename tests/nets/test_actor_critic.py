"""The actor-critic network: its pieces, their first weights, the order of its vector, memory."""

import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.compare import assert_close

from loopless.envs.spaces import Box, Discrete
from loopless.nets.actor_critic import ActorCritic
from loopless.nets.distributions import head_of
from loopless.nets.mlp import as_vector, orthogonal, rebuilder

pytestmark = pytest.mark.slow  # JAX compiles each network

KEY = jax.random.key(0)
HEAD = head_of(Box((2,), "float32", -1.0, 1.0))
KINDS = {
    "plain": {},
    "shared": {"shared": True},
    "linear": {"hidden": ()},
    "gru": {"core": "gru"},
    "lstm": {"core": "lstm"},
    "bare_gru": {"core": "gru", "hidden": ()},
    "conv": {"obs_shape": (8, 8, 3), "conv": True},
    "conv_lstm": {"obs_shape": (8, 8, 3), "conv": True, "core": "lstm"},
}


def made(obs_shape=(4,), head=HEAD, hidden=(6, 5), **options):
    return ActorCritic(obs_shape, head, hidden, KEY, core_width=7, **options)


@functools.cache
def network(kind):
    """Parameters in float64, by NumPy: JAX would compile a generator for every shape."""
    rng = np.random.default_rng(1)
    shapes = eqx.filter_eval_shape(made, **KINDS[kind])
    return jax.tree.map(lambda x: rng.normal(size=x.shape) / 2, shapes)


def observations(kind, *leading):
    shape = KINDS[kind].get("obs_shape", (4,))
    return np.random.default_rng(2).normal(size=(*leading, *shape))


@pytest.mark.parametrize("kind", KINDS)
def test_outputs_have_the_shapes_that_the_head_asks_for(kind):
    def outputs(net, obs, starts):
        memory = net.memory(3)
        first = net.step(memory, obs[0], starts[0])
        rows = net.unroll(memory, obs, starts)
        return first, rows, net.value_after(rows[3], obs)

    starts = jax.ShapeDtypeStruct((5, 3), bool)
    first, rows, after = jax.eval_shape(outputs, network(kind), observations(kind, 5, 3), starts)
    assert [x.shape for x in first[:3]] == [(3, 2), (2,), (3,)]
    assert [x.shape for x in rows[:3]] == [(5, 3, 2), (2,), (5, 3)]
    assert after.shape == (5, 3)
    parts = {"gru": 1, "lstm": 2}.get(KINDS[kind].get("core"), 0)
    assert [x.shape for x in jax.tree.leaves(rows[3])] == [(5, 3, 7)] * parts
    assert [x.shape for x in jax.tree.leaves(first[3])] == [(3, 7)] * parts


@pytest.mark.parametrize("kind", ["plain", "shared", "linear"])
def test_outputs_are_those_of_plain_matrix_products(kind):
    net, obs = network(kind), observations(kind, 2, 3)

    def through(body, head, x):
        for layer in (*body.layers, head):
            x = x @ np.asarray(layer.weight) + np.asarray(layer.bias)
            x = x if layer is head else np.tanh(x)
        return x

    params, own, values = jax.jit(lambda obs: net(obs))(obs)
    assert_close(params, through(net.body, net.policy, obs))
    assert_close(values, through(net.critic or net.body, net.value, obs)[..., 0])
    np.testing.assert_array_equal(own, net.own)
    assert (net.critic is None) == (kind == "shared")


# --- memory --------------------------------------------------------------------------------------

STARTS = np.zeros((5, 3), bool)
STARTS[2, 1] = STARTS[0, 0] = True


@functools.cache
def unrolled(kind):
    """What `unroll` gives for rows in their order, and what `step` gives row by row."""
    net, obs = network(kind), observations(kind, 5, 3)
    memory = jax.tree.map(lambda x: x + 0.5, net.memory(3))
    whole = jax.jit(lambda *args: net.unroll(*args))(memory, obs, STARTS)
    step, rows = jax.jit(lambda *args: net.step(*args)), []
    for t in range(5):
        rows.append(step(memory, obs[t], STARTS[t]))
        memory = rows[-1][3]
    return whole, jax.tree.map(lambda *x: np.stack(x), *rows)


@pytest.mark.parametrize("kind", ["shared", "gru", "lstm"])
def test_unrolling_is_stepping(kind):
    whole, rows = unrolled(kind)
    for i in (0, 2, 3):
        for one, other in zip(jax.tree.leaves(whole[i]), jax.tree.leaves(rows[i]), strict=True):
            assert_close(one, other)


@pytest.mark.parametrize("kind", ["plain", "gru", "lstm"])
def test_the_value_after_a_row_is_that_of_the_next_row_if_nothing_starts_there(kind):
    net, obs = network(kind), observations(kind, 5, 3)

    def values(obs):
        _, _, values, memories = net.unroll(net.memory(3), obs, STARTS)
        before = jax.tree.map(lambda x: x[:-1], memories)
        return values[1:], net.value_after(before, obs[1:])

    later, after = map(np.asarray, jax.jit(values)(obs))
    same = np.isclose(later, after, rtol=1e-10, atol=1e-12)
    expected = ~STARTS[1:] if net.core is not None else np.ones_like(same)
    np.testing.assert_array_equal(same, expected)


def test_a_recurrent_network_is_not_called_without_its_memory():
    with pytest.raises(ValueError, match="Use step or unroll"):
        network("gru")(observations("gru", 3))


def test_an_unknown_core_is_refused():
    with pytest.raises(ValueError, match="core='rnn' is unknown; choose none, gru or lstm"):
        made(core="rnn")


# --- first weights -------------------------------------------------------------------------------


@jax.jit
def networks(key):
    options = {"hidden": (6, 9), "log_std": -0.5}
    head = head_of(Box((2,)), state_std=True)
    return (
        ActorCritic((4,), HEAD, key=key, **options),
        ActorCritic((7, 7, 2), head, key=key, conv=True, core="gru", core_width=5, **options),
    )


@functools.cache
def first_weights(seed):
    return networks(jax.random.key(seed))


def assert_orthogonal(weight, gain):
    weight = np.asarray(weight, float).reshape(-1, weight.shape[-1])
    square = weight.T @ weight if weight.shape[0] >= weight.shape[1] else weight @ weight.T
    np.testing.assert_allclose(square, gain**2 * np.eye(len(square)), atol=1e-5 * gain**2)


def test_first_weights_are_orthogonal_with_the_gains_of_their_places():
    plain, deep = first_weights(0)
    bodies = (*plain.body.layers, *plain.critic.layers, *deep.body.layers)
    for weight in (*(layer.weight for layer in bodies), *deep.images.weights):
        assert_orthogonal(weight, 2**0.5)
    for weight in (deep.core.inputs.weight, deep.core.recurrent):
        assert_orthogonal(weight, 1.0)
    for net in (plain, deep):
        assert_orthogonal(net.policy.weight, 0.01)
        assert_orthogonal(net.value.weight, 1.0)


def test_first_biases_are_zero_and_first_scales_as_asked():
    plain, deep = first_weights(0)
    biases = [x for x in jax.tree.leaves((plain.body, plain.critic, deep.core)) if x.ndim == 1]
    assert len(biases) == 6
    assert not any(map(np.any, (*biases, *deep.images.biases, plain.value.bias, plain.policy.bias)))
    np.testing.assert_array_equal(plain.own, [-0.5, -0.5])
    np.testing.assert_array_equal(deep.policy.bias, [0, 0, -0.5, -0.5])
    assert deep.own.size == 0


def test_two_keys_make_two_networks_and_no_two_layers_are_alike():
    one, other = first_weights(0)[0], first_weights(1)[0]
    assert not np.allclose(one.body.layers[0].weight, other.body.layers[0].weight)
    assert not np.allclose(one.body.layers[0].weight, one.critic.layers[0].weight)


def test_every_rotation_is_as_likely():
    """Of many first weights [2, 2] the angle is even, and as many are rotations as reflections."""
    draw = jax.jit(jax.vmap(lambda key: orthogonal(jnp.zeros((2, 2)), key, 1.0)))
    weights = np.asarray(draw(jax.random.split(jax.random.key(3), 2000)))
    angles = np.arctan2(weights[:, 1, 0], weights[:, 0, 0])
    counts = np.histogram(angles, 8, (-np.pi, np.pi))[0]
    assert ((counts - 250) ** 2 / 250).sum() < 24.3  # chi-square of 7 degrees, p = 1e-3
    assert abs((np.linalg.det(weights) > 0).mean() - 0.5) < 0.04


# --- one vector ----------------------------------------------------------------------------------


def test_the_vector_begins_with_what_acting_needs():
    net = network("plain")
    layers = (*net.body.layers, net.policy)
    parts = [np.ravel(part) for layer in layers for part in (layer.weight, layer.bias)]
    expected = np.concatenate((*parts, net.own))
    np.testing.assert_array_equal(as_vector(net)[0][: expected.size], expected)


@pytest.mark.parametrize("kind", ["plain", "conv_lstm"])
def test_a_rebuilder_is_had_without_computing_a_network(kind):
    net = eqx.filter_eval_shape(made, **KINDS[kind])
    vector = np.arange(sum(x.size for x in jax.tree.leaves(net)), dtype=np.float32)
    rebuild = rebuilder(lambda: made(**KINDS[kind]))
    again, back = jax.jit(lambda v: (rebuild(v), as_vector(rebuild(v))[0]))(vector)
    assert jax.tree.structure(again) == jax.tree.structure(net)
    np.testing.assert_array_equal(back, vector)


def test_gradients_of_a_vector_reach_everything():
    vector, rebuild = as_vector(network("plain"))

    def loss(vector):
        params, own, values = rebuild(vector)(observations("plain", 3))
        return HEAD(params, own).log_prob(jnp.ones((3, 2))).sum() + values.sum()

    assert np.all(np.asarray(jax.jit(jax.grad(loss))(vector)) != 0)


def test_discrete_heads_have_nothing_of_their_own():
    net = eqx.filter_eval_shape(made, head=head_of(Discrete(3)))
    assert net.own.shape == (0,)
    assert net.policy.weight.shape == (5, 3)
