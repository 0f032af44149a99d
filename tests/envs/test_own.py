"""Environments of the user's own: beside the command, with arguments and wrappers, in parts."""

import sys

import gymnasium
import numpy as np
import pytest

from loopless.envs import EnvError, HostedEnvs, is_compiled, make_compiled, objects
from loopless.envs.hosted import ids

MODULE = """
import gymnasium
import numpy as np

class Steps(gymnasium.Env):
    def __init__(self, size=2):
        self.observation_space = gymnasium.spaces.Box(0, 99, (size,), np.float32)
        self.action_space = gymnasium.spaces.Discrete(2)
    def reset(self, *, seed=None, options=None):
        self.taken = 0
        return np.zeros(self.observation_space.shape, np.float32), {}
    def step(self, action):
        self.taken += 1
        obs = np.full(self.observation_space.shape, self.taken, np.float32)
        return obs, 1.0, self.taken >= 3, False, {}

class Double(gymnasium.RewardWrapper):
    def reward(self, reward):
        return 2 * reward

def not_an_env(env):
    return 7

class Compiled:
    obs_shape, obs_dtype, actions, max_steps = (1,), "float32", 2, None
    def reset(self, key): ...
    def step(self, state, action, key): ...

gymnasium.register("OwnSteps-v0", entry_point=Steps, kwargs={"size": 5}, max_episode_steps=2)
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A working directory with a module of the user's, which nothing has put on the path."""
    (tmp_path / "own_steps.py").write_text(MODULE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [part for part in sys.path if part])
    yield tmp_path
    sys.modules.pop("own_steps", None)
    gymnasium.registry.pop("OwnSteps-v0", None)


def zeros(obs):
    return np.zeros(len(obs), np.int64)


def test_a_class_in_the_working_directory_is_found(folder):
    with HostedEnvs("own_steps:Steps", 2) as envs:
        block = envs.collect(zeros, 3)
        assert envs.obs_shape == (2,)
        np.testing.assert_array_equal(block.terminated[-1], True)


def test_a_registered_id_of_a_module_comes_before_its_attributes(folder):
    with HostedEnvs("own_steps:OwnSteps-v0") as envs:
        assert envs.obs_shape == (5,)
        assert envs.max_steps == 2


def test_arguments_and_wrappers_reach_the_environment_from_the_inside_out(folder):
    wrappers = ("own_steps:Double", "own_steps:Double")
    with HostedEnvs("own_steps:Steps", env_kwargs={"size": 4}, wrappers=wrappers) as envs:
        assert envs.obs_shape == (4,)
        assert envs.collect(zeros, 1).reward.tolist() == [[4.0]]


@pytest.mark.slow
def test_worker_processes_find_class_and_wrappers_too(folder):
    with HostedEnvs(
        "own_steps:Steps", 2, vectorization="async", workers=1, wrappers=("own_steps:Double",)
    ) as envs:
        assert envs.collect(zeros, 1).reward.tolist() == [[2.0, 2.0]]


@pytest.mark.parametrize(
    ("env", "options", "message"),
    [
        ("own_stepz:Steps", {}, "importing own_stepz failed: No module named 'own_stepz'"),
        ("own_steps:Stepz", {}, "no environment 'Stepz' is registered"),
        ("own_steps:Steps", {"wrappers": ("Double",)}, "wrapper must be module:name"),
        ("own_steps:Steps", {"wrappers": ("own_steps:not_an_env",)}, "return an environment; rec"),
        ("own_steps:Steps", {"env_kwargs": {"sice": 1}}, "Check env_kwargs"),
        ("python:gone", {}, "was an object of another Python process"),
    ],
)
def test_what_cannot_be_made_is_said_in_words(folder, env, options, message):
    with pytest.raises(EnvError, match=message):
        HostedEnvs(env, **options)


def test_a_compiled_class_is_told_from_a_gymnasium_class(folder):
    assert is_compiled("own_steps:Compiled")
    assert not is_compiled("own_steps:Steps")
    assert not is_compiled("own_steps:OwnSteps-v0")
    assert is_compiled("CartPole-v1")
    assert type(make_compiled("own_steps:Compiled")).__name__ == "Compiled"


def test_things_without_a_name_are_kept_and_never_mixed_up():
    first, second = (lambda: 1), (lambda: 2)
    names = objects.name_of(first), objects.name_of(second)
    assert objects.name_of(first) == names[0] != names[1]
    assert objects.find(names[1]) is second
    assert objects.name_of(HostedEnvs) == "loopless.envs.hosted.envs:HostedEnvs"
    assert objects.name_of("CartPole-v1") == "CartPole-v1"


# --- observations of several parts

SPACE = gymnasium.spaces.Dict(
    {
        "speed": gymnasium.spaces.Box(-1, 1, (2,), np.float32),
        "gear": gymnasium.spaces.Discrete(3, start=1),
        "pair": gymnasium.spaces.Tuple(
            (gymnasium.spaces.MultiBinary(2), gymnasium.spaces.MultiDiscrete([2, 3]))
        ),
    }
)


class Parts(gymnasium.Env):
    observation_space = SPACE
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        self.observation_space.seed(seed)
        return self.observation_space.sample(), {}

    def step(self, action):
        return self.observation_space.sample(), 0.0, False, False, {}


def test_parts_are_flattened_as_gymnasium_does_it():
    def make():
        return Parts()

    with HostedEnvs(objects.name_of(make), seed=3) as envs:
        first = envs.obs[0].copy()
    seed = int(np.random.SeedSequence(3).generate_state(1)[0] >> 1)
    expected = gymnasium.spaces.flatten(SPACE, Parts().reset(seed=seed)[0])
    np.testing.assert_allclose(first, expected, rtol=1e-6)


def test_the_layout_names_each_part_and_its_numbers():
    parts = [tuple(part.values()) for part in ids.flat_layout(SPACE)]
    one_by_one = {
        "gear": (0, 3, "one-hot"), "pair[0]": (3, 5, "numbers"), "pair[1]": (5, 10, "one-hot"),
        "speed": (10, 12, "numbers"),
    }  # fmt: skip
    assert {name: tuple(rest) for name, *rest in parts} == one_by_one
    assert parts[-1][2] == gymnasium.spaces.flatdim(SPACE)


def test_blackjack_works_and_says_what_its_numbers_are():
    with HostedEnvs("Blackjack-v1") as envs:
        assert envs.obs_shape == (45,)
        assert envs.flattened == (
            "Observations are flattened: [0] 0 to 31 (one-hot), [1] 32 to 42 (one-hot), "
            "[2] 43 to 44 (one-hot)."
        )
        assert envs.collect(zeros, 2).valid.all()
    with HostedEnvs("CartPole-v1") as envs:
        assert envs.flattened == ""
