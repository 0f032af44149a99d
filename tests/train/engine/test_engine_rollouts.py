"""Running statistics merged in windows are those of all rows at once; fillers do not count."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from ppo_cases import ENVS, KEY, STEPS, algorithm_of, learner_of, rollout_of, small

from loopless.train.engine.rollouts import (
    LARGEST,
    Rollout,
    Statistics,
    next_values,
    normalize_observations,
    scale_rewards,
)

ROWS = np.random.default_rng(0).normal(3.0, 2.0, (5, 4, 3)).astype(np.float32)


@pytest.mark.parametrize("cut", [0, 1, 2, 5])
def test_windows_merge_to_the_statistics_of_all_rows(cut):
    found = Statistics.empty((3,)).merge(ROWS[:cut]).merge(ROWS[cut:])
    flat = ROWS.reshape(-1, 3).astype(np.float64)
    np.testing.assert_allclose(found.mean, flat.mean(0), rtol=1e-5)
    np.testing.assert_allclose(found.variance, flat.var(0), rtol=1e-5)
    assert float(found.seen) == 20


def test_fillers_do_not_count():
    valid = np.random.default_rng(1).random((5, 4)) < 0.5
    dirty = np.where(valid[..., None], ROWS, np.nan)
    found = Statistics.empty((3,)).merge(dirty, jnp.asarray(valid))
    np.testing.assert_allclose(found.mean, ROWS[valid].mean(0), rtol=1e-5)
    np.testing.assert_allclose(found.variance, ROWS[valid].var(0), rtol=1e-5)


def test_nothing_seen_changes_nothing():
    found = Statistics.empty((3,)).merge(ROWS, jnp.zeros((5, 4), bool))
    np.testing.assert_array_equal(normalize_observations(ROWS, found.mean, found.variance), ROWS)
    assert np.abs(ROWS).max() < LARGEST


def test_rewards_are_scaled_by_the_deviation_of_each_env_s_discounted_return():
    """The running return by a loop, over two windows, reset at starts."""
    config = small(normalize_rewards=True)
    statistics, carried = Statistics.empty(), jnp.zeros(ENVS, jnp.float32)
    scale, running, seen = jax.jit(scale_rewards), np.zeros(ENVS), []
    for window in range(2):
        rollout = rollout_of(seed=window)
        scaled, statistics, carried = scale(
            statistics, carried, rollout.reward, rollout.starts[:-1], None, config.gamma
        )
        for t in range(STEPS):
            for env in range(ENVS):
                before = 0.0 if rollout.starts[t, env] else config.gamma * running[env]
                running[env] = before + rollout.reward[t, env]
            seen.append(running.copy())
        np.testing.assert_allclose(carried, running, rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(scaled, rollout.reward / np.std(seen), rtol=1e-5)
    assert not np.allclose(scaled, rollout.reward)


def test_observations_are_normalised_by_what_was_seen_before_the_rollout():
    algorithm = algorithm_of(small(normalize_obs=True), dtype="float32")
    learner, first, second = learner_of(algorithm, "float32"), rollout_of(), rollout_of(seed=2)
    learn = jax.jit(algorithm.learn)
    learner, _ = learn(learner, learner.acting(), first, KEY, jnp.int32(0))
    rows = first.all_obs[:-1].reshape(-1, 3)
    np.testing.assert_allclose(learner.obs.mean, rows.mean(0), rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(learner.obs.variance, rows.var(0), rtol=1e-4)
    _, thought = jax.jit(algorithm.prepare)(learner, learner.acting(), second)
    expected = (second.all_obs[:-1] - rows.mean(0)) / rows.std(0)
    np.testing.assert_allclose(thought["obs"], expected, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("share", [0.0, 0.2, 1.0])
@pytest.mark.parametrize("width", [1, 3, 6, 12, 100])
def test_the_value_of_a_cut_step_is_that_of_its_true_successor(share, width):
    steps, envs = 7, 3
    rng = np.random.default_rng(0)
    next_obs, memories = rng.normal(size=(2, steps, envs, 2)).astype(np.float32)
    all_values = rng.normal(size=(steps + 1, envs)).astype(np.float32)
    truncated, terminated = rng.random((2, steps, envs)) < share
    expected = all_values[1:].copy()
    for t in range(steps):
        for env in range(envs):
            if truncated[t, env] and not terminated[t, env]:
                expected[t, env] = 10 * next_obs[t, env, 0] + memories[t, env, 1]
    rollout = Rollout(
        None, jnp.asarray(next_obs), None, jnp.zeros((steps, envs)), jnp.asarray(terminated),
        jnp.asarray(truncated), None,
    )  # fmt: skip
    values = next_values(
        rollout, jnp.asarray(all_values), lambda memory, obs: 10 * obs[:, 0] + memory[:, 1],
        jnp.asarray(memories), width,
    )  # fmt: skip
    np.testing.assert_allclose(values, expected, rtol=1e-6)
