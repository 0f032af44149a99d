"""What a DQN run can be told: every mistake in words, all of them at once, before JAX is loaded."""

import pytest

from loopless.runs import config as configs
from loopless.runs.failures import BadConfig
from loopless.train.dqn.config import DQN, LEAST
from loopless.train.engine import options

BOUNDS = LEAST | options.LEAST | options.AGENT_LEAST
WRONG = [
    ({"steps": 0}, "steps must be at least 1; received 0"),
    ({"learning_rate": -1e-3}, "learning_rate must be above 0; received -0.001"),
    ({"learning_rate": 0.0}, "learning_rate must be above 0; received 0.0"),
    ({"learning_rate": float("nan")}, "learning_rate must be above 0; received nan"),
    ({"learning_rate": float("inf")}, "learning_rate must be finite; received"),
    ({"learning_rate_end": -1.0}, "learning_rate_end must be at least 0; received -1.0"),
    ({"max_gradient_norm": 0.0}, "max_gradient_norm must be above 0; received 0.0"),
    ({"huber_delta": 0.0}, "huber_delta must be above 0; received 0.0"),
    ({"gamma": 1.01}, "gamma must be between 0 and 1; received 1.01"),
    ({"gamma": float("nan")}, "gamma must be between 0 and 1; received nan"),
    ({"tau": -0.1}, "tau must be between 0 and 1; received -0.1"),
    ({"beta": 2.0}, "beta must be between 0 and 1; received 2.0"),
    ({"alpha": -1.0}, "alpha must be at least 0; received -1.0"),
    ({"explore_start": 1.5}, "probabilities with exploration=epsilon; neither may be above 1"),
    (
        {"exploration": "boltzmann", "explore_end": 0.0},
        "are temperatures with",
    ),
    (
        {"exploration": "boltzmann", "explore_start": 0.0},
        "are temperatures with",
    ),
    ({"envs": 3, "train_every": 10}, "train_every must be a multiple of envs=3; received 10"),
    ({"envs": 3, "train_every": 9}, "buffer_size must be a multiple of envs=3; received 10000"),
    ({"batch_size": 20_000}, "more than buffer_size=10000"),
    ({"batch_size": 128, "accumulate": 100}, "more than buffer_size=10000"),
    ({"mega_batch": True, "updates": 100}, "more than buffer_size=10000"),
    ({"learning_starts": 0}, "learning_starts must be at least 128"),
    (
        {"train_every": 20_000},
        "train_every must not be larger than buffer_size=10000",
    ),
    ({"newest": 200}, "newest must not be larger than batch_size=128; received 200"),
    ({"newest": 1, "prioritized": "exact"}, "newest and prioritized cannot be combined"),
    ({"double": True, "target": "off"}, "double needs a target network"),
    ({"double": True, "sarsa": True}, "double needs a target network"),
    ({"sarsa": True, "n_step": 2}, "sarsa looks one step ahead"),
    ({"mode": "compiled", "wrapper": ("a:B",)}, "wrapper is for hosted mode"),
    ({"vectorization": "native", "wrapper": ("a:B",)}, "wrapper needs vectorization sync or async"),
    ({"mode": "compiled", "overlap": True}, "overlap is for hosted mode"),
    ({"mode": "compiled", "vectorization": "sync"}, "vectorization is for hosted mode"),
    ({"overlap": True, "sarsa": True}, "overlap cannot be combined with sarsa"),
    ({"update": "loop", "seeds": 2}, "update=loop trains one seed at a time"),
    ({"hidden": (64, 0)}, "hidden must have widths of at least 1; received (64, 0)"),
    (
        {"vectorization": "native", "n_step": 3, "envs": 2, "buffer_size": 10_000},
        "n_step above 1 with vectorization=native",
    ),
]


def test_the_defaults_make_sense():
    assert DQN().problems() == []


@pytest.mark.parametrize(("settings", "message"), WRONG, ids=[str(options) for options, _ in WRONG])
def test_what_makes_no_sense_is_said(settings, message):
    assert any(message in problem for problem in DQN(**settings).problems())


@pytest.mark.parametrize("name", BOUNDS)
def test_numbers_have_a_least_value(name):
    low = BOUNDS[name]
    problems = DQN(**{name: low - 1}).problems()
    assert f"{name} must be at least {low}; received {low - 1}." in problems


def test_all_mistakes_come_at_once():
    flags = ["--gamma", "2", "--learning-rate", "-1", "--bach-size", "3", "--steps", "many"]
    with pytest.raises(BadConfig) as caught:
        configs.resolve(DQN, flags, "loopless train dqn")
    said = str(caught.value)
    for part in (
        "gamma must be between 0 and 1",
        "above 0; received -1.0",
        "--batch-size",
        "'many'",
    ):
        assert part in said


@pytest.mark.parametrize(
    ("options", "rows", "draws"),
    [
        ({}, 128, 1),
        ({"updates": 4}, 128, 4),
        ({"updates": 4, "accumulate": 2}, 256, 4),
        ({"updates": 4, "mega_batch": True}, 512, 1),
        ({"updates": 4, "accumulate": 2, "mega_batch": True}, 1024, 1),
    ],
)
def test_rows_of_a_gradient_step_and_draws_of_an_event(options, rows, draws):
    config = DQN(**options)
    assert (config.update_size, config.draws) == (rows, draws)


def test_a_config_survives_its_file():
    config = DQN(hidden=(3, 4), max_gradient_norm=0.5, run="mine", prioritized="block", seeds=3)
    assert configs.from_toml(DQN, configs.to_toml(config)) == config
