"""`loopless train ppo`, `play`, `resume` and `export`: the same commands as for any trainer."""

import json

import numpy as np
import pytest
from PIL import Image
from run_results import command, flags
from safetensors.numpy import load_file
from test_ppo_runs import TINY

pytestmark = pytest.mark.usefixtures("remembered_programs", "commands")


@pytest.fixture(scope="module")
def two(tmp_path_factory, no_renderer):
    """A run of two agents."""
    root = tmp_path_factory.mktemp("runs")
    assert command("train", "ppo", *flags(TINY, runs=root, run="two", seeds=2)) == 0
    return root / "two"


@pytest.mark.parametrize("agent", [0, 1])
def test_each_agent_plays_and_is_recorded(two, agent, tmp_path, capsys):
    film = tmp_path / "a.gif"
    words = ("play", two, "--episodes", 3, "--agent", agent, "--record", film)
    assert command(*words) == 0
    assert "over 3 episodes" in capsys.readouterr().out
    with Image.open(film) as image:
        assert image.size == (320, 64)


def test_each_agent_is_exported_with_its_own_statistics(two, tmp_path, capsys):
    files = [tmp_path / f"{agent}.safetensors" for agent in range(2)]
    for agent, file in enumerate(files):
        assert command("export", two, "--agent", agent, "--output", file) == 0
    first, second = (load_file(file) for file in files)
    assert not np.array_equal(first["obs_mean"], second["obs_mean"])
    card = json.loads(files[0].with_suffix(".json").read_text())
    assert (card["trainer"], card["layers"], card["actions"]) == ("ppo", 2, 2)
    assert "obs_mean" in card["use"]


def test_a_run_trains_on_when_it_is_resumed_for_longer(two, capsys):
    assert command("resume", two, "--steps", 352) == 0
    last = json.loads((two / "metrics.jsonl").read_text().splitlines()[-2])
    assert last["step"] == 352


def test_there_is_no_third_agent(two, capsys):
    assert command("play", two, "--agent", 2) == 2
    assert "agent is 2; this run has agents 0 to 1" in capsys.readouterr().err
