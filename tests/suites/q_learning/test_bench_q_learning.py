"""The suite `q_learning` on updates that take no time, from end to end."""

from dataclasses import replace

import pytest

from loopless.bench.contest import Contest
from loopless.bench.result import Result, load, save
from loopless.bench.timing import Budget
from pages import measured_on, suite_page
from suites.q_learning import suite, updates
from suites.q_learning.updates import Update

SHORT = Budget(sample_s=0.0, total_s=1e-3, most_samples=2)
MACHINE = {"date": "2026-01-01T00:00", "commit": {"id": "0123456789"}, "cpu": "some"}

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def result():
    made = Result("q_learning", {"threads": 1}, MACHINE)
    contest = Contest(made, SHORT, lambda _: None, peers=False)
    suite.measure([Update(32, (64,), 1), Update(32, (64,), 32)], contest)
    kept = suite.PROPOSALS
    suite.PROPOSALS = kept[:3]
    suite.measure_proposals(Update(8, (5,), 2), contest)
    suite.PROPOSALS = kept
    return made


def test_every_section_is_measured_and_ours_is_right(result):
    assert {row.section for row in result.measurements} == set(suite.TITLES)
    mine = [row for row in result.measurements if row.role == "ours"]
    assert {(row.status, row.reason) for row in mine} == {("ok", "")}
    assert all(row.value for row in mine)
    assert not result.ours_is_wrong


def test_peers_are_left_out_on_request(result):
    assert "peer" not in {row.role for row in result.measurements if row.section != "proposals"}


def test_it_survives_json(result, tmp_path):
    save(result, tmp_path / "q_learning.json")
    assert load(tmp_path / "q_learning.json") == result


def test_the_readme_has_a_table_a_shape_the_claims_and_every_target(result):
    lines = suite_page(result)
    assert lines[0] == "| one update, batch 32, [64] | K = 1 | K = 32 |"
    text = "\n".join(lines)
    targets = [target for row in result.measurements for target in row.targets]
    assert targets
    assert all(target.target in text for target in targets)
    assert all(row.claim in text for row in result.measurements)
    assert lines[-1] == measured_on(result)


def test_our_wrong_update_makes_the_run_wrong(monkeypatch):
    def forged(case):
        call = suite.OURS.prepare(replace(case, rules=replace(case.rules, gamma=0.9)))
        return replace(call, read=lambda out: replace(call.read(out), rules=case.rules))

    monkeypatch.setattr(updates, "ATTEMPTS", 1)
    made, contender = Result("q_learning", {}), replace(suite.OURS, prepare=forged)
    Contest(made, SHORT, lambda _: None).run("update", Update(8, (5,), 1), [contender])
    assert made.ours_is_wrong
    assert "parameters differ" in made.measurements[0].reason
