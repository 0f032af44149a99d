"""What a PPO run can be told: every mistake in words, all of them at once, before JAX is loaded."""

from dataclasses import replace

import pytest
from ppo_cases import NUMBERS, OBS, small

from loopless.envs.spaces import Box, Discrete
from loopless.runs.config import resolve as configs
from loopless.runs.failures import BadConfig
from loopless.train.ppo.algorithm import build
from loopless.train.ppo.config import LEAST, PPO

WRONG = [
    ({"learning_rate": 0.0}, "learning_rate is 0.0"),
    ({"learning_rate": float("inf")}, "learning_rate is infinite"),
    ({"log_std_start": float("-inf")}, "log_std_start is infinite"),
    ({"target_kl": 0.0}, "target_kl is 0.0"),
    ({"adam_epsilon": 0.0}, "adam_epsilon is 0.0"),
    ({"gamma": 1.01}, "gamma is 1.01"),
    ({"gae_lambda": float("nan")}, "gae_lambda is nan"),
    ({"hidden": (64, 0)}, "widths are from 1 up"),
    ({"minibatches": 3}, "minibatches is 3, which does not divide the 512 rows"),
    ({"minibatches": 8, "core": "gru"}, "minibatches is 8, which does not divide envs=4"),
    ({"algorithm": "a2c", "target_kl": 0.1}, "target_kl is for ppo"),
    ({"mode": "hosted", "seeds": 2}, "seeds above 1 are for compiled mode"),
    ({"mode": "compiled", "overlap": True}, "overlap is for hosted mode"),
    ({"mode": "compiled", "vectorization": "sync"}, "vectorization is for hosted mode"),
]


def test_the_defaults_make_sense():
    assert PPO().problems() == []


@pytest.mark.parametrize(("options", "message"), WRONG, ids=[str(options) for options, _ in WRONG])
def test_what_makes_no_sense_is_said(options, message):
    assert any(message in problem for problem in PPO(**options).problems())


@pytest.mark.parametrize("name", LEAST)
def test_every_bound_is_said(name):
    problems = replace(PPO(), **{name: LEAST[name] - 1}).problems()
    assert problems == [f"{name} is {LEAST[name] - 1}; it is from {LEAST[name]} up."]


def test_a_config_comes_back_from_its_file():
    config = PPO(clip_end=0.1, core="lstm", hidden=(3,), target_kl=0.02, normalize_obs=True)
    assert configs.from_toml(PPO, configs.to_toml(config)) == config


@pytest.mark.parametrize(
    ("options", "spaces", "message"),
    [
        ({"normalize_obs": True}, (Box((8, 8, 1), "uint8"), Discrete(2)), "this env shows uint8"),
        ({"net": "conv"}, (OBS, Discrete(2)), "net=conv takes pictures"),
        ({"squash": True}, (OBS, Discrete(2)), "squash is for Box"),
        ({"squash": True}, (OBS, Box((2,))), "squash needs finite bounds"),
    ],
)
def test_what_does_not_fit_the_env_is_refused(options, spaces, message):
    with pytest.raises(BadConfig, match=message):
        build(small(**options), *spaces, None)


def test_numbers_may_be_squashed():
    assert build(small(squash=True), OBS, NUMBERS, None).head.squash
