"""A contest on a case of no suite: who is timed, what goes wrong, and that rows are never lost."""

import warnings
from dataclasses import dataclass

import pytest

from loopless.bench.contest import Call, Contender, Contest, Entry, Verdict, enter, race
from loopless.bench.result import Result
from loopless.bench.timing import Budget
from suites.processes import warnings_of_peers_ignored

SHORT = Budget(sample_s=0.0, total_s=1e-3, most_samples=2)


@dataclass(frozen=True)
class Doubling:
    """Give twice the number."""

    number: int = 21
    label: str = "21"
    size: int = 1

    def check(self, contender, call, output):
        error = abs(call.read(output) - 2 * self.number)
        return Verdict(f"off by {error}" if error > contender.tolerance else "", error)


def contender(answer=42, name="some", role="peer", **changes):
    return Contender(name, "some", role, lambda case: Call(lambda: answer, float), **changes)


def breaks(problem):
    def prepare(case):
        raise problem

    return Contender("some", "some", "peer", prepare)


@pytest.mark.parametrize(
    ("answer", "tolerance", "status"), [(42, 0, "ok"), (43, 0, "disagrees"), (43, 1, "ok")]
)
def test_answers_are_checked_by_the_case_and_timed_either_way(answer, tolerance, status):
    entry = enter(contender(answer, tolerance=tolerance), "section", Doubling())
    (row,), interrupted = race([entry], SHORT)
    assert (row.status, row.max_error) == (status, answer - 42)
    assert (row.section, row.case) == ("section", "21")
    assert row.value is not None
    assert not interrupted


@pytest.mark.parametrize(
    ("problem", "status", "reason"),
    [
        (RuntimeError("no such layout\nsecond line"), "failed", "RuntimeError: no such layout"),
        (ImportError("No module named 'x'"), "unavailable", "No module named 'x'"),
        (AssertionError(), "failed", "AssertionError: AssertionError"),
    ],
)
def test_a_contender_that_breaks_is_reported_and_does_not_break_the_run(problem, status, reason):
    entry = enter(breaks(problem), "section", Doubling())
    assert (entry.row.status, entry.row.reason, entry.call) == (status, reason, None)


@pytest.mark.parametrize(("largest", "status"), [(1, "ok"), (0, "skipped")])
def test_a_slow_contender_is_skipped_on_large_cases(largest, status):
    assert enter(contender(largest=largest), "section", Doubling()).row.status == status


def test_rows_are_judged_and_kept():
    result, said = Result("returns", {}), []
    contest = Contest(result, SHORT, said.append)
    contest.run("section", Doubling(), [contender(), contender(name="other")], judge=reversed)
    assert [row.contender for row in result.measurements] == ["other", "some"]
    assert said == ["section: 21"]


def test_ctrl_c_keeps_the_rows():
    def interrupt():
        raise KeyboardInterrupt

    result = Result("returns", {})
    first = enter(contender(), "section", Doubling())
    second = Entry(enter(contender(name="other"), "section", Doubling()).row, interrupt)
    with pytest.raises(KeyboardInterrupt):
        Contest(result, SHORT, print).settle([first, second])
    assert [row.contender for row in result.measurements] == ["some", "other"]


def test_peers_may_warn_when_they_are_imported():
    with warnings_of_peers_ignored():
        warnings.warn("old", DeprecationWarning, stacklevel=1)
    with pytest.raises(DeprecationWarning):
        warnings.warn("old", DeprecationWarning, stacklevel=1)
