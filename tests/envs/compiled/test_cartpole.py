"""The compiled CartPole beside Gymnasium's, step for step."""

import gymnasium
import jax
import numpy as np
import pytest
from beside_gymnasium import KEY, begins, compiled_run, gymnasium_run

from loopless.envs.compiled.classic import CartPole

ACTIONS = np.random.default_rng(0).integers(0, 2, 10_000).tolist()


@pytest.fixture(scope="module")
def theirs():
    return gymnasium_run("CartPole-v1", ACTIONS)


@pytest.mark.parametrize(
    ("x64", "every_step", "tolerance"),
    [
        pytest.param(False, True, {"rtol": 0, "atol": 1e-5}, id="float32-each-step"),
        # An episode is unstable and its float32 roundings grow: to 1.2e-5 of 2.4 in the longest.
        pytest.param(False, False, {"rtol": 1e-5, "atol": 1e-5}, id="float32-each-episode"),
        pytest.param(True, False, {"rtol": 0, "atol": 1e-12}, id="float64-each-episode"),
    ],
)
def test_equals_gymnasium_over_ten_thousand_random_steps(theirs, x64, every_step, tolerance):
    actions, states, rows = theirs
    assert begins(rows).sum() > 300
    with jax.enable_x64(x64):
        ours = compiled_run(CartPole(), actions, states, begins(rows) | every_step)
    np.testing.assert_allclose(ours.obs, rows.obs, **tolerance)
    for mine, other in zip(ours[1:], rows[1:], strict=True):
        np.testing.assert_array_equal(mine, other)


def balancing(obs):
    return int(obs[2] + 0.3 * obs[3] + 0.02 * obs[0] + 0.05 * obs[1] > 0)


def test_the_time_limit_truncates_and_does_not_terminate():
    env = gymnasium.make("CartPole-v1")
    obs, _ = env.reset(seed=1)
    start, actions, ends = env.unwrapped.state, [], []
    for _ in range(500):
        actions.append(balancing(obs))
        obs, _, terminated, truncated, _ = env.step(actions[-1])
        ends.append((terminated, truncated))
    states, first = np.tile(start, (500, 1)), np.arange(500) == 0
    _, _, terminated, truncated = compiled_run(CartPole(), np.array(actions), states, first)
    np.testing.assert_array_equal(np.stack([terminated, truncated], 1), ends)
    assert ends[-1] == (False, True)
    assert ends[-2] == (False, False)


def test_a_fall_at_the_time_limit_sets_both():
    pushes, states, first = np.ones(20, int), np.zeros((20, 4)), np.arange(20) == 0
    _, _, terminated, truncated = compiled_run(CartPole(), pushes, states, first)
    falls = int(np.argmax(terminated))
    assert not truncated.any()
    _, _, terminated, truncated = compiled_run(CartPole(falls + 1), pushes, states, first)
    assert terminated[falls]
    assert truncated[falls]
    assert not truncated[:falls].any()


def test_starts_are_uniform_within_a_twentieth():
    _, obs = jax.vmap(CartPole().reset)(jax.random.split(KEY, 4000))
    obs = np.asarray(obs)
    assert obs.dtype == np.float32
    assert np.abs(obs).max() <= 0.05
    np.testing.assert_allclose(obs.mean(0), 0, atol=0.002)  # 4 standard errors
    np.testing.assert_allclose(obs.std(0), 0.1 / np.sqrt(12), atol=0.002)


@pytest.mark.parametrize(("x64", "dtype"), [(False, "float32"), (True, "float64")])
def test_the_state_has_jax_floats_and_the_observation_float32(x64, dtype):
    with jax.enable_x64(x64):
        state, obs = jax.eval_shape(CartPole().reset, KEY)
        after, next_obs, reward, *_ = jax.eval_shape(CartPole().step, state, 1, KEY)
    assert [x.motion.dtype for x in (state, after)] == [dtype, dtype]
    assert [x.dtype for x in (obs, next_obs, reward)] == ["float32"] * 3
