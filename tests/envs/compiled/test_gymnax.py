"""gymnax environments as ours: ends told apart, true final observations, both of its APIs."""

import sys
from types import SimpleNamespace
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

gymnax = pytest.importorskip("gymnax")
# of gymnax 0.0.9 itself, with the newest JAX
pytestmark = pytest.mark.filterwarnings("ignore:scatter inputs have incompatible types")

from loopless.envs import EnvError, HostedEnvs, autoreset, make_compiled  # noqa: E402


def roll(env, actions, seed=0):
    """Return the steps of one episode, until it ends or the actions do."""
    key = jax.random.key(seed)
    state, obs = env.reset(key)
    steps, step = [], jax.jit(env.step)
    for i, action in enumerate(actions):
        state, obs, reward, terminated, truncated = step(state, action, jax.random.fold_in(key, i))
        steps.append((np.asarray(obs), float(reward), bool(terminated), bool(truncated)))
        if terminated or truncated:
            break
    return steps


def test_a_fall_terminates_and_a_time_limit_truncates():
    env = make_compiled("gymnax:CartPole-v1")
    assert env.max_steps == 500
    fallen = roll(env, [1] * 30)[-1]
    assert fallen[2:] == (True, False)
    assert abs(fallen[0][2]) > 0.2  # the final observation, not one of a new start
    cut = roll(make_compiled("gymnax:CartPole-v1", max_steps_in_episode=4), [0, 1] * 4)
    assert len(cut) == 4
    assert cut[-1][2:] == (False, True)


def test_pictures_and_continuous_actions_are_described():
    world = autoreset(make_compiled("gymnax:Breakout-MinAtar"), envs=2)
    assert world.obs_space.shape == (10, 10, 4)
    assert world.action_space.n == 3
    box = make_compiled("gymnax:Pendulum-v1").action_space
    assert (box.shape, box.low, box.high) == ((1,), -2.0, 2.0)


def test_steps_are_those_of_gymnax():
    ours, actions = make_compiled("gymnax:Breakout-MinAtar"), [0, 1, 2, 1, 0, 2] * 3
    theirs, params = gymnax.make("Breakout-MinAtar")
    key, step = jax.random.key(3), jax.jit(theirs.step_env)
    _, state = theirs.reset_env(key, params)
    for i, (seen, reward, terminated, _) in enumerate(roll(ours, actions, seed=3)):
        keys = jax.random.fold_in(key, i)
        obs, state, expected, done, _ = step(keys, state, actions[i], params)
        np.testing.assert_array_equal(seen, obs)
        assert (reward, terminated) == (float(expected), bool(done))


def test_the_api_of_version_1_is_understood(monkeypatch):
    class Params(SimpleNamespace):
        max_steps_in_episode = 3
        __dataclass_fields__ = {"max_steps_in_episode": None}  # noqa: RUF012

    class Counter:
        """As in gymnax 1.0: step_env tells only true ends, is_truncated the time limit."""

        name = "Counter"

        def reset_env(self, key, params):
            return jnp.zeros(1), SimpleState(jnp.int32(0))

        def step_env(self, key, state, action, params):
            state = SimpleState(state.time + 1)
            return jnp.full(1, state.time, jnp.float32), state, 1.0, action == 1, {}

        def is_truncated(self, state, params):
            return state.time >= params.max_steps_in_episode

        def action_space(self, params):
            return SimpleNamespace(n=2)

    fake = SimpleNamespace(registered_envs=["Counter"], make=lambda name: (Counter(), Params()))
    monkeypatch.setitem(sys.modules, "gymnax", fake)
    env = make_compiled("gymnax:Counter")
    autoreset(env, 2)
    assert [step[2:] for step in roll(env, [0, 0, 0, 0])] == [(False, False)] * 2 + [(False, True)]
    assert roll(env, [0, 1])[-1][2:] == (True, False)


class SimpleState(NamedTuple):
    time: jax.Array


def test_it_is_played_as_a_gymnasium_environment():
    with HostedEnvs("gymnax:CartPole-v1", env_kwargs={"max_steps_in_episode": 5}) as envs:
        block = envs.collect(lambda obs: np.array([0]), 5)
        assert envs.max_steps == 5
        assert block.truncated[:, 0].tolist() == [False] * 4 + [True]


@pytest.mark.parametrize(
    ("env", "options", "message"),
    [
        ("gymnax:Cartpole-v1", {}, "Did you mean CartPole-v1"),
        ("gymnax:CartPole-v1", {"gravitation": 1}, "no parameter gravitation. It has .*gravity"),
    ],
)
def test_unknown_names_are_refused(env, options, message):
    with pytest.raises(EnvError, match=message):
        make_compiled(env, **options)


def test_a_missing_package_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "gymnax", None)
    with pytest.raises(EnvError, match="pip install gymnax"):
        make_compiled("gymnax:CartPole-v1")
