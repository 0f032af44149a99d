"""Continuous actions and several choices at once, however the environments are stepped."""

import sys
from types import SimpleNamespace

import gymnasium
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from support import scripted_envs

from loopless.envs import EnvError, HostedEnvs
from loopless.envs.spaces import Box, MultiDiscrete

ENVS, STEPS = 3, 6
SPACES = {
    "Box": Box((2,), "float32", (-1.0, 0.0), (1.0, 2.0)),
    "MultiDiscrete": MultiDiscrete((3, 4)),
}


def actions(kind):
    """[steps, envs, 2] of actions, the bounds among them."""
    rng = np.random.default_rng(0)
    if kind == "MultiDiscrete":
        return rng.integers(0, [3, 4], (STEPS, ENVS, 2))
    table = rng.uniform([-1, 0], [1, 2], (STEPS, ENVS, 2)).astype(np.float32)
    table[0], table[1] = [-1, 0], [1, 2]
    return table


def around(mode):
    def make(kind):
        makers = [lambda: gymnasium.make("tests/Echo-v0", kind=kind)] * ENVS
        return HostedEnvs.around(SyncVectorEnv(makers, autoreset_mode=mode))

    return make


def by_id(vectorization, env_id="tests/Echo-v0", **options):
    return lambda kind: HostedEnvs(
        env_id, ENVS, vectorization=vectorization, env_kwargs={"kind": kind}, **options
    )


WAYS = {
    "sync": by_id("sync"),
    "async": by_id("async", workers=2),
    "native": by_id("native", "tests/Echoes-v0"),
    "envpool": by_id("envpool"),
    **{f"around-{mode.name}": around(mode) for mode in AutoresetMode},
}


@pytest.fixture(autouse=True)
def pool(monkeypatch):
    def make_gymnasium(env_id, *, num_envs, seed, kind):
        inner = scripted_envs.many_echoes(num_envs, kind)
        fields = ("metadata", "single_observation_space", "single_action_space", "step", "close")
        known = {name: getattr(inner, name) for name in fields}
        return SimpleNamespace(num_envs=num_envs, spec=None, reset=inner.reset, **known)

    fake = SimpleNamespace(list_all_envs=lambda: ["tests/Echo-v0"], make_gymnasium=make_gymnasium)
    monkeypatch.setitem(sys.modules, "envpool", fake)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("kind", SPACES)
def test_every_action_arrives_as_it_was_chosen(kind, way):
    table = actions(kind)
    with WAYS[way](kind) as world:
        assert world.action_space == SPACES[kind]
        rows = iter(table)
        block = world.collect(lambda obs: next(rows), STEPS)
        np.testing.assert_array_equal(block.action, table)
        np.testing.assert_array_equal(block.next_obs, table)
        np.testing.assert_array_equal(block.reward, table[..., 0])
        assert block.action.dtype == SPACES[kind].dtype
        np.testing.assert_array_equal(world.step(table[2]).next_obs, table[2])


@pytest.mark.parametrize("way", ["sync", "around-SAME_STEP"])
@pytest.mark.parametrize(
    ("kind", "given"),
    [
        ("Box", np.zeros((ENVS, 2), int)),
        ("Box", np.zeros((ENVS, 1))),
        ("MultiDiscrete", np.zeros((ENVS, 2))),
        ("MultiDiscrete", np.zeros((1, 2), int)),
    ],
)
def test_actions_of_another_kind_or_shape_are_refused(kind, given, way):
    with WAYS[way](kind) as world, pytest.raises(EnvError, match=r"the policy gave .* need \(3, 2"):
        world.collect(lambda obs: given, 1)


@pytest.mark.parametrize("way", ["sync", "async", "native"])
def test_pendulum_s_rows_are_the_same_however_it_is_stepped(way):
    if way == "native":
        makers = [lambda: gymnasium.make("Pendulum-v1")] * ENVS
        world = HostedEnvs.around(SyncVectorEnv(makers, autoreset_mode=AutoresetMode.SAME_STEP))
    else:
        world = HostedEnvs("Pendulum-v1", ENVS, vectorization=way)
    vector = SyncVectorEnv([lambda: gymnasium.make("Pendulum-v1")] * ENVS)
    seeds = (np.random.SeedSequence(0).generate_state(ENVS) >> 1).tolist()
    table = np.random.default_rng(1).uniform(-2, 2, (5, ENVS, 1)).astype(np.float32)
    with world:
        rows = iter(table)
        block = world.collect(lambda obs: next(rows), 5)
    first, _ = vector.reset(seed=seeds)
    np.testing.assert_array_equal(block.obs[0], first)
    for t in range(5):
        obs, rewards, *_ = vector.step(table[t])
        np.testing.assert_array_equal(block.next_obs[t], obs)
        np.testing.assert_array_equal(block.reward[t], rewards.astype(np.float32))
