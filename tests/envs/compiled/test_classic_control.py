"""Gymnasium's classic control, compiled: beside the originals, step for step."""

import jax
import numpy as np
import pytest
from beside_gymnasium import KEY, begins, compiled_run, gymnasium_run

from loopless.envs import EnvError, make_compiled
from loopless.envs.compiled.classic import Acrobot, MountainCarContinuous, Pendulum

STEPS = 10_000
EVERY = np.ones(STEPS, bool)


def torques():
    """Beyond what counts, too."""
    return np.random.default_rng(0).uniform(-2.5, 2.5, (STEPS, 1)).astype(np.float32)


def forces(obs, t):
    """Any, and every other thousand steps rather with the motion, so that the car arrives."""
    push = 0.6 * np.sign(obs[1]) * (t // 1000 % 2)
    return np.float32([push + np.random.default_rng(t).uniform(-1.2, 1.2)])


def swinging(speeds, angles=1.0):
    """Starts Gymnasium's Acrobot in motion."""
    rng = np.random.default_rng(0)

    def begin(env):
        most = np.array([angles, angles, *speeds])
        env.state = rng.uniform(-most, most)

    return begin


ANY = np.random.default_rng(0).integers(0, 3, STEPS).tolist()
RUNS = {
    "Pendulum-v1": (Pendulum(), {"actions": torques()}),
    "MountainCarContinuous-v0": (MountainCarContinuous(), {"actions": forces}),
    "Acrobot-v1": (Acrobot(), {"actions": ANY, "begin": swinging((4, 6))}),
}


@pytest.fixture(scope="module")
def runs():
    """By id: the compiled environment, and actions, states and rows of Gymnasium's; run once."""
    made = {}

    def run(env_id):
        if env_id not in made:
            env, how = RUNS[env_id]
            made[env_id] = env, *gymnasium_run(env_id, **how)
        return made[env_id]

    return run


def one_turn(env_id, states):
    """States as fine as float32 can hold them: without the turns that Gymnasium's angle counts."""
    if env_id == "Pendulum-v1":
        states = states.copy()
        states[:, 0] -= 2 * np.pi * np.round(states[:, 0] / (2 * np.pi))
    return states


@pytest.mark.slow
@pytest.mark.parametrize("env_id", RUNS)
def test_every_step_equals_gymnasium_s_in_float32(runs, env_id):
    env, actions, states, rows = runs(env_id)
    with jax.enable_x64(False):
        ours = compiled_run(env, actions, one_turn(env_id, states), EVERY)
    np.testing.assert_allclose(ours.obs, rows.obs, rtol=0, atol=1e-5)
    np.testing.assert_allclose(ours.reward, rows.reward, rtol=0, atol=1e-5)
    np.testing.assert_array_equal(ours.terminated, rows.terminated)
    assert rows.terminated.any() == (env_id != "Pendulum-v1")


ROUNDED = {"rtol": 2e-7, "atol": 2e-7}  # what float64 leaves of a float32 observation


@pytest.mark.parametrize(
    ("env_id", "tolerance"),
    [
        ("Pendulum-v1", ROUNDED),
        # Gymnasium's state is float32, too: roundings grow over 999 steps, to 1e-5 of 1.2.
        ("MountainCarContinuous-v0", {"rtol": 1e-5, "atol": 1e-5}),
    ],
)
def test_every_episode_equals_gymnasium_s_in_float64(runs, env_id, tolerance):
    env, actions, states, rows = runs(env_id)
    assert begins(rows).sum() > 10
    assert rows.truncated.any()
    ours = compiled_run(env, actions, states, begins(rows))
    np.testing.assert_allclose(ours.obs, rows.obs, **tolerance)
    np.testing.assert_allclose(ours.reward, rows.reward, rtol=2e-7, atol=1e-7)
    np.testing.assert_array_equal(ours.terminated, rows.terminated)
    np.testing.assert_array_equal(ours.truncated, rows.truncated)


def test_every_step_of_an_acrobot_of_any_speed_equals_gymnasium_s_in_float64():
    begin = swinging((4 * np.pi, 9 * np.pi), np.pi)
    actions, states, rows = gymnasium_run("Acrobot-v1", ANY[:3000], begin)
    fastest = np.abs(states[:, 2:]).max(0)
    np.testing.assert_allclose(fastest, [4 * np.pi, 9 * np.pi])  # the bounds were met
    assert rows.terminated.sum() > 100
    ours = compiled_run(Acrobot(), actions, states, EVERY[:3000])
    np.testing.assert_allclose(ours.obs, rows.obs, **ROUNDED)
    np.testing.assert_array_equal(ours.reward, rows.reward)
    np.testing.assert_array_equal(ours.terminated, rows.terminated)


def test_an_acrobot_left_alone_is_truncated_and_not_terminated():
    states, first = np.zeros((500, 4)), np.arange(500) == 0
    rows = compiled_run(Acrobot(), np.ones(500, int), states, first)
    assert not rows.terminated.any()
    assert np.flatnonzero(rows.truncated).tolist() == [499]


@pytest.mark.parametrize(
    ("motion", "force", "after", "reward"),
    [
        ((-1.19, -0.07), 0.0, (-1.2, 0.0), 0.0),  # the wall stops the car
        ((0.44, 0.07), 3.0, (0.51, 0.07), 99.1),  # it arrives at full speed and pays for all of 3
        ((0.52, -0.05), 0.0, (0.46997301, -0.05002699), 0.0),  # leaving is not arriving
    ],
    ids=["wall", "goal", "backwards"],
)
def test_the_mountain_car_at_its_edges(motion, force, after, reward):
    states = np.array([motion])
    rows = compiled_run(MountainCarContinuous(), np.float32([[force]]), states, EVERY[:1])
    assert rows.terminated.tolist() == [reward > 0]
    np.testing.assert_allclose(rows.reward, [reward], rtol=1e-6)
    np.testing.assert_allclose(rows.obs[0], after, rtol=1e-6)


@pytest.mark.parametrize(("x64", "dtype"), [(False, "float32"), (True, "float64")])
@pytest.mark.parametrize("env_id", RUNS)
def test_states_have_jax_floats_and_observations_float32(env_id, x64, dtype):
    env, _ = RUNS[env_id]
    action = np.int32(0) if env_id == "Acrobot-v1" else np.zeros(1, np.float32)
    with jax.enable_x64(x64):
        state, obs = jax.eval_shape(env.reset, KEY)
        after, next_obs, reward, *_ = jax.eval_shape(env.step, state, action, KEY)
    if env_id == "MountainCarContinuous-v0":
        dtype = "float32"  # as Gymnasium's own
    assert [x.motion.dtype for x in (state, after)] == [dtype, dtype]
    assert [x.dtype for x in (obs, next_obs, reward)] == ["float32"] * 3


@pytest.mark.parametrize("env_id", ["Pendulum-v1", "MountainCarContinuous-v0"])
def test_continuous_actions_are_not_counted(env_id):
    with pytest.raises(EnvError, match=rf"{env_id}: actions are Box.*not Discrete"):
        _ = make_compiled(env_id).actions
