"""A whole update of PPO against plain loops in double precision; and known bugs, each caught."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import plain_ppo
import pytest
from ppo_cases import (
    CHOICE,
    KEY,
    NUMBERS,
    OBS,
    algorithm_of,
    learner_of,
    rollout_of,
    small,
)

from loopless.kernels.policy_gradient import ppo_loss
from loopless.train.engine import rollouts
from loopless.train.engine.rollouts import shuffles
from loopless.train.ppo import algorithm as ppo
from loopless.train.ppo.algorithm import PPOAlgorithm, PPOReport

pytestmark = pytest.mark.slow

KINDS = {
    "choices": {},
    "choices, fillers": {"fillers": True},
    "numbers": {"actions": NUMBERS, "value_clip": 0.25, "normalize_advantages": "batch"},
    "numbers, short steps": {
        "actions": NUMBERS, "max_gradient_norm": 0.0, "normalize_advantages": "off",
        "entropy_coefficient": 0.0,
    },
}  # fmt: skip


def both(actions=CHOICE, fillers=False, **options):
    """(learner, report) of the program, (weights, reports) of the loops."""
    config = small(**options)
    algorithm = algorithm_of(config, actions)
    learner, rollout = learner_of(algorithm), rollout_of(actions, fillers=fillers)
    number = jnp.int32(0)
    learned = jax.jit(algorithm.learn)(learner, learner.acting(), rollout, KEY, number)
    named = rollout._asdict()
    if rollout.valid is None:
        named["valid"] = np.ones(rollout.reward.shape, bool)
    orders = np.asarray(shuffles(KEY, config.epochs, config.rollout_size))
    sizes = OBS.shape[0], config.hidden, algorithm.head.outputs, algorithm.head.own
    gaussian = actions is NUMBERS
    weights = np.asarray(learner.weights)
    learned = learned[0], PPOReport(*learned[1])
    return learned, plain_ppo.update(weights, named, orders, config, sizes, gaussian)


def update_is_the_loops(**options):
    (learner, report), (weights, told) = both(**options)
    np.testing.assert_allclose(learner.weights, weights, rtol=1e-10, atol=1e-10)
    for name in told[0]:
        expected = np.mean([one[name] for one in told])
        np.testing.assert_allclose(getattr(report, name), expected, rtol=1e-10, err_msg=name)
    assert int(learner.updates) == len(told)
    assert int(learner.skipped) == int(learner.stopped) == 0


@pytest.mark.parametrize("kind", KINDS)
def test_an_update_equals_plain_loops(kind):
    update_is_the_loops(**KINDS[kind])


def test_the_made_up_rollout_meets_what_matters():
    (_, report), (_, told) = both()
    assert 0 < float(report.clip_fraction) < 1
    assert max(one["gradient_norm"] for one in told) > small().max_gradient_norm
    rollout = rollout_of()
    assert (rollout.truncated & ~rollout.terminated)[-1].any()
    assert (rollout.truncated & ~rollout.terminated)[:-1].any()
    assert rollout.terminated.any()


# --- mutants -------------------------------------------------------------------------------------


def truncation_for_termination(monkeypatch):
    right = PPOAlgorithm.prepare

    def prepare(self, learner, acted, rollout):
        ended = rollout.terminated | rollout.truncated
        return right(self, learner, acted, rollout._replace(terminated=ended))

    monkeypatch.setattr(PPOAlgorithm, "prepare", prepare)


def successor_across_a_reset(monkeypatch):
    monkeypatch.setattr(rollouts, "next_values", lambda rollout, all_values, *_: all_values[1:])


def advantages_as_they_are(monkeypatch):
    monkeypatch.setattr(ppo, "normalize", lambda x, valid: x)


def old_log_probabilities_anew(monkeypatch):
    def loss(log_probs, old, *args, **options):
        return ppo_loss(log_probs, jax.lax.stop_gradient(log_probs), *args, **options)

    monkeypatch.setattr(ppo, "ppo_loss", loss)


def entropy_with_the_wrong_sign(monkeypatch):
    def loss(a, b, c, d, e, entropies, **options):
        return ppo_loss(a, b, c, d, e, -entropies, **options)

    monkeypatch.setattr(ppo, "ppo_loss", loss)


def one_order_for_all_epochs(monkeypatch):
    right = rollouts.shuffles

    def same(key, count, size):
        return jnp.broadcast_to(right(key, count, size)[0], (count, size))

    monkeypatch.setattr(rollouts, "shuffles", same)


def fillers_as_experience(monkeypatch):
    right = PPOAlgorithm.prepare

    def prepare(self, learner, acted, rollout):
        return right(self, learner, acted, rollout._replace(valid=None))

    monkeypatch.setattr(PPOAlgorithm, "prepare", prepare)


MUTANTS = {
    truncation_for_termination: "choices",
    successor_across_a_reset: "choices",
    advantages_as_they_are: "choices",
    old_log_probabilities_anew: "choices",
    entropy_with_the_wrong_sign: "choices",
    one_order_for_all_epochs: "choices",
    fillers_as_experience: "choices, fillers",
}


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.__name__)
def test_a_mutant_is_caught(mutant, monkeypatch):
    mutant(monkeypatch)
    with pytest.raises(AssertionError):
        update_is_the_loops(**KINDS[MUTANTS[mutant]])


# --- what must not happen ------------------------------------------------------------------------


def learned(algorithm, rollout, learner=None, number=0):
    learner = learner_of(algorithm) if learner is None else learner
    return jax.jit(algorithm.learn)(learner, learner.acting(), rollout, KEY, jnp.int32(number))


def test_more_cuts_than_expected_cost_a_pass_and_change_nothing():
    rollout = rollout_of(truncated=np.ones((6, 4), bool))
    algorithm = algorithm_of(small(), max_steps=100)
    assert algorithm.truncations == 4  # of 24 rows that are cut
    few, _ = learned(algorithm, rollout)
    all_, _ = learned(dataclasses.replace(algorithm, truncations=24), rollout)
    np.testing.assert_allclose(few.weights, all_.weights, rtol=1e-12)


def test_fillers_may_hold_anything():
    rollout = rollout_of(fillers=True)
    reward = np.where(rollout.valid, rollout.reward, np.nan)
    algorithm = algorithm_of(small(normalize_rewards=True, normalize_obs=True))
    clean, _ = learned(algorithm, rollout)
    dirty, report = learned(algorithm, rollout._replace(reward=reward))
    np.testing.assert_array_equal(clean.weights, dirty.weights)
    assert np.isfinite(list(report)).all()


def test_the_rest_of_a_rollout_is_left_out_beyond_the_target():
    algorithm = algorithm_of(small(target_kl=1e-3))
    learner, _ = learned(algorithm, rollout_of())
    assert 0 < int(learner.updates) < 6
    assert int(learner.updates) + int(learner.stopped) == 6


@pytest.mark.parametrize(("on_nan", "skipped"), [("stop", 6), ("skip", 6)])
def test_an_update_that_is_not_finite_changes_nothing(on_nan, skipped):
    algorithm = algorithm_of(small(on_nan=on_nan, normalize_obs=True))
    rollout = rollout_of()
    rollout.reward[0] = np.inf
    start = learner_of(algorithm)
    learner, _ = learned(algorithm, rollout, start)
    np.testing.assert_array_equal(learner.weights, start.weights)
    assert int(learner.skipped) == skipped
    assert int(learner.updates) == 0
    assert bool(learner.failed) == (on_nan == "stop")
    after, _ = learned(algorithm, rollout_of(), learner)
    frozen = jax.tree.map(np.array_equal, after, learner)
    assert all(jax.tree.leaves(frozen)) == (on_nan == "stop")


def test_a_shuffle_is_a_permutation_and_all_are_as_likely():
    orders = np.asarray(jax.jit(shuffles, static_argnums=(1, 2))(KEY, 6000, 3))
    assert (np.sort(orders, 1) == np.arange(3)).all()
    codes = np.bincount(orders @ [9, 3, 1])
    counts = codes[codes > 0]
    assert len(counts) == 6
    assert np.abs(counts - 1000).max() < 5 * np.sqrt(1000)


def test_schedules_are_lines_over_the_run():
    config = small(clip_end=0.0, entropy_end=0.0, learning_rate_end=0.002)
    algorithm = algorithm_of(config)
    numbers = lambda *args: list(algorithm.coefficients(*args).values())  # noqa: E731
    assert list(algorithm.coefficients(0)) == ["clip", "entropy_coefficient", "learning_rate"]
    np.testing.assert_allclose(numbers(5, np), (0.1, 0.015, 0.006), rtol=1e-6)
    np.testing.assert_allclose(numbers(jnp.int32(5)), numbers(5, np), rtol=1e-6)
    np.testing.assert_allclose(numbers(0, np), (0.2, 0.03, 0.01), rtol=1e-6)
