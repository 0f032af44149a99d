"""What a PPO run can be told: every mistake in words, all of them at once, before JAX is loaded."""

from dataclasses import replace

import pytest
from ppo_cases import NUMBERS, OBS, small

from loopless.envs.spaces import Box, Discrete
from loopless.runs import config as configs
from loopless.runs.failures import BadConfig
from loopless.train.engine import options
from loopless.train.ppo.algorithm import build
from loopless.train.ppo.config import LEAST, PPO

BOUNDS = LEAST | options.LEAST | options.AGENT_LEAST
WRONG = [
    ({"learning_rate": 0.0}, "learning_rate must be above 0; received 0.0"),
    ({"learning_rate": float("inf")}, "learning_rate must be finite; received"),
    ({"log_std_start": float("-inf")}, "log_std_start must be finite; received"),
    ({"target_kl": 0.0}, "target_kl must be above 0; received 0.0"),
    ({"adam_epsilon": 0.0}, "adam_epsilon must be above 0; received 0.0"),
    ({"gamma": 1.01}, "gamma must be between 0 and 1; received 1.01"),
    ({"gae_lambda": float("nan")}, "gae_lambda must be between 0 and 1; received nan"),
    ({"hidden": (64, 0)}, "hidden must have widths of at least 1; received (64, 0)"),
    ({"minibatches": 3}, "minibatches is 3, which does not divide the 512 steps"),
    ({"minibatches": 8, "core": "gru"}, "minibatches is 8, which does not divide envs=4"),
    ({"algorithm": "a2c", "target_kl": 0.1}, "target_kl is for ppo"),
    ({"mode": "compiled", "overlap": True}, "overlap is for hosted mode"),
    ({"mode": "compiled", "vectorization": "sync"}, "vectorization is for hosted mode"),
]


def test_the_defaults_make_sense():
    assert PPO().problems() == []


@pytest.mark.parametrize(("settings", "message"), WRONG, ids=[str(x) for x, _ in WRONG])
def test_what_makes_no_sense_is_said(settings, message):
    assert any(message in problem for problem in PPO(**settings).problems())


@pytest.mark.parametrize("name", BOUNDS)
def test_every_bound_is_said(name):
    low = BOUNDS[name]
    problems = replace(PPO(), **{name: low - 1}).problems()
    assert problems == [f"{name} must be at least {low}; received {low - 1}."]


def test_a_config_comes_back_from_its_file():
    config = PPO(clip_end=0.1, core="lstm", hidden=(3,), target_kl=0.02, normalize_obs=True)
    assert configs.from_toml(PPO, configs.to_toml(config)) == config


@pytest.mark.parametrize(
    ("settings", "spaces", "message"),
    [
        ({"normalize_obs": True}, (Box((8, 8, 1), "uint8"), Discrete(2)), "this env's are uint8"),
        ({"net": "conv"}, (OBS, Discrete(2)), "net=conv needs images"),
        ({"squash": True}, (OBS, Discrete(2)), "squash is for Box"),
        ({"squash": True}, (OBS, Box((2,))), "squash needs finite bounds"),
    ],
)
def test_what_does_not_fit_the_env_is_refused(settings, spaces, message):
    with pytest.raises(BadConfig, match=message):
        build(small(**settings), *spaces, None)


def test_numbers_may_be_squashed():
    assert build(small(squash=True), OBS, NUMBERS, None).head.squash
