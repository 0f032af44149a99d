"""What a DQN run can be told: every mistake in words, all of them at once, before JAX is loaded."""

import pytest

from loopless.runs.config import resolve as configs
from loopless.runs.failures import BadConfig
from loopless.train.dqn.config import DQN, LEAST

WRONG = [
    ({"steps": 0}, "steps is 0"),
    ({"learning_rate": -1e-3}, "learning_rate is -0.001"),
    ({"learning_rate": 0.0}, "learning_rate is 0.0"),
    ({"learning_rate": float("nan")}, "learning_rate is nan"),
    ({"learning_rate": float("inf")}, "learning_rate is infinite"),
    ({"learning_rate_end": -1.0}, "learning_rate_end is -1.0"),
    ({"max_gradient_norm": 0.0}, "max_gradient_norm is 0.0"),
    ({"huber_delta": 0.0}, "huber_delta is 0.0"),
    ({"gamma": 1.01}, "gamma is 1.01"),
    ({"gamma": float("nan")}, "gamma is nan"),
    ({"tau": -0.1}, "tau is -0.1"),
    ({"beta": 2.0}, "beta is 2.0"),
    ({"alpha": -1.0}, "alpha is -1.0"),
    ({"explore_start": 1.5}, "probabilities"),
    ({"exploration": "boltzmann", "explore_end": 0.0}, "temperatures above 0"),
    ({"exploration": "boltzmann", "explore_start": 0.0}, "temperatures above 0"),
    ({"envs": 3, "train_every": 10}, "train_every is 10, no multiple of envs=3"),
    ({"envs": 3, "train_every": 9}, "buffer_size is 10000, no multiple of envs=3"),
    ({"batch_size": 20_000}, "more than buffer_size=10000"),
    ({"batch_size": 128, "accumulate": 100}, "more than buffer_size=10000"),
    ({"mega_batch": True, "updates": 100}, "more than buffer_size=10000"),
    ({"learning_starts": 0}, "fewer than the 128 transitions"),
    ({"train_every": 20_000}, "train_every is larger than buffer_size"),
    ({"newest": 200}, "newest is 200"),
    ({"newest": 1, "prioritized": "exact"}, "do not go together"),
    ({"double": True, "target": "off"}, "double needs a target network"),
    ({"double": True, "sarsa": True}, "double needs a target network"),
    ({"sarsa": True, "n_step": 2}, "sarsa goes one step at a time"),
    ({"mode": "hosted", "seeds": 2}, "seeds above 1 are for compiled mode"),
    ({"mode": "compiled", "overlap": True}, "overlap is for hosted mode"),
    ({"mode": "compiled", "vectorization": "sync"}, "vectorization is for hosted mode"),
    ({"overlap": True, "sarsa": True}, "overlap goes with neither"),
    ({"update": "loop", "seeds": 2}, "update=loop goes one seed at a time"),
    ({"hidden": (64, 0)}, "widths are from 1 up"),
    (
        {"vectorization": "native", "n_step": 3, "envs": 2, "buffer_size": 10_000},
        "n_step above 1 with vectorization=native",
    ),
]


def test_the_defaults_make_sense():
    assert DQN().problems() == []


@pytest.mark.parametrize(("options", "message"), WRONG, ids=[str(options) for options, _ in WRONG])
def test_what_makes_no_sense_is_said(options, message):
    assert any(message in problem for problem in DQN(**options).problems())


@pytest.mark.parametrize("name", LEAST)
def test_numbers_have_a_least_value(name):
    problems = DQN(**{name: LEAST[name] - 1}).problems()
    assert any(problem.startswith(f"{name} is ") for problem in problems)


def test_all_mistakes_come_at_once():
    flags = ["--gamma", "2", "--learning-rate", "-1", "--bach-size", "3", "--steps", "many"]
    with pytest.raises(BadConfig) as caught:
        configs.resolve(DQN, flags, "loopless train dqn")
    said = str(caught.value)
    for part in ("gamma is 2.0", "learning_rate is -1.0", "--batch-size", "--steps is 'many'"):
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
    assert (config.rows, config.draws) == (rows, draws)


def test_a_config_survives_its_file():
    config = DQN(hidden=(3, 4), max_gradient_norm=0.5, run="mine", prioritized="block", seeds=3)
    assert configs.from_toml(DQN, configs.to_toml(config)) == config
