"""The suite `replay` on buffers that take no time, from end to end."""

import pytest

from loopless.bench.contest import Contest
from loopless.bench.result import Result, load, save
from loopless.bench.timing import Budget
from pages import measured_on, suite_page
from suites.replay import cases, suite
from suites.replay.cases import Uniform

SHORT = Budget(sample_s=0.0, total_s=1e-3, most_samples=2)
MACHINE = {"date": "2026-01-01T00:00", "commit": {"id": "0123456789"}, "cpu": "some"}

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def result():
    """One small run of every section, without peers."""
    made = Result("replay", {"threads": 1}, MACHINE)
    draws, cases.CHECKED_DRAWS = cases.CHECKED_DRAWS, 8_000
    contest = Contest(made, SHORT, lambda _: None, peers=False)
    suite.measure([1000], [256], contest, rows=3, quick=True)
    suite.measure_scanned([7000], contest)
    cases.CHECKED_DRAWS = draws
    return made


def test_every_section_is_measured_and_ours_is_right(result):
    assert {row.section for row in result.measurements} == set(suite.TITLES)
    mine = [row for row in result.measurements if row.role == "ours"]
    assert {(row.status, row.reason) for row in mine} == {("ok", "")}
    assert all(row.value is not None for row in mine)
    assert not result.ours_is_wrong


def test_peers_are_left_out_on_request(result):
    assert "peer" not in {row.role for row in result.measurements}


def test_it_survives_json(result, tmp_path):
    save(result, tmp_path / "replay.json")
    assert load(tmp_path / "replay.json") == result


def test_the_readme_gets_every_case_and_every_target(result):
    lines = suite_page(result)
    text = "\n".join(lines)
    assert all(row.case in text for row in result.measurements)
    targets = [target for row in result.measurements for target in row.targets]
    assert sum(line.endswith(("met |", "missed** |", "measured |", "stated |")) for line in lines)
    assert all(target.target in text for target in targets)
    assert lines[-1] == measured_on(result)


def test_our_wrong_draws_make_the_run_wrong(monkeypatch):
    from loopless.replay import ReplayBuffer

    right = ReplayBuffer.sample

    def wrong(self, *arguments, **options):
        batch = right(self, *arguments, **options)
        return batch | {"next_obs": batch["obs"]}

    monkeypatch.setattr(ReplayBuffer, "sample", wrong)
    result = Result("replay", {})
    Contest(result, SHORT, lambda _: None).run("uniform", Uniform(1000, 64), suite.OUR_UNIFORM)
    assert result.ours_is_wrong
    assert "next_obs" in result.measurements[0].reason
