"""The suite `training` on runs that take no time, from end to end."""

import pytest

from loopless.bench.contest import Contest
from loopless.bench.result import Result, load, save
from loopless.bench.timing import Budget
from pages import measured_on, suite_page
from suites.dqn_speed import slices, suite
from suites.dqn_speed.slices import Training

SHORT = Budget(sample_s=0.0, total_s=1e-3, most_samples=1)
MACHINE = {"date": "2026-01-01T00:00", "commit": {"id": "0123456789"}, "cpu": "some"}


class Slices:
    """A run that takes no time."""

    def __init__(self, case, **changes):
        self.made = case.gradient_steps

    def __call__(self):
        return self.made


@pytest.fixture(scope="module")
def result():
    """Loops have tests of their own."""
    patch = pytest.MonkeyPatch()
    patch.setattr(slices, "Slices", Slices)
    patch.setattr(slices.os, "cpu_count", lambda: 1)
    made = Result("dqn_speed", {"threads": 1}, MACHINE)
    contest = Contest(made, SHORT, lambda _: None, peers=False)
    suite.measure(Training(40, (6,), 8), {Training(40, (6,), 8, envs=10): (1.5,)}, contest)
    patch.undo()
    return made


def test_every_section_is_measured_and_ours_is_right(result):
    assert {row.section for row in result.measurements} == set(suite.TITLES)
    mine = [row for row in result.measurements if row.role == "ours"]
    assert {(row.status, row.reason) for row in mine} == {("ok", "")}
    assert all(row.value for row in mine)


def test_numbers_have_their_units(result):
    found = {(row.section, row.contender): (row.value, row.unit) for row in result.measurements}
    assert found["steps", slices.HOSTED][1] == "steps/s"


def test_it_survives_json(result, tmp_path):
    save(result, tmp_path / "training.json")
    assert load(tmp_path / "training.json") == result


def test_the_readme_gets_every_rate_and_every_target(result):
    lines = suite_page(result)
    text = "\n".join(lines)
    assert "steps/s" in text
    targets = [target for row in result.measurements for target in row.targets]
    assert targets
    assert all(target.target in text for target in targets)
    assert lines[-1] == measured_on(result)
