"""What hosted mode refuses, and in which words."""

import gymnasium
import numpy as np
import pytest
from support import scripted_envs  # noqa: F401

from loopless.envs import EnvError, HostedEnvs, NonFiniteError


def zeros(envs):
    return lambda obs: np.zeros(envs, int)


@pytest.mark.parametrize("number", [float("nan"), float("inf")])
@pytest.mark.parametrize("how", ["reward", "observation"])
@pytest.mark.parametrize("at", [0, 3])
def test_a_number_that_is_none_is_named_with_environment_and_step(how, number, at):
    kwargs = {"how": how, "at": at, "number": number}
    with HostedEnvs("tests/Bad-v0", 2, env_kwargs=kwargs) as world:
        for _ in range(at):
            world.step([0, 0])
        words = rf"tests/Bad-v0: environment 0 gave the {how} .*{number}.* at its step {at},"
        with pytest.raises(NonFiniteError, match=words) as caught:
            world.collect(zeros(2), 5)
        assert (caught.value.env, caught.value.step) == (0, at)


def test_an_infinite_reward_made_by_float32_is_refused():
    with (
        HostedEnvs("tests/Bad-v0", 1, env_kwargs={"number": 1e39}) as world,
        pytest.raises(NonFiniteError, match="reward inf"),
    ):
        world.collect(zeros(1), 5)


def test_a_first_observation_that_is_no_number_is_refused():
    with pytest.raises(NonFiniteError, match="environment 0 gave the first observation"):
        HostedEnvs("tests/Bad-v0", 2, env_kwargs={"how": "start"})


def test_a_final_observation_that_is_no_number_is_refused():
    kwargs = {"how": "observation", "at": 1, "max_episode_steps": 2}
    with (
        HostedEnvs("tests/Bad-v0", 1, env_kwargs=kwargs) as world,
        pytest.raises(NonFiniteError, match=r"gave the observation .*nan.* at its step 1,"),
    ):
        world.collect(zeros(1), 2)


def test_a_later_first_observation_that_is_no_number_is_refused():
    kwargs = {"how": "later start", "max_episode_steps": 2}
    with (
        HostedEnvs("tests/Bad-v0", 1, env_kwargs=kwargs) as world,
        pytest.raises(NonFiniteError, match=r"gave the observation .*nan.* at its step 1,"),
    ):
        world.collect(zeros(1), 3)


def test_an_observation_of_another_shape_than_its_space_is_refused():
    with pytest.raises(
        EnvError, match=r"observation of shape \(3,\); its observation_space says \(2,\)"
    ):
        HostedEnvs("tests/Bad-v0", 1, env_kwargs={"how": "shape"})


def test_all_wrong_arguments_are_named_at_once():
    words = (
        r"envs: CartPole-v1: envs must be .* received 0; seed must be .* received -1; "
        r"vectorization='fast' is unknown; choose auto, sync, async, native or envpool; "
        r"preprocess='x' is unknown.*; workers must be .* received 0"
    )
    with pytest.raises(EnvError, match=words):
        HostedEnvs("CartPole-v1", 0, seed=-1, vectorization="fast", preprocess="x", workers=0)


def test_unsupported_spaces_are_refused_with_what_is_supported():
    spaces = gymnasium.spaces
    kwargs = {
        "observation_space": spaces.Dict({"a": spaces.Sequence(spaces.Discrete(2))}),
        "action_space": spaces.Discrete(2),
    }
    with pytest.raises(EnvError, match=r"tests/Spaces-v0: observations are Dict.*Supported are"):
        HostedEnvs("tests/Spaces-v0", 1, env_kwargs=kwargs)


@pytest.mark.parametrize(
    "actions", [np.zeros(2), np.zeros(1, int), np.int64(0), np.zeros((2, 2), int)[:, :1]]
)
def test_actions_of_another_kind_or_shape_are_refused(actions):
    with (
        HostedEnvs("CartPole-v1", 2) as world,
        pytest.raises((EnvError, ValueError), match=r"the policy gave|could not broadcast"),
    ):
        world.collect(lambda obs: actions, 1)


def test_the_number_of_actions_is_asked_of_discrete_ones_only():
    with (
        HostedEnvs("Pendulum-v1", 1) as world,
        pytest.raises(EnvError, match=r"Pendulum-v1: actions are Box.*not Discrete"),
    ):
        _ = world.actions


@pytest.mark.parametrize("steps", [0, -1, 2.5])
def test_steps_are_a_count(steps):
    with (
        HostedEnvs("CartPole-v1", 1) as world,
        pytest.raises(EnvError, match="steps must be an integer of at least 1"),
    ):
        world.collect(zeros(1), steps)


def test_a_block_of_another_size_is_refused():
    with (
        HostedEnvs("CartPole-v1", 1) as world,
        pytest.raises(EnvError, match="out holds 3 steps of 1 environments, not 4 of 1"),
    ):
        world.collect(zeros(1), 4, out=world.block(3))


def test_closing_twice_is_fine_and_stepping_after_is_not():
    world = HostedEnvs("CartPole-v1", 1)
    world.close()
    world.close()
    with pytest.raises(EnvError, match="CartPole-v1 is closed"):
        world.step([0])
    with pytest.raises(EnvError, match="CartPole-v1 is closed"):
        world.restart(0)


def test_an_id_without_native_vectorization_says_what_else_there_is():
    with pytest.raises(EnvError, match=r"no native vector environment; use .*'sync' or 'async'"):
        HostedEnvs("Acrobot-v1", 2, vectorization="native")
