"""What `loopless verify` found, on the page."""

import json

import pytest

from loopless.report import verified
from loopless.report.gathering import gather
from loopless.report.page import page
from loopless.verify.verdicts import Failing, Finding, Report, Timing


def judged(status="differs"):
    return Report(
        "mine:gae",
        "gae",
        {"dones": "starts"},
        "NumPy, [T, B] arrays",
        [Finding("truncations", status, 119, 100 if status == "differs" else 0, "<odd>")],
        ["Treats truncation as termination."],
        ["It is given one flag."],
        Failing("truncations", {"gamma": "0.5"}, ["t", "right"], [["0", "0.125"]], [True]),
        Timing("128×64", 6e-4, 2e-5),
    )


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "verify.json"
    path.write_text(json.dumps(judged().to_json()))
    return path


def test_a_judgement_comes_back_equal(file):
    assert verified.gather([file], []) == [judged()]


@pytest.mark.parametrize(
    "said",
    ["mine:gae", ">differs<", "Treats truncation as termination.", "It is given one flag.", "0.125",
     "100 of 119", "&lt;odd&gt;", "30× its speed at 128×64: 20.0 µs instead of 600 µs"],
)  # fmt: skip
def test_the_page_says_what_was_found(file, said):
    assert said in page(gather([], [], [file]))


def test_what_agrees_is_equal():
    assert ">equal<" in verified.article(judged("agrees"))


@pytest.mark.parametrize("content", [b"", b"{}", b"[]", b"null", b'{"findings": 3}', b"\xff"])
def test_what_is_no_judgement_is_named(tmp_path, content):
    path = tmp_path / "bad.json"
    path.write_bytes(content)
    problems = []
    assert verified.gather([path], problems) == []
    assert "bad.json" in problems[0]
