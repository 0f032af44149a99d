"""Descriptions of spaces: what is stored, and what is refused."""

import gymnasium
import numpy as np
import pytest

from loopless.envs import EnvError
from loopless.envs.spaces import Box, Discrete, MultiDiscrete, actions, observations

gym = gymnasium.spaces


@pytest.mark.parametrize(
    ("space", "stored"),
    [
        (gym.Box(-1, 1, (3,), np.float32), Box((3,), "float32", -1.0, 1.0)),
        (gym.Box(-1, 1, (3,), np.float64), Box((3,), "float32", -1.0, 1.0)),
        (gym.Box(0, 9, (2, 2), np.int64), Box((2, 2), "float32", 0.0, 9.0)),
        (gym.Box(0, 255, (8, 8, 3), np.uint8), Box((8, 8, 3), "uint8", 0.0, 255.0)),
        (gym.Box(np.float32([0, -1]), np.float32([1, 2])), Box((2,), "float32", (0, -1), (1, 2))),
        (gym.Discrete(4, start=2), Box((4,), "float32", 0.0, 1.0, one_hot_start=2)),
    ],
    ids=str,
)
def test_observations_are_bytes_or_float32(space, stored):
    assert observations(space, "x") == stored


@pytest.mark.parametrize(
    ("space", "described"),
    [
        (gym.Discrete(4, start=2), Discrete(4, start=2)),
        (gym.MultiDiscrete([2, 3]), MultiDiscrete((2, 3))),
        (gym.Box(-2, 2, (1,), np.float32), Box((1,), "float32", -2.0, 2.0)),
    ],
    ids=str,
)
def test_actions_are_described(space, described):
    assert actions(space, "x") == described
    assert hash(actions(space, "x")) == hash(described)


@pytest.mark.parametrize(
    "space",
    [gym.Dict({"a": gym.Discrete(2)}), gym.Tuple([gym.Discrete(2)]), gym.Text(3)],
    ids=lambda space: type(space).__name__,
)
def test_other_observations_are_refused_with_what_is_supported(space):
    with pytest.raises(EnvError, match=r"observations are .*Supported are Box .* Discrete"):
        observations(space, "envs: Some-v0")


@pytest.mark.parametrize(
    "space",
    [gym.Dict({"a": gym.Discrete(2)}), gym.MultiBinary(2), gym.MultiDiscrete([2], start=[1])],
    ids=lambda space: type(space).__name__,
)
def test_other_actions_are_refused_with_what_is_supported(space):
    with pytest.raises(EnvError, match=r"actions are .*Supported are Discrete, MultiDiscrete"):
        actions(space, "envs: Some-v0")


def test_a_picture_is_known_by_its_shape_and_bytes():
    assert Box((8, 8, 3), "uint8").is_image
    assert not Box((8, 8, 3), "float32").is_image
    assert not Box((128,), "uint8").is_image
