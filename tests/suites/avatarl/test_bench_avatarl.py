"""The suite `avatarl` on losses that take no time, from end to end."""

from dataclasses import replace

import pytest

from loopless.bench.contest import Call, Contest
from loopless.bench.result import Result, load, save
from loopless.bench.timing import Budget
from pages import measured_on, suite_page
from suites.avatarl import plain, suite, training
from suites.avatarl.losses import Losses
from suites.avatarl.training import Training

SHORT = Budget(sample_s=0.0, total_s=1e-3, most_samples=2)
MACHINE = {"date": "2026-01-01T00:00", "commit": {"id": "0123456789"}, "cpu": "some"}
CASE = Losses(12, 2, 6)

pytestmark = pytest.mark.slow


def pretend(case):
    return Call(lambda: None, None)


@pytest.fixture(scope="module")
def result():
    made = Result("avatarl", {"threads": 1}, MACHINE)
    contest = Contest(made, SHORT, lambda _: None)
    few = [each for each in plain.CONTENDERS if "JAX" not in each.name]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(plain, "CONTENDERS", [plain.OURS[0], *few])
        suite.measure("loss", [CASE], contest)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(suite, "probe", lambda function, *arguments: 0.5)
        suite.measure_memory(CASE, contest)
    with pytest.MonkeyPatch.context() as patch:  # they have tests of their own
        for name in ("JAX_CONTENDERS", "TORCH_CONTENDERS"):
            racing = [replace(each, prepare=pretend) for each in getattr(training, name)]
            patch.setattr(training, name, racing)
        suite.measure_training(Training(block=4, batch=2, tokens=10_000), contest)
    suite.measure("proposals", [CASE], contest)
    suite.measure("top_k", [CASE, Losses(suite.SMALL_V, 2, 6)], contest)
    return made


def test_every_section_is_measured_and_ours_is_right(result):
    assert {row.section for row in result.measurements} == set(suite.TITLES)
    mine = [row for row in result.measurements if row.role == "ours"]
    assert {(row.status, row.reason) for row in mine} == {("ok", "")}
    assert all(row.value is not None for row in mine)
    assert not result.ours_is_wrong


def test_every_way_to_the_largest_is_right_or_said_to_be_wrong(result):
    rows = [row for row in result.measurements if row.section == "top_k"]
    assert {row.contender for row in rows} == {
        each.name for each in (*suite.SHORT_TOP_K, *suite.LONG_TOP_K)
    }
    assert {(row.status, row.reason) for row in rows} == {("ok", "")}
    case = suite.TopK(CASE)
    call = suite._compiled_top_k("_survey_short", case)
    call.run()
    assert case.check(suite.ROW_BY_ROW, call, None).reason == ""
    wrong = suite.Call(call.run, lambda _: call.read(None)[::-1])
    assert case.check(suite.ROW_BY_ROW, wrong, None).reason == "other tokens"


def test_it_survives_json(result, tmp_path):
    save(result, tmp_path / "avatarl.json")
    assert load(tmp_path / "avatarl.json") == result


def test_the_readme_has_the_claims_and_every_target(result):
    lines = suite_page(result)
    text = "\n".join(lines)
    targets = [target for row in result.measurements for target in row.targets]
    assert targets
    assert all(target.target in text for target in targets)
    assert all(row.claim in text for row in result.measurements)
    assert lines[0] == f"| loss and gradient | {CASE.label} |"
    assert lines[-1] == measured_on(result)
