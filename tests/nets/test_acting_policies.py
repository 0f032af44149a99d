"""Policies on the host: the network's own laws, drawn from a generator of two integers."""

import functools

import equinox as eqx
import jax
import numpy as np
import pytest
from policy_cases import CHOICES, HEADS, fits, plain_choices
from scipy import stats

from loopless.compiled.mlp import LARGEST_LOG_STD as OURS
from loopless.compiled.mlp import draw_choices, draw_numbers, generator, tanh
from loopless.nets.acting import PolicyActor
from loopless.nets.actor_critic import ActorCritic
from loopless.nets.distributions import LARGEST_LOG_STD

SHIFT, SCALE, CLIP = np.float32([0.5, -1, 0, 2]), np.float32([2, 0.5, 1, 3]), 1.5
ROUNDS = 500  # of 8 rows each, alike: 4000 draws


@functools.cache
def network(name, activation="tanh", shared=False, hidden=(6, 5)):
    """Parameters by NumPy: JAX would compile a generator for every shape."""
    options = {"activation": activation, "shared": shared}
    shapes = eqx.filter_eval_shape(
        ActorCritic, (4,), HEADS[name], hidden, jax.random.key(0), **options
    )
    rng = np.random.default_rng(1)
    return jax.tree.map(lambda x: (rng.normal(size=x.shape) / 2).astype(np.float32), shapes)


def vector(net):
    return np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(net)])


def actor_of(name, seed=0, normal=True, **options):
    actor = PolicyActor(network(name, **options), seed, clip=CLIP if normal else np.inf)
    if normal:
        actor.take(vector(network(name, **options)), SHIFT, SCALE)
    return actor


def observations(rows=7):
    return np.random.default_rng(0).normal(size=(7, 4)).astype(np.float32)[:rows]


@functools.cache
def expected(name, normal=True, **options):
    """The network's outputs and their mode, for the actions of environments, too."""
    net, x = network(name, **options), observations()
    seen = np.clip((x - SHIFT) * SCALE, -CLIP, CLIP) if normal else x

    @jax.jit
    def words(seen):
        params, own, _ = net(seen)
        mode = HEADS[name](params, own).mode()
        return params, mode, HEADS[name].to_env(mode)

    return tuple(map(np.asarray, words(seen)))


# --- the network ---------------------------------------------------------------------------------


def test_tanh_is_good_to_the_digits_that_float32_has():
    x = np.concatenate((np.linspace(-12, 12, 40_001), np.geomspace(1e-30, 1, 10_000)))
    x = x[x != 0].astype(np.float32)
    ours = np.array([tanh(number) for number in x])
    assert np.abs(ours / np.tanh(x.astype(float)) - 1).max() < 3e-7
    assert np.abs(ours).max() <= 1


@pytest.mark.parametrize("x", [0.0, np.inf, -np.inf, np.nan])
def test_tanh_at_the_edges(x):
    np.testing.assert_allclose(tanh(np.float32(x)), np.tanh(x), rtol=3e-7)


@pytest.mark.parametrize("normal", [False, True], ids=["as they are", "normalised"])
@pytest.mark.parametrize("options", [{}, {"shared": True}, {"activation": "relu"}], ids=str)
def test_outputs_are_the_networks(options, normal):
    actor = actor_of("ragged", normal=normal, **options)
    params, _, _ = expected("ragged", normal=normal, **options)
    np.testing.assert_allclose(actor.params(observations()), params, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", CHOICES)
def test_probabilities_are_the_networks(name):
    ours, params = actor_of(name).params(observations()), expected(name)[0]
    for row in range(7):
        laws = zip(*(plain_choices(HEADS[name].sizes, x[row]) for x in (ours, params)), strict=True)
        for one, other in laws:
            np.testing.assert_allclose(one, other, atol=1e-6)


@pytest.mark.parametrize("rows", [1, 3, 7])
@pytest.mark.parametrize("name", HEADS)
def test_greedy_actions_are_the_mode_and_draw_nothing(name, rows):
    actor, (_, mode, actions) = actor_of(name), expected(name)
    actor.greedy = True
    ours = actor(observations(rows))
    np.testing.assert_allclose(actor.raw, mode[:rows], rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(ours, actions[:rows], rtol=1e-5, atol=1e-6)
    assert (ours.shape, ours.dtype) == (actions[:rows].shape, actions.dtype)
    assert (actor.raw.shape, actor.raw.dtype) == ((rows, *HEADS[name].raw_shape), mode.dtype)
    assert actor.random[1] == 0


def test_what_is_not_the_policys_is_not_read():
    net = network("gaussian")
    poisoned = eqx.tree_at(lambda net: net.value.bias, net, np.float32([np.nan]))
    actor = PolicyActor(net, 0)
    kept = actor.params(observations())
    actor.take(vector(poisoned))
    np.testing.assert_array_equal(actor.params(observations()), kept)


def test_new_weights_and_statistics_are_acted_by():
    actor, net = actor_of("discrete"), network("discrete")
    actor.take(-vector(net), 0 * SHIFT, 2 * SCALE)
    fresh = PolicyActor(jax.tree.map(lambda x: -x, net), 0, clip=CLIP)
    fresh.take(-vector(net), np.zeros(4), 2 * SCALE)
    np.testing.assert_array_equal(actor.params(observations()), fresh.params(observations()))
    assert not np.allclose(
        fresh.params(observations()), actor_of("discrete").params(observations())
    )


def test_pictures_of_bytes_are_read_as_flat_numbers():
    net = network("discrete")
    bytes_ = np.random.default_rng(0).integers(0, 256, (5, 2, 2)).astype(np.uint8)
    flat = bytes_.reshape(5, 4).astype(np.float32)
    actor = PolicyActor(net, 0)
    np.testing.assert_array_equal(actor.params(bytes_), actor.params(flat))


@pytest.mark.parametrize("options", [{"core": "gru"}, {"conv": True}], ids=str)
def test_other_networks_are_refused(options):
    shape = (8, 8, 1) if "conv" in options else (4,)
    net = eqx.filter_eval_shape(
        ActorCritic, shape, HEADS["discrete"], (3,), jax.random.key(0), **options
    )
    with pytest.raises(ValueError, match="plain MLPs"):
        PolicyActor(net, 0)


# --- laws ----------------------------------------------------------------------------------------


def draws(name, mask=None, seed=3):
    """Raw actions [4000, ...] and the environment's, for one observation again and again."""
    actor, same = actor_of(name, seed), np.repeat(observations(1), 8, 0)
    mask = None if mask is None else np.repeat(mask[None], 8, 0)
    raw, actions = [], []
    for _ in range(ROUNDS):
        actions.append(actor(same, mask).copy() if mask is not None else actor(same).copy())
        raw.append(actor.raw.copy())
    return np.concatenate(raw), np.concatenate(actions)


@pytest.mark.parametrize("masked", [False, True], ids=["all legal", "masked"])
@pytest.mark.parametrize("name", CHOICES)
def test_choices_are_drawn_with_the_frequencies_of_the_network(name, masked):
    head = HEADS[name]
    mask = np.arange(head.outputs) % 3 != 1 if masked else None
    raw, actions = draws(name, mask)
    np.testing.assert_array_equal(raw, actions)
    laws = plain_choices(head.sizes, expected(name)[0][0], mask)
    for column, law in zip(raw.reshape(len(raw), -1).T, laws, strict=True):
        assert fits(np.bincount(column, minlength=len(law)), np.array(law))


def law_of_numbers(name):
    """Mean and scale of the first observation's numbers."""
    head, params = HEADS[name], expected(name)[0][0]
    return params[:3], np.exp(params[3:] if head.state_std else network(name).own)


@pytest.mark.parametrize("name", ["gaussian", "state_std", "squashed"])
def test_numbers_are_drawn_from_the_networks_normal_law(name):
    raw, _ = draws(name)
    mean, scale = law_of_numbers(name)
    normal = (raw - mean) / scale
    for column in normal.T:
        assert stats.kstest(column, stats.norm.cdf).pvalue > 1e-3
        assert stats.kstest(column + 0.1, stats.norm.cdf).pvalue < 1e-3  # the check can fail
        assert abs(column.std() - 1) < 3.3 / np.sqrt(2 * len(column))


@pytest.mark.parametrize("lag", [1, 2, 3])
def test_normal_numbers_have_nothing_to_do_with_their_neighbours(lag):
    """Pairs share a radius, so squares are looked at, too. Bounds are four standard errors."""
    raw = np.zeros((100_000, 3), np.float32)
    draw_numbers(np.zeros_like(raw), np.zeros(3, np.float32), False, generator(0), raw)
    x = raw.ravel().astype(float)
    assert abs(np.mean(x[lag:] * x[:-lag])) < 4 / np.sqrt(x.size)
    assert abs(np.mean(x[lag:] ** 2 * x[:-lag] ** 2) - 1) < 4 * np.sqrt(8 / x.size)


@pytest.mark.parametrize("name", ["gaussian", "squashed"])
def test_environments_get_the_actions_that_the_head_makes_of_raw_ones(name):
    raw, actions = draws(name)
    expected = jax.jit(HEADS[name].to_env)(raw)
    np.testing.assert_allclose(actions, expected, rtol=1e-6, atol=1e-6)
    low, high = (np.float32(bound) for bound in (HEADS[name].low, HEADS[name].high))
    assert np.all((actions >= low) & (actions <= high))


def test_each_row_is_drawn_by_itself():
    raw = draws("discrete")[0].reshape(ROUNDS, 8)
    table = np.zeros((4, 4))
    np.add.at(table, (raw[:, 0], raw[:, 1]), 1)
    assert stats.chi2_contingency(table).pvalue > 1e-3


def choose(logits, mask, sizes, greedy=False, seed=0):
    logits, random = np.float32(logits), generator(seed)
    raw = np.full((len(logits), len(sizes)), -1, np.int32)
    draw_choices(logits, np.array(mask, bool), np.array(sizes), greedy, random, raw)
    return raw, random


def test_where_nothing_is_legal_all_is():
    logits = np.tile(np.log([1, 2, 3, 4]), (4000, 1))
    raw, _ = choose(logits, np.zeros((4000, 4)), (4,))
    assert fits(np.bincount(raw[:, 0], minlength=4), np.array([0.1, 0.2, 0.3, 0.4]))


@pytest.mark.parametrize("greedy", [False, True])
def test_what_is_illegal_is_never_taken_not_even_with_numbers_that_are_none(greedy):
    logits = np.tile([9, np.nan, 0, np.nan], (200, 1))
    raw, _ = choose(logits, np.tile([0, 1, 0, 1], (200, 1)), (2, 2), greedy)
    np.testing.assert_array_equal(raw, 1)


def test_huge_logits_are_no_matter():
    raw, _ = choose([[1e30, -1e30, 0]] * 50, np.ones((50, 3)), (3,))
    np.testing.assert_array_equal(raw, 0)


def test_scales_are_kept_within_the_same_bounds_as_the_networks():
    assert OURS == LARGEST_LOG_STD


# --- the generator -------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["ragged", "gaussian"])
def test_the_state_of_a_policy_is_two_numbers(name):
    actor, other = actor_of(name, seed=5), actor_of(name, seed=6)
    actor(observations())
    kept = actor.random.copy()
    first = actor(observations()).copy()
    assert not np.array_equal(other(observations()), first)
    other.random[:] = kept
    np.testing.assert_array_equal(other(observations()), first)
    np.testing.assert_array_equal(actor.random, other.random)
    assert not np.array_equal(actor(observations()), first)


@pytest.mark.parametrize(("name", "rows", "used"), [("ragged", 7, 21), ("gaussian", 7, 22)])
def test_so_many_numbers_are_used(name, rows, used):
    actor = actor_of(name)
    actor(observations(rows))
    assert actor.random[1] == used
