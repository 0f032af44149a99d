"""The updates of an event, fused, against the same updates one by one; and what must not happen."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from dqn_cases import (
    BETA,
    KEY,
    VARIANTS,
    algorithm_of,
    arrays_of,
    assert_near,
    assert_same,
    filled,
    learner_of,
    small,
    transitions,
)

from loopless.train.dqn.algorithm import DQNReport
from loopless.train.dqn.loop import Loop

pytestmark = pytest.mark.slow

# How updates are scanned over depends on these alone; the others only change what an update is.
EVERY_COUNT = ("replace", "exact", "block", "mega batch", "all at once")
COUNTS = [
    *((variant, updates) for variant in EVERY_COUNT for updates in (1, 2, 4, 8, 32)),
    *((variant, 4) for variant in VARIANTS if variant not in EVERY_COUNT),
]
TOLERANCES = {"float32": {"rtol": 1e-5, "atol": 1e-6}, "float64": {"rtol": 1e-12, "atol": 1e-12}}
LOOPS: dict = {}


def learned(options: dict, updates: int, dtype: str = "float32"):
    """(learner, replay, report) by the fused program, and by the loop."""
    config = small(**options, updates=updates)
    algorithm = algorithm_of(config, dtype)
    start = learner_of(algorithm, dtype), filled(algorithm), KEY, BETA
    if config.mega_batch:
        loop = Loop(algorithm)
    else:  # but for how often they are called, the loop's functions are the same for all counts
        kind = (*sorted(options.items()), dtype)
        loop = LOOPS.setdefault(kind, Loop(algorithm))
        loop.config = config
    return jax.jit(algorithm.learn)(*start), loop.learn(*start)


@pytest.mark.parametrize(("variant", "updates"), COUNTS)
def test_fused_updates_equal_the_plain_loop(variant, updates):
    fused, loop = learned(VARIANTS[variant], updates)
    assert_near(fused, loop, **TOLERANCES["float32"])
    learner, _, report = fused
    draws = 1 if variant == "mega batch" else updates
    repeats = VARIANTS[variant].get("repeats", 1)
    assert int(learner.updates) == draws * repeats
    assert report.loss.shape == (draws, repeats)
    assert np.ptp(report.loss) > 0 or report.loss.size == 1


@pytest.mark.parametrize("variant", VARIANTS)
def test_fused_updates_equal_the_plain_loop_in_double_precision(variant):
    fused, loop = learned(VARIANTS[variant], 8, "float64")
    assert fused[0].weights.dtype == np.float64
    assert_near(fused[0], loop[0], **TOLERANCES["float64"])
    assert_near(fused[2], loop[2], **TOLERANCES["float64"])
    assert_near(fused[1], loop[1], **TOLERANCES["float64"])


@pytest.mark.parametrize("mode", ["exact", "block"])
def test_priorities_are_the_errors_before_each_step(mode):
    config = small(prioritized=mode, alpha=1.0)
    algorithm = algorithm_of(config)
    learner, replay = learner_of(algorithm), filled(algorithm)
    key = KEY if mode == "block" else jax.random.split(KEY, 1)[0]
    batch = algorithm.sample(replay, key, BETA, None)
    next_q = algorithm.target_values(learner, batch)
    targets = algorithm.targets(learner.weights, batch, next_q)
    q = algorithm.values(learner.weights, batch["obs"])
    errors = np.abs(q[np.arange(4), batch["action"]] - targets) + config.priority_epsilon
    _, after, _ = jax.jit(algorithm.learn)(learner, replay, KEY, BETA)
    leaves = np.asarray(after.tree)[-algorithm.replay.leaves :]
    expected = np.asarray(replay.tree)[-algorithm.replay.leaves :].copy()
    expected[np.asarray(batch["indices"])] = errors
    np.testing.assert_allclose(leaves, expected, rtol=1e-5)


# --- E28, E29: repeats and mega-batches ----------------------------------------------------------


@pytest.mark.parametrize("target", ["replace", "off"])
def test_e28_repeats_make_distinct_steps_and_hoisted_targets_are_exact_with_a_target_network(
    target,
):
    config = small(target=target, repeats=8)
    algorithm = algorithm_of(config)
    learner, replay = learner_of(algorithm), filled(algorithm)
    batch = jax.tree.map(lambda x: x[0], algorithm.sample(replay, KEY, BETA, 1))
    first = algorithm.target_values(learner, batch)
    update, thetas, targets = jax.jit(algorithm.update), [], []
    for _ in range(8):
        now = algorithm.target_values(learner, batch)
        targets.append(algorithm.targets(learner.weights, batch, now))
        learner, _, _ = update(learner, batch, first)
        thetas.append(np.asarray(learner.weights))
    assert len({theta.tobytes() for theta in thetas}) == 8
    same = [np.array_equal(targets[0], other) for other in targets[1:]]
    assert all(same) if target == "replace" else not any(same)
    fused, _, _ = jax.jit(algorithm.learn)(learner_of(algorithm), replay, KEY, BETA)
    np.testing.assert_allclose(fused.weights, thetas[-1], rtol=1e-5, atol=1e-6)


def test_e29_the_mega_batch_is_another_algorithm_whose_gradient_is_the_mean_of_the_batches():
    each = algorithm_of(small(updates=4, optimizer="sgd"))
    mega = algorithm_of(small(updates=4, optimizer="sgd", mega_batch=True))
    learner, replay = learner_of(each), filled(each)
    batches = jax.jit(each.sample, static_argnums=3)(replay, KEY, BETA, 4)
    one = jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), batches)

    @jax.jit
    def gradient(batch):
        return each.gradient(learner.weights, batch, each.target_values(learner, batch))[0]

    whole = gradient(one)
    parts = [gradient(jax.tree.map(lambda x, i=i: np.asarray(x)[i], batches)) for i in range(4)]
    np.testing.assert_allclose(np.mean(parts, 0), whole, rtol=1e-5, atol=1e-6)
    by_steps, _, _ = jax.jit(each.learn)(learner, replay, KEY, BETA)
    by_mega, _, _ = jax.jit(mega.learn)(learner, replay, KEY, BETA)
    assert int(by_steps.updates) == 4
    assert int(by_mega.updates) == 1
    assert np.abs(by_steps.weights - by_mega.weights).max() > 1e-3


def test_accumulated_gradients_are_those_of_one_large_batch():
    learners = []
    for options in ({"accumulate": 4}, {"batch_size": 16}):
        algorithm = algorithm_of(small(**options))
        learner, replay = learner_of(algorithm), filled(algorithm)
        learners.append(jax.jit(algorithm.learn)(learner, replay, KEY, BETA)[0])
    assert_near(*learners, rtol=1e-5, atol=1e-6)


# --- gradients only where they belong ------------------------------------------------------------


@pytest.mark.parametrize("variant", ["replace", "double", "no target", "sarsa, no target"])
def test_no_gradient_flows_into_the_target_network_or_through_the_successor(variant):
    algorithm = algorithm_of(small(**VARIANTS[variant]))
    learner, replay = learner_of(algorithm), filled(algorithm)
    batch = algorithm.sample(replay, KEY, BETA, None)

    def loss(target, next_obs):
        moved = {**batch, "next_obs": next_obs}
        next_q = algorithm.target_values(learner._replace(target=target), moved)
        return algorithm.gradient(learner.weights, moved, next_q)[1][0]

    by_target, by_successor = jax.grad(loss, (0, 1))(learner.target, batch["next_obs"])
    assert not np.any(by_target)
    assert not np.any(by_successor)


# --- E12: what is not finite ---------------------------------------------------------------------


def spoiled(algorithm, bad=np.nan):
    """A buffer in which half of the rewards are `bad`."""
    rows = transitions(algorithm.config.buffer_size)
    rows["reward"][::2] = bad
    return filled(algorithm, rows)


@pytest.mark.parametrize("bad", [np.nan, np.inf, 1e30], ids=str)
@pytest.mark.parametrize("mode", ["off", "exact", "block"])
def test_e12_an_update_that_is_not_finite_changes_nothing(mode, bad):
    """1e30 is a number, but its square is none in float32."""
    algorithm = algorithm_of(small(prioritized=mode, updates=2, batch_size=16, on_nan="skip"))
    learner, replay = learner_of(algorithm), spoiled(algorithm, bad)
    after, written, report = jax.jit(algorithm.learn)(learner, replay, KEY, BETA)
    assert not np.isfinite(report.loss).any()
    assert int(after.skipped) == 2
    assert not bool(after.failed)
    assert_same(after._replace(skipped=learner.skipped), learner)
    if mode == "off":
        assert_same(written, replay)
    else:  # node 0 of the tree takes what is not to be written
        assert_same(written._replace(tree=written.tree[1:]), replay._replace(tree=replay.tree[1:]))


@pytest.mark.parametrize(("on_nan", "goes_on"), [("stop", False), ("skip", True)])
def test_e12_after_it_learning_stops_or_goes_on_as_was_asked(on_nan, goes_on):
    algorithm = algorithm_of(small(on_nan=on_nan, updates=32, batch_size=1))
    learner, replay = learner_of(algorithm), spoiled(algorithm)
    after, _, report = jax.jit(algorithm.learn)(learner, replay, KEY, BETA)
    finite = np.isfinite(np.asarray(report.loss)[:, 0])
    assert 0 < finite.sum() < 32
    first_bad = int(np.argmin(finite))
    assert int(after.updates) == (finite.sum() if goes_on else first_bad)
    assert bool(after.failed) is not goes_on
    again, _, _ = jax.jit(algorithm.learn)(after, replay, KEY, BETA)
    assert np.array_equal(again.weights, after.weights) is not goes_on
    assert np.all(np.isfinite(again.weights))


def test_e12_a_stopped_learner_does_not_move_its_target_network():
    algorithm = algorithm_of(small(target_every=64))
    learner = learner_of(algorithm)
    step = jnp.int32(64)
    assert_same(algorithm.update_target(learner, step).target, learner.weights)
    failed = learner._replace(failed=jnp.ones((), bool))
    assert_same(algorithm.update_target(failed, step), failed)


# --- the target network --------------------------------------------------------------------------


@pytest.mark.parametrize(("every", "copies"), [(10, 8), (20, 4), (25, 3), (40, 2), (1, 8)])
def test_the_target_network_is_copied_when_its_steps_have_passed(every, copies):
    config = small(train_every=10, target_every=every, buffer_size=64)
    algorithm = algorithm_of(config)
    fresh = learner_of(algorithm)
    moved = [
        bool(
            np.array_equal(algorithm.update_target(fresh, jnp.int32(10 * k)).target, fresh.weights)
        )
        for k in range(1, 9)
    ]
    assert sum(moved) == copies
    assert moved == [10 * k // every > 10 * (k - 1) // every for k in range(1, 9)]


def test_polyak_takes_over_a_share():
    algorithm = algorithm_of(small(target="polyak", tau=0.25, target_every=64))
    learner = learner_of(algorithm)
    expected = 0.75 * np.asarray(learner.target) + 0.25 * np.asarray(learner.weights)
    found = algorithm.update_target(learner, jnp.int32(64)).target
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-7)


def test_the_target_network_starts_as_a_copy():
    algorithm = algorithm_of(small())
    learner, _ = jax.jit(algorithm.init)(KEY)
    assert_same(learner.target, learner.weights)


# --- what is drawn -------------------------------------------------------------------------------


def test_the_newest_rows_are_in_every_batch():
    algorithm = algorithm_of(small(newest=2, updates=3))
    batches = algorithm.sample(filled(algorithm), KEY, BETA, 3)
    np.testing.assert_array_equal(np.asarray(batches["indices"])[:, -2:], [[62, 63]] * 3)


def test_e34_sarsa_targets_are_those_of_the_action_that_was_taken():
    algorithm = algorithm_of(small(sarsa=True))
    learner, replay = learner_of(algorithm), filled(algorithm)
    batch = algorithm.sample(replay, KEY, BETA, None)
    next_q = np.asarray(algorithm.target_values(learner, batch))
    found = algorithm.targets(learner.weights, batch, jnp.asarray(next_q))
    for i in range(4):
        value = 0 if batch["terminated"][i] else next_q[i, batch["next_action"][i]]
        expected = float(batch["reward"][i]) + 0.9 * value
        np.testing.assert_allclose(float(found[i]), expected, rtol=1e-5)


def test_a_report_is_of_the_batch_before_the_step():
    algorithm = algorithm_of(small())
    learner, replay = learner_of(algorithm), filled(algorithm)
    batch = jax.tree.map(lambda x: x[0], algorithm.sample(replay, KEY, BETA, 1))
    targets = algorithm.targets(learner.weights, batch, algorithm.target_values(learner, batch))
    q = np.asarray(algorithm.values(learner.weights, batch["obs"]))[np.arange(4), batch["action"]]
    errors = q - np.asarray(targets)
    _, _, report = jax.jit(algorithm.learn)(learner, replay, KEY, BETA)
    assert DQNReport._fields == ("loss", "td_error", "q_mean", "gradient_norm")
    expected = {"loss": (errors**2).mean(), "td_error": np.abs(errors).mean(), "q_mean": q.mean()}
    found = {name: float(getattr(report, name)[0, 0]) for name in expected}
    assert found == pytest.approx(expected, rel=1e-5)
    assert set(arrays_of(report)) == {f".{name}" for name in DQNReport._fields}
