"""Gymnasium's classic control, compiled: beside the originals, step for step."""

import jax
import numpy as np
import pytest
from beside_gymnasium import KEY, begins, compiled_run, gymnasium_run

from loopless.envs import EnvError, make_compiled

STEPS = 10_000


def torques():
    """Beyond what counts, too."""
    return np.random.default_rng(0).uniform(-2.5, 2.5, (STEPS, 1)).astype(np.float32)


RUNS = {"Pendulum-v1": {"actions": torques()}}


@pytest.fixture(scope="module", params=RUNS)
def theirs(request):
    return request.param, *gymnasium_run(request.param, **RUNS[request.param])


def one_turn(env_id, states):
    """States as fine as float32 can hold them: without the turns that Gymnasium's angle counts."""
    if env_id == "Pendulum-v1":
        states = states.copy()
        states[:, 0] -= 2 * np.pi * np.round(states[:, 0] / (2 * np.pi))
    return states


def test_every_step_equals_gymnasium_s_in_float32(theirs):
    env_id, actions, states, rows = theirs
    with jax.enable_x64(False):
        every = np.ones(STEPS, bool)
        ours = compiled_run(make_compiled(env_id), actions, one_turn(env_id, states), every)
    np.testing.assert_allclose(ours.obs, rows.obs, rtol=0, atol=1e-5)
    np.testing.assert_allclose(ours.reward, rows.reward, rtol=0, atol=1e-5)
    np.testing.assert_array_equal(ours.terminated, rows.terminated)


def test_every_episode_equals_gymnasium_s_in_float64(theirs):
    env_id, actions, states, rows = theirs
    assert begins(rows).sum() > 10
    ours = compiled_run(make_compiled(env_id), actions, states, begins(rows))
    np.testing.assert_allclose(ours.obs, rows.obs, rtol=2e-7, atol=2e-7)  # float32's rounding
    np.testing.assert_allclose(ours.reward, rows.reward, rtol=2e-7)
    np.testing.assert_array_equal(ours.terminated, rows.terminated)
    np.testing.assert_array_equal(ours.truncated, rows.truncated)


@pytest.mark.parametrize(("x64", "dtype"), [(False, "float32"), (True, "float64")])
def test_the_pendulum_has_jax_floats_and_its_observation_float32(x64, dtype):
    env = make_compiled("Pendulum-v1")
    with jax.enable_x64(x64):
        state, obs = jax.eval_shape(env.reset, KEY)
        after, next_obs, reward, *_ = jax.eval_shape(env.step, state, np.zeros(1, "float32"), KEY)
    assert [x.motion.dtype for x in (state, after)] == [dtype, dtype]
    assert [x.dtype for x in (obs, next_obs, reward)] == ["float32"] * 3


def test_continuous_actions_are_not_counted():
    with pytest.raises(EnvError, match=r"Pendulum-v1: actions are Box.*not Discrete"):
        _ = make_compiled("Pendulum-v1").actions
