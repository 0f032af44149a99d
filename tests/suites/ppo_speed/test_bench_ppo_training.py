"""The suite `ppo_training` on runs that take no time, from end to end."""

import pytest

from loopless.bench.contest import Contest
from loopless.bench.result import Result, load, save
from loopless.bench.suites import Options
from loopless.bench.timing import Budget
from pages import measured_on, suite_page
from suites.dqn_speed import slices
from suites.dqn_speed.slices import PPOTraining
from suites.ppo_speed import suite

SHORT = Budget(sample_s=0.0, total_s=1e-3, most_samples=1)
MACHINE = {"date": "2026-01-01T00:00", "commit": {"id": "0123456789"}, "cpu": "some"}
SMALL = PPOTraining(32, (6,), envs=2, horizon=8, epochs=2, minibatches=2)


class Slices:
    """A run that takes no time."""

    def __init__(self, case, **changes):
        self.made = case.gradient_steps

    def __call__(self):
        return self.made


@pytest.fixture
def fakes(monkeypatch):
    """Loops have tests of their own."""
    monkeypatch.setattr(slices, "Slices", Slices)
    monkeypatch.setattr(slices.os, "cpu_count", lambda: 1)


@pytest.fixture
def result(fakes):
    made = Result("ppo_speed", {"threads": 1}, MACHINE)
    suite.measure(SMALL, Contest(made, SHORT, lambda _: None, peers=False))
    return made


def test_every_section_is_measured_and_ours_is_right(result):
    assert {row.section for row in result.measurements} == set(suite.TITLES)
    assert {(row.status, row.reason) for row in result.measurements} == {("ok", "")}
    assert all(row.value for row in result.measurements)


def test_it_survives_json(result, tmp_path):
    save(result, tmp_path / "ppo_training.json")
    assert load(tmp_path / "ppo_training.json") == result


def test_the_readme_gets_every_rate_and_every_target(result):
    lines = suite_page(result)
    text = "\n".join(lines)
    assert "steps/s" in text
    targets = [target for row in result.measurements for target in row.targets]
    assert targets
    assert all(target.target in text for target in targets)
    assert lines[-1] == measured_on(result)


@pytest.mark.parametrize("quick", [True, False])
def test_a_quick_run_has_every_section(fakes, monkeypatch, quick):
    monkeypatch.setattr(slices, "Budget", lambda *_, **__: SHORT)
    monkeypatch.setattr(slices, "prepare_like_training", lambda threads: None)
    made = Result("ppo_speed", {})
    suite.run(Options(quick=quick, peers=False), made, lambda _: None)
    assert {row.section for row in made.measurements} == set(suite.TITLES)
    assert made.settings["steps_in_a_call"] % 512 == 0
    assert (made.settings["n_steps"], made.settings["n_envs"]) == (128, 4)
