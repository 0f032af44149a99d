"""Functions that raise, print, never come back, or change what they are given: all get a report."""

import contextlib
import time

import numpy as np
import pytest

from loopless import reference
from loopless.verify import Options, UsageError
from loopless.verify.judge import judge
from loopless.verify.verdicts import DIFFERS

QUICK = Options(cases=30, timing=False, smallest=False)


def right(rewards, values, next_values, terminated, truncated, gamma, lambda_):
    fields = rewards, values, next_values, terminated, truncated
    return reference.gae(*fields, gamma=gamma, lambda_=lambda_)[0]


def words_of(report):
    return " ".join(finding.words for finding in report.findings)


def test_what_is_printed_is_kept_off_the_screen(capsys):
    def prints(rewards, values, next_values, terminated, truncated, gamma, lambda_):
        print("debug", rewards)
        return right(rewards, values, next_values, terminated, truncated, gamma, lambda_)

    report = judge(prints, "gae", QUICK)
    assert report.equal
    assert "It prints while it works." in report.notes
    assert capsys.readouterr().out == ""


def test_a_changed_input_is_said_and_does_not_spoil_the_verdict():
    def changes(rewards, values, next_values, terminated, truncated, gamma, lambda_):
        advantages = right(rewards, values, next_values, terminated, truncated, gamma, lambda_)
        rewards += 1
        next_values[terminated] = 0
        return advantages

    report = judge(changes, "gae", QUICK)
    assert report.equal
    assert "It changes its input: next_values, rewards." in report.notes


def test_an_exception_on_some_cases_is_a_difference_with_its_words():
    def fussy(rewards, values, next_values, terminated, truncated, gamma, lambda_):
        if truncated.any():
            raise NotImplementedError("no time limits here")
        return right(rewards, values, next_values, terminated, truncated, gamma, lambda_)

    report = judge(fussy, "gae", QUICK)
    by_name = {finding.name: finding for finding in report.findings}
    assert by_name["terminations"].status != DIFFERS
    assert by_name["truncations"].status == DIFFERS
    assert by_name["truncations"].words == "raises NotImplementedError: no time limits here"


def test_a_function_that_always_raises_is_bad_usage():
    def broken(rewards, values, gamma, lam):
        raise RuntimeError("not today")

    with pytest.raises(UsageError, match="raised RuntimeError: not today"):
        judge(broken, "gae", QUICK)


@pytest.mark.parametrize(
    ("result", "message"),
    [(None, "returns nothing"), ("text", "returns"), (3.0, "returns"), ((), "returns")],
)
def test_an_answer_that_is_none_is_bad_usage(result, message):
    def odd(rewards, values, gamma, lam):
        return result

    with pytest.raises(UsageError, match=message):
        judge(odd, "gae", QUICK)


def test_one_row_too_few_is_said():
    def short(rewards, values, next_values, terminated, truncated, gamma, lambda_):
        return right(rewards, values, next_values, terminated, truncated, gamma, lambda_)[:-1]

    with pytest.raises(UsageError, match=r"returns \(2, 4\); advantages has shape \(3, 4\)"):
        judge(short, "gae", QUICK)


def test_a_function_that_never_comes_back_is_left():
    def endless(rewards, values, gamma, lam):
        while True:
            with contextlib.suppress(Exception):
                time.sleep(0.01)

    options = Options(cases=5, timing=False, seconds=1.0, call_s=0.2)
    with pytest.raises(UsageError, match="did not come back in time"):
        judge(endless, "gae", options)


def test_a_function_that_hangs_on_some_cases_differs():
    def hangs(rewards, values, next_values, terminated, truncated, gamma, lambda_):
        while truncated.any():
            pass
        return right(rewards, values, next_values, terminated, truncated, gamma, lambda_)

    options = Options(cases=20, timing=False, smallest=False, call_s=0.2)
    report = judge(hangs, "gae", options)
    assert not report.equal
    assert "takes longer than 0.2 s" in words_of(report)


def test_a_slow_function_is_judged_on_fewer_cases():
    def slow(rewards, values, next_values, terminated, truncated, gamma, lambda_):
        time.sleep(0.02)
        return right(rewards, values, next_values, terminated, truncated, gamma, lambda_)

    report = judge(slow, "gae", Options(cases=1000, timing=False, seconds=0.5))
    assert report.equal
    assert len(report.findings) <= report.cases < 100


def test_two_answers_to_one_question_are_a_difference():
    calls = []

    def restless(rewards, values, next_values, terminated, truncated, gamma, lambda_):
        calls.append(1)
        advantages = right(rewards, values, next_values, terminated, truncated, gamma, lambda_)
        return advantages + (len(calls) > 12) * len(calls)

    report = judge(restless, "gae", Options(cases=20, timing=False, smallest=False))
    assert "answers the same question in two ways" in words_of(report)


def test_warnings_of_the_function_stay_inside():
    def warns(rewards, values, next_values, terminated, truncated, gamma, lambda_):
        np.log(np.zeros(2)), np.mean([])
        return right(rewards, values, next_values, terminated, truncated, gamma, lambda_)

    assert judge(warns, "gae", QUICK).equal


def test_a_mistake_that_nobody_knows_is_called_that():
    def doubled(rewards, values, next_values, terminated, truncated, gamma, lambda_):
        return 2 * right(rewards, values, next_values, terminated, truncated, gamma, lambda_)

    report = judge(doubled, "gae", QUICK)
    assert report.diagnosis == ["Matches none of the known mistakes."]
