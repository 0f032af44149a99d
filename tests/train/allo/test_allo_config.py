"""What an ALLO run can be told: every mistake in words, all of them at once."""

from dataclasses import replace
from pathlib import Path

import jax
import numpy as np
import pytest
from allo_cases import ROOM, tiny
from run_results import command

from loopless.runs import config as configs
from loopless.runs.failures import BadConfig
from loopless.train.allo.algorithm import network_of
from loopless.train.allo.config import ALLO, LEAST
from loopless.train.allo.data import observation_type, read_source
from loopless.train.engine import options as shared

BOUNDS = LEAST | shared.LEAST
WRONG = [
    ({"learning_rate": 0.0}, "learning_rate must be above 0; received 0.0"),
    ({"learning_rate": float("inf")}, "learning_rate must be finite"),
    ({"barrier": (1.0, float("inf"))}, "barrier must be finite"),
    ({"barrier": ()}, "one or more numbers"),
    ({"barrier": (1.0, -1.0)}, "of at least 0"),
    ({"discount": 1.0}, "discount must be in [0, 1); received 1.0"),
    ({"discount": -0.1}, "discount must be in [0, 1); received -0.1"),
    ({"integral_decay": 1.1}, "integral_decay must be between 0 and 1; received 1.1"),
    ({"gate_threshold": 0.0}, "gate_threshold must be above 0"),
    ({"hidden": (64, 0)}, "widths of at least 1"),
    ({"env_steps": 120, "episode_length": 50}, "a multiple of episode_length=50"),
    ({"permute_at": 20_000}, "permute_at must be below the 20000 steps"),
    ({"objective": "ggdo", "scale": "full"}, "scale is for objective=allo"),
    ({"data": Path("x.npz"), "inputs": "pixels"}, "inputs is for grids"),
    ({"data": Path("x.npz"), "seeds": 2, "grid": "GridRoom-1"}, "grid is for grids"),
    ({"weights": "uniform", "law": "episode"}, "weights need law=transition"),
]


def test_the_defaults_make_sense():
    assert ALLO().problems() == []


@pytest.mark.parametrize(("options", "message"), WRONG, ids=[str(options) for options, _ in WRONG])
def test_what_makes_no_sense_is_said(options, message):
    assert any(message in problem for problem in ALLO(**options).problems())


@pytest.mark.parametrize("name", BOUNDS)
def test_every_bound_is_said(name):
    low = BOUNDS[name]
    problems = replace(ALLO(), **{name: low - 1}).problems()
    assert problems == [f"{name} must be at least {low}; received {low - 1}."]


@pytest.mark.parametrize(
    ("text", "expected"),
    [("", 1e-4), ("learning_rate = 0.02", 2e-3), ("learning_rate_end = 0.5", 0.5)],
)
def test_the_last_learning_rate_is_a_tenth_of_the_first_unless_it_is_given(text, expected):
    assert configs.from_toml(ALLO, text).learning_rate_end == pytest.approx(expected)


def test_a_config_comes_back_from_its_file():
    config = ALLO(data=Path("a.npz"), barrier=(0.5, 2.0), hidden=(), permute_at=3, max_gap=5)
    assert configs.from_toml(ALLO, configs.to_toml(config)) == config


def test_agents_are_seeds_times_barriers():
    assert ALLO(seeds=3, barrier=(1.0, 2.0)).agents == 6


@pytest.mark.parametrize(
    ("options", "messages"),
    [
        (
            {"components": 13, "batch_size": 801},
            ["at most the 12 states there are; received 13", "at most the 800 starts"],
        ),
        ({"weights": "nowhere.npy"}, ['received "nowhere.npy"', "There is no such file"]),
        ({"data": Path("nowhere.npz"), "grid": "GridRoom-4"}, ["cannot read nowhere.npz"]),
    ],
)
def test_what_does_not_fit_the_data_is_refused_at_once(options, messages):
    with pytest.raises(BadConfig) as told:
        read_source(tiny(**options))
    assert all(message in str(told.value) for message in messages)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--grid", "GridRoom-5"], "Did you mean"),
        (["--grid", "nowhere.txt"], "nowhere.txt"),
        (["--grid", "apart.txt"], "cannot be reached"),
        (["--grid", "empty.txt"], "empty.txt"),
        (
            ["--grid", "GridRoom-4", "--components", "200"],
            "at most the 104 states there are; received 200",
        ),
        (["--discount", "1"], "discount must be in [0, 1); received 1.0"),
        (["--data", "bad.npz"], "there are no terminals"),
        (["--batch", "3"], "unknown flag --batch"),
        (["--net", "conv"], "net=conv needs images"),
    ],
    ids=str,
)
@pytest.mark.usefixtures("commands")
def test_bad_input_is_one_message_with_code_2_and_leaves_nothing(
    words, message, tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "apart.txt").write_text("..X..\n")
    (tmp_path / "empty.txt").write_text("XXX\n")
    np.savez(tmp_path / "bad.npz", obs=np.zeros((5, 2)))
    before = sorted(tmp_path.iterdir())
    assert command("train", "allo", "--envs", "20", *words) == 2
    said = capsys.readouterr().err
    assert message in said
    assert "Traceback" not in said
    assert sorted(tmp_path.iterdir()) == before


def test_a_drawing_is_a_grid():
    assert len(read_source(tiny(grid=ROOM)).table) == 12


def test_an_export_rebuilds_convolutions_for_pictures():
    config = tiny(inputs="pixels", grid="GridRoom-4")
    network = network_of(config, *observation_type(config))
    assert jax.eval_shape(lambda: network(jax.random.key(0))).images is not None
