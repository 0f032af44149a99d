"""Acting on the host: the same values as the network's, actions by the law that was asked for."""

import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from loopless.compiled.mlp import choose, generator
from loopless.nets.acting import Actor
from loopless.nets.q_network import QNetwork, plain_layers

ACTIVATIONS = ("relu", "tanh", "selu")


@functools.cache
def network(hidden=(6, 5), activation="relu", duelling=False, shape=(4,)) -> QNetwork:
    """Parameters by NumPy: JAX would compile a generator for every shape."""
    options = {"activation": activation, "duelling": duelling}
    net = eqx.filter_eval_shape(QNetwork, shape, 3, hidden, jax.random.key(0), **options)
    rng = np.random.default_rng(1)
    return jax.tree.map(lambda x: jnp.asarray(rng.normal(size=x.shape) / 2, x.dtype), net)


@functools.cache
def expected_values(**options):
    return np.asarray(eqx.filter_jit(network(**options))(observations(7)))


def observations(rows):
    return 3 * np.random.default_rng(0).normal(size=(7, 4)).astype(np.float32)[:rows]


@pytest.mark.parametrize("rows", [1, 2, 7])
@pytest.mark.parametrize("duelling", [False, True], ids=["plain", "duelling"])
@pytest.mark.parametrize("hidden", [(), (6,), (3, 9, 2)], ids=str)
@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_values_on_the_host_are_the_networks(activation, hidden, duelling, rows):
    options = {"hidden": hidden, "activation": activation, "duelling": duelling}
    actor = Actor(plain_layers(network(**options)), activation, seed=0)
    expected = expected_values(**options)[:rows]
    np.testing.assert_allclose(actor.values(observations(rows)), expected, rtol=1e-5, atol=5e-6)


@pytest.mark.parametrize("rows", [1, 2, 7])
def test_without_exploration_the_best_action_is_taken(rows):
    actor = Actor(plain_layers(network()), "relu", seed=0)
    best = expected_values()[:rows].argmax(-1)
    np.testing.assert_array_equal(actor(observations(rows)), best)


def test_pictures_and_bytes_are_read_as_flat_numbers():
    net = network((6,), shape=(2, 3))
    obs = np.random.default_rng(0).integers(0, 256, (5, 2, 3)).astype(np.uint8)
    actor = Actor(plain_layers(net), "relu", seed=0)
    np.testing.assert_allclose(actor.values(obs), np.asarray(net(obs)), rtol=1e-5, atol=1e-4)


def test_new_weights_are_acted_by():
    before, obs = network(), observations(7)
    after = jax.tree.map(lambda x: -x, before)
    actor = Actor(plain_layers(before), "relu", seed=0)
    actor.load(plain_layers(after))
    expected = Actor(plain_layers(after), "relu", seed=0).values(obs)
    np.testing.assert_array_equal(actor.values(obs), expected)
    assert not np.allclose(expected, Actor(plain_layers(before), "relu", 0).values(obs))


def test_values_that_are_no_number_do_not_break_acting():
    values = np.array([[np.nan, 1, 2], [np.nan, np.nan, np.nan], [np.inf, 0, 1]], np.float32)
    actions = np.full(3, -1)
    choose(values, 0.0, 0.0, generator(0), actions)
    np.testing.assert_array_equal(actions, [2, 0, 0])


# --- laws of exploration -------------------------------------------------------------------------


def draws(values, epsilon=0.0, temperature=0.0, rounds=4000, seed=0):
    """Actions [rounds, envs] for the same values [envs, actions] again and again."""
    random, out = generator(seed), np.empty((rounds, len(values)), np.int64)
    for row in out:
        choose(values, epsilon, temperature, random, row)
    return out


def chi_square(counts, law):
    """The p-value of counts under a law; more than one bin has to be there."""
    keep = law > 0
    assert not np.any(counts[~keep])
    return stats.chisquare(counts[keep], law[keep] / law[keep].sum() * counts.sum()).pvalue


VALUES = np.array([[0.0, 1.0, 0.5], [2.0, -1.0, 0.0]], np.float32)


def epsilon_law(values, epsilon):
    law = np.full(values.shape, epsilon / values.shape[1])
    law[np.arange(len(values)), values.argmax(1)] += 1 - epsilon
    return law


def boltzmann_law(values, temperature):
    weights = np.exp(values.astype(float) / temperature)
    return weights / weights.sum(1, keepdims=True)


def p_values(actions, law):
    counts = np.stack([np.bincount(column, minlength=law.shape[1]) for column in actions.T])
    return [chi_square(*pair) for pair in zip(counts, law, strict=True)]


@pytest.mark.parametrize("epsilon", [0.1, 0.5, 1.0])
def test_epsilon_greedy_has_its_frequencies(epsilon):
    assert min(p_values(draws(VALUES, epsilon), epsilon_law(VALUES, epsilon))) > 1e-3


@pytest.mark.parametrize("temperature", [0.3, 1.0, 5.0])
def test_boltzmann_has_its_frequencies(temperature):
    law = boltzmann_law(VALUES, temperature)
    assert min(p_values(draws(VALUES, temperature=temperature), law)) > 1e-3


def test_the_check_of_frequencies_finds_a_law_that_is_a_little_off():
    assert min(p_values(draws(VALUES, 0.5), epsilon_law(VALUES, 0.6))) < 1e-3
    law = boltzmann_law(VALUES, 1.2)
    assert min(p_values(draws(VALUES, temperature=1.0), law)) < 1e-3


@pytest.mark.parametrize("options", [{"epsilon": 0.5}, {"temperature": 1.0}], ids=str)
def test_each_env_throws_its_own_coin(options):
    same = np.repeat(VALUES[:1], 2, 0)
    actions = draws(same, **options)
    table = np.zeros((3, 3))
    np.add.at(table, tuple(actions.T), 1)
    table = table[table.sum(1) > 0][:, table.sum(0) > 0]
    assert stats.chi2_contingency(table).pvalue > 1e-3  # independent of one another


def test_one_coin_for_all_would_be_seen():
    actions = draws(VALUES[:1], epsilon=0.5).repeat(2, 1)
    table = np.zeros((3, 3))
    np.add.at(table, tuple(actions.T), 1)
    assert stats.chi2_contingency(table).pvalue < 1e-3


def test_the_state_of_a_policy_is_two_numbers():
    actor = Actor(plain_layers(network()), "relu", seed=5)
    actor.epsilon, obs = 1.0, observations(7)
    actor(obs)
    kept = actor.random.copy()
    first = actor(obs).copy()
    other = Actor(plain_layers(network()), "relu", seed=6)
    other.epsilon, other.random[:] = 1.0, kept
    np.testing.assert_array_equal(other(obs), first)
    assert not np.array_equal(actor(obs), first)
