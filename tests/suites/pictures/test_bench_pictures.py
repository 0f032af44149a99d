"""The suite `pictures`: its worlds, its settings, and what it promises."""

from importlib.resources import files

import gymnasium
import numpy as np
import pytest

from loopless.bench.result import Measurement
from loopless.envs import HostedEnvs
from loopless.runs.config import from_toml
from loopless.train.dqn.config import DQN
from loopless.train.engine.options import uses_convolutions
from loopless.train.ppo.config import PPO
from suites.pictures import suite, worlds


@pytest.mark.parametrize(("shape", "stack"), [(worlds.STACKED_SHAPE, 4), (worlds.COLORED_SHAPE, 1)])
def test_worlds_show_pictures_and_say_whether_these_are_stacks(shape, stack):
    with HostedEnvs(worlds.IDS[shape]) as envs:
        assert envs.obs_space.shape == shape
        assert envs.obs_space.stack == stack
        assert uses_convolutions("auto", shape, envs.obs_space.is_image)


@pytest.mark.parametrize(("trainer", "preset"), [(DQN, "dqn/atari_pong"), (PPO, "ppo/carracing")])
def test_presets_for_pictures_are_sound(trainer, preset):
    file = files("loopless.train") / "presets" / f"{preset}.toml"
    from_toml(trainer, file.read_text(encoding="utf-8"), preset)  # raises what is wrong


def test_pictures_follow_on():
    env = gymnasium.make("Stacked-v0")
    first, _ = env.reset(seed=0)
    second, *_ = env.step(0)
    np.testing.assert_array_equal(first[..., 1:], second[..., :-1])


@pytest.mark.parametrize("case", [*suite.CASES, suite.PIXELS])
def test_settings_are_sound_and_make_as_many_updates_as_the_check_expects(case):
    config = case.config()
    assert config.problems() == []
    if case.trainer == "ppo":
        rollouts = case.steps // config.rollout_size
        assert case.gradient_steps == rollouts * config.epochs * config.minibatches
    else:
        assert case.gradient_steps == case.steps // config.train_every * config.updates


def rows(**seconds):
    names = {"ours": suite.ONE, "theirs": suite.BASELINES}
    return [
        Measurement("steps", "case", names[who], "library", "ours", unit="s", value=value)
        for who, value in seconds.items()
    ]


@pytest.mark.parametrize(
    ("ours", "verdicts"), [(1.0, [True, True]), (1.6, [True, False]), (2.1, [False] * 2)]
)
def test_dqn_must_be_as_fast_and_then_faster(ours, verdicts):
    case = suite.Training("dqn", worlds.STACKED_SHAPE, 128)
    judged = suite.judge(case, rows(ours=ours, theirs=2.0))
    assert [target.met for target in judged[0].targets] == verdicts


def test_transitions_for_the_memory_are_stacks():
    block = suite.transitions(0, 5)
    np.testing.assert_array_equal(block["obs"][1:], block["next_obs"][:-1])
