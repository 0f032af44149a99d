"""From an id to an environment, or to an error that helps."""

import importlib.util

import gymnasium
import numpy as np
import pytest
from support import scripted_envs  # noqa: F401

from loopless.envs import EnvError
from loopless.envs.hosted import ids as gym_ids


@pytest.mark.parametrize(
    ("env_id", "near"),
    [
        ("CartPol-v1", "CartPole-v1"),
        ("cartpole-v1", "CartPole-v1"),
        ("CartPole", "CartPole-v1"),
        ("LunarLander-v2", "LunarLander-v3"),
        ("loopless/Pixel-v0", "loopless/Pixels-v0"),
        ("Pixels-v0", "loopless/Pixels-v0"),
    ],
)
def test_an_unknown_id_gets_the_nearest_names(env_id, near):
    with pytest.raises(EnvError, match=rf"no environment '{env_id}'.*Did you mean .*{near}"):
        gym_ids.find(env_id)


def test_an_id_near_nothing_is_told_how_others_are_written():
    with pytest.raises(EnvError, match=r"no environment 'Xyzzy-v9' is registered\. Ids of other"):
        gym_ids.find("Xyzzy-v9")


def test_a_module_that_cannot_be_imported_is_named():
    with pytest.raises(EnvError, match="importing no_such_module failed"):
        gym_ids.find("no_such_module:Thing-v0")


def test_a_module_before_the_id_is_imported_first():
    assert gym_ids.find("support.scripted_envs:tests/Bad-v0").id == "tests/Bad-v0"


def test_a_game_without_its_emulator_says_what_to_install(monkeypatch):
    monkeypatch.setattr(gym_ids, "find_spec", lambda name: None)
    with pytest.raises(EnvError, match=r'pip install "loopless\[atari\]"'):
        gym_ids.find("ALE/NoSuchGame-v5")


@pytest.mark.parametrize(
    ("env_id", "entry_point", "extra"),
    [
        ("Some-v0", "gymnasium.envs.box2d:X", r"pip install \"gymnasium\[box2d\]\""),
        ("Some-v0", "gymnasium.envs.mujoco.ant_v5:X", r"pip install \"gymnasium\[mujoco\]\""),
        ("ALE/Some-v5", "ale_py.env:AtariEnv", r"pip install \"loopless\[atari\]\""),
        ("Some-v0", "elsewhere:X", "Install the package that it names"),
    ],
)
@pytest.mark.parametrize("error", [ImportError, gymnasium.error.DependencyNotInstalled])
def test_a_missing_package_is_named_with_its_extra(monkeypatch, env_id, entry_point, extra, error):
    def make(*_, **__):
        raise error("no module named frobnicate")

    monkeypatch.setattr(gymnasium, "make", make)
    monkeypatch.setattr(gym_ids, "_silence_emulator", lambda: None)  # it imports the emulator
    recipe = gym_ids.Recipe(gymnasium.envs.registration.EnvSpec(env_id, entry_point), {})
    with pytest.raises(EnvError, match=rf"{env_id} needs .*: no module named frobnicate\. {extra}"):
        recipe.make()


@pytest.mark.skipif(importlib.util.find_spec("mujoco") is not None, reason="MuJoCo is installed")
def test_a_real_missing_package_is_named():
    with pytest.raises(EnvError, match=r"Ant-v5 needs .*MuJoCo.*pip install \"gymnasium\[mujoco"):
        gym_ids.recipe("Ant-v5").make()


def test_an_unknown_argument_is_named():
    with pytest.raises(EnvError, match=r"unexpected keyword argument 'gravty'.*env_kwargs"):
        gym_ids.recipe("CartPole-v1", {"gravty": 1}).make()


@pytest.mark.parametrize("steps", [0, -1, 2.5])
def test_a_time_limit_is_a_count(steps):
    with pytest.raises(EnvError, match="max_episode_steps must be an integer of at least 1"):
        gym_ids.recipe("CartPole-v1", {"max_episode_steps": steps})


def test_an_environment_is_made_without_the_wrappers_that_only_check():
    recipe = gym_ids.recipe("CartPole-v1")
    assert not isinstance(recipe.make(), gymnasium.Wrapper)
    assert recipe.limit == recipe.max_steps == 500
    assert gym_ids.recipe("CartPole-v1", {"max_episode_steps": 9}).limit == 9


def test_wrappers_of_the_id_keep_their_time_limit_inside():
    spec = gymnasium.make("CartPole-v1").spec
    wrapped = gymnasium.wrappers.TimeAwareObservation(gymnasium.make(spec)).spec
    recipe = gym_ids.Recipe(wrapped, {})
    assert recipe.limit is None
    assert recipe.max_steps == 500
    env = recipe.make()
    assert env.observation_space.shape == (5,)
    env.reset(seed=0)
    assert any(isinstance(e, gymnasium.wrappers.TimeLimit) for e in layers(env))


def layers(env):
    while isinstance(env, gymnasium.Wrapper):
        yield env
        env = env.env


def test_a_recipe_survives_the_way_to_another_process():
    recipe = gym_ids.recipe("CartPole-v1", {"max_episode_steps": 9})
    again = gym_ids.Recipe.from_json(recipe.to_json())
    assert again == recipe


def test_what_cannot_be_written_down_is_refused_for_other_processes():
    recipe = gym_ids.recipe("tests/Spaces-v0", {"action_space": gymnasium.spaces.Discrete(2)})
    with pytest.raises(EnvError, match=r"cannot be made in another process.*'sync'"):
        recipe.to_json()


def test_preprocessing_is_for_games():
    with pytest.raises(EnvError, match="CartPole-v1 is not an Atari game"):
        gym_ids.recipe("CartPole-v1", preprocess="atari")


@pytest.mark.skipif(importlib.util.find_spec("Box2D") is None, reason="Box2D is not installed")
def test_box2d_loads_where_warnings_are_errors():
    env = gym_ids.recipe("LunarLander-v3").make()
    env.reset(seed=0)
    assert env.step(0)[0].shape == (8,)
    env.close()


def test_games_are_preprocessed_to_four_small_grey_frames():
    pytest.importorskip("ale_py")
    pytest.importorskip("cv2")
    env = gym_ids.recipe("ALE/Pong-v5").make()
    obs, _ = env.reset(seed=0)
    assert obs.shape == (84, 84, 4)
    assert obs.dtype == np.uint8
    after = env.step(2)[0]
    np.testing.assert_array_equal(after[..., :3], obs[..., 1:])
    raw = gym_ids.recipe("ALE/Pong-v5", preprocess="none").make()
    assert raw.reset(seed=0)[0].shape == (210, 160, 3)


def test_the_emulator_prints_no_banner(capfd):
    pytest.importorskip("ale_py")
    gym_ids.recipe("ALE/Pong-v5").make().close()
    assert "".join(capfd.readouterr()) == ""
