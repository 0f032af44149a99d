"""Every wrong function that we ship gets its own diagnosis, and nobody else's."""

import importlib

import pytest

from loopless.verify import Options
from loopless.verify.judge import judge
from loopless.verify.verdicts import AGREES
from loopless.verify.wrong import WRONG

QUICK = Options(cases=30, timing=False, smallest=False)


def function_of(wrong):
    module, name = wrong.function.split(":")
    return getattr(importlib.import_module(f"loopless.verify.wrong.{module}"), name)


@pytest.mark.parametrize("wrong", WRONG, ids=lambda one: one.function)
def test_wrong_function_gets_its_diagnosis(wrong):
    report = judge(function_of(wrong), wrong.claim, QUICK)
    assert wrong.diagnosis in report.diagnosis[0]
    assert report.equal == wrong.equal
    assert any(finding.status != AGREES for finding in report.findings)


@pytest.mark.parametrize("wrong", [one for one in WRONG if one.equal], ids=lambda x: x.function)
def test_strict_refuses_what_is_right_on_finite_numbers_alone(wrong):
    strict = Options(cases=30, timing=False, smallest=False, strict=True)
    assert not judge(function_of(wrong), wrong.claim, strict).equal


def test_every_wrong_function_says_what_it_is_like():
    for wrong in WRONG:
        assert function_of(wrong).__doc__.endswith(".")


def test_functions_and_diagnoses_are_listed_once():
    assert len({one.function for one in WRONG}) == len(WRONG)


def test_without_time_limits_one_flag_is_enough():
    from loopless.verify.wrong.gae import termination_only

    options = Options(cases=30, timing=False, smallest=False, truncation=False)
    report = judge(termination_only, "gae", options)
    assert report.equal
    assert "cannot be told from termination" in " ".join(report.notes)
