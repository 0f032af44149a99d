"""Seconds to a solution: what is timed, and what is no solution."""

import json
from pathlib import Path

import numpy as np
import pytest

from loopless.train import ppo
from suites import processes
from suites.ppo_speed import suite

pytestmark = pytest.mark.slow


class Run:
    """A run that is solved from its third chunk on, and once before by luck."""

    total = 800

    def __init__(self, config):
        self.config, self.step, self.told = config, 0, []

    def arrays(self):
        return {"step": np.int64(self.step)}

    def restore(self, checkpoint):
        self.step = int(checkpoint.arrays["step"])
        self.told.append("restored")

    def advance(self, clock):
        self.step += 100
        self.told.append(self.step)

    def evaluate(self):
        return {"eval_return": 480.0 if self.step == 100 or self.step >= 300 else 470.0}


@pytest.fixture
def made(monkeypatch):
    runs = []
    monkeypatch.setattr(ppo, "make", lambda config: runs.append(Run(config)) or runs[-1])
    return runs


def test_a_run_is_compiled_and_then_begun_anew_until_it_is_solved(made):
    assert suite.time_compiled(3) > 0
    (run,) = made
    assert run.told == [100, "restored", *range(100, 800, 100)]
    assert (run.config.mode, run.config.seed, run.config.eval_episodes) == ("compiled", 3, 100)
    assert run.config.env == "CartPole-v1"


def test_a_run_that_is_not_solved_is_an_error(made, monkeypatch):
    monkeypatch.setattr(suite, "SOLVED", 490.0)
    with pytest.raises(RuntimeError, match="seed 1 was not solved in 800 steps"):
        suite.time_compiled(1)


def test_a_real_run_starts_anew(monkeypatch):
    monkeypatch.setattr(suite, "SOLVED", 1.0)
    small = {"steps": 128, "envs": 2, "horizon": 8, "hidden": (6,), "log_every": 16}
    assert suite.time_compiled(0, **small) > 0


@pytest.mark.parametrize(("last", "solved"), [(476.0, True), (474.0, False)])
def test_a_command_has_to_end_with_a_solution(monkeypatch, last, solved):
    def command(module, *words, **options):
        folder, name = Path(words[words.index("--runs") + 1]), words[words.index("--run") + 1]
        (folder / name).mkdir()
        lines = [
            {"step": step, "time": 1.0, "kind": "eval", "eval_return": value}
            for step, value in ((10, 500.0), (20, last))
        ]
        text = "".join(f"{json.dumps(x)}\n" for x in lines)
        (folder / name / "metrics.jsonl").write_text(text)
        assert words[:2] == ("train", "ppo")
        return 3.0, ""

    monkeypatch.setattr(processes, "run_child", command)
    if solved:
        assert suite.time_command() > 0
    else:
        with pytest.raises(RuntimeError, match="a return of 474, not 475"):
            suite.time_command()
