"""docs/environments.md, as a newcomer follows it: its files and its commands as they stand."""

import re
import shlex
import sys
from pathlib import Path

import numpy as np
import pytest

from loopless import cli
from loopless.runs import columns
from loopless.runs.folder import RunFolder
from loopless.train.dqn.config import DQN

PAGE = (Path(__file__).parents[2] / "docs" / "environments.md").read_text()
FILES = dict(re.findall(r'^```python title="(\S+)"\n(.*?)^```', PAGE, re.DOTALL | re.MULTILINE))
LINES = "\n".join(re.findall(r"^```sh\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)).splitlines()


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """An empty folder with the page's two files, in which the command is called."""
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [part for part in sys.path if part])
    yield tmp_path
    for name in FILES:
        sys.modules.pop(Path(name).stem, None)


def run(start):
    (line,) = [line for line in LINES if line.startswith(start)]
    return cli.main(shlex.split(line)[1:])


@pytest.mark.slow
def test_the_page_leads_to_a_trained_agent(folder, capsys):
    assert run("loopless train dqn --env my_envs:Corridor --run corridor") == 0
    capsys.readouterr()
    assert run("loopless play runs/corridor") == 0
    score = float(re.search(r"best: (-?[\d.]+) ±", capsys.readouterr().out)[1])
    assert -8 <= score <= -2  # from 1 to 8 steps to the goal; going left costs 50


@pytest.mark.slow
def test_arguments_wrappers_and_seeds_make_one_hosted_run_for_each_seed(folder):
    assert run("loopless train dqn --env my_envs:Corridor --env-kwargs.length 4") == 0
    for seed in (0, 1):
        config = RunFolder.open(folder / "runs" / f"short-seed{seed}").config(DQN)
        assert (config.seed, config.seeds, dict(config.env_kwargs)) == (seed, 1, {"length": 4})
        assert config.wrapper == ("gymnasium.wrappers:NormalizeObservation",)


@pytest.mark.slow
def test_the_compiled_environment_trains_two_seeds_in_one_program_and_is_played(folder, capsys):
    assert run("loopless train dqn --env my_jax_envs:Corridor") == 0
    rows = columns.columns(columns.read(folder / "runs" / "compiled" / "metrics.jsonl"), "eval")
    assert rows["eval_return"].shape[1] == 2
    capsys.readouterr()
    assert run("loopless play runs/compiled") == 0
    score = float(re.search(r"best: (-?[\d.]+) ±", capsys.readouterr().out)[1])
    assert np.isfinite(score)
    assert score >= -5
