"""The tables of headlines: what a hot spot gains by itself, in place, and in the whole program."""

from dataclasses import replace
from pathlib import Path

import pytest

import pages
from loopless.bench.result import Headline, Measurement, Result, load
from suites.own_code import in_place, suite

RESULTS = Path(__file__).parents[2] / "benchmarks" / "results"
GAINS = [gain for pair in pages.HOT_SPOTS.values() for gain in pair if gain]
HEAD = Headline("hot: here", "s", "c", "ours", (("loop", "the loop"),), "five")
GAIN = pages.Gain("x", "s", "c", "ours", "loop", ("third", "by deletion"))


def rows(**values):
    return [Measurement("s", "c", name, "", "ours", value=value) for name, value in values.items()]


def test_every_hot_spot_has_its_gains():
    five = [pages.hot_spot(headline) for _, headline in pages.headlines(("five",), RESULTS)]
    assert sorted(five) == sorted(pages.HOT_SPOTS)


@pytest.mark.parametrize("gain", GAINS, ids=lambda gain: f"{gain.section}: {gain.case}")
def test_every_gain_is_measured_by_its_suite(gain):
    third = [gain.third[0]] if gain.third else []
    if gain.section == "in_place":
        made = {case.label: [one.name for one in many] for case, many in in_place.CASES}
    elif gain.section == "only_the_function":
        made = {
            each.program.label: [name for name, _ in each.variants] for each in suite.REPLACEMENTS
        }
    else:
        result = load(RESULTS / f"{gain.suite}.json")
        made = {gain.case: list(pages.rows_of(result, gain.section, gain.case))}
    assert {gain.ours, gain.original, *third} <= set(made[gain.case])


def test_a_hot_spot_shows_both_numbers_and_their_ratio(monkeypatch):
    monkeypatch.setattr(pages, "HOT_SPOTS", {"hot": (GAIN, None)})
    result = Result("x", {}, measurements=rows(ours=1e-3, loop=4e-3, third=2e-3))
    line = pages.hot_spot_table([(result, HEAD)], {"x": result})[-1]
    assert line == (
        "| hot: here | 4.00 ms → 1.00 ms: **4×** "
        "| 4.00 ms → 1.00 ms: **4×**; by deletion: **2×** | – |"
    )


@pytest.mark.parametrize("missing", ["ours", "loop"])
def test_what_a_file_lacks_is_not_measured(missing, monkeypatch):
    monkeypatch.setattr(pages, "HOT_SPOTS", {"hot": (GAIN, None)})
    values = {"ours": 1e-3, "loop": 4e-3}
    del values[missing]
    result = Result("x", {}, measurements=rows(**values))
    cells = pages.hot_spot_table([(result, HEAD)], {"x": result})[-1].split(" | ")
    assert cells[1:] == ["not measured", "not measured", "– |"]
    assert "not measured" in pages.program_table([(result, HEAD)])[-1]
    assert "not measured" in pages.peer_table([(result, HEAD)])[-1]
    failed = Result("x", {}, measurements=[*rows(**values), *rows(**{missing: None})])
    assert pages.faster(*(pages.headline_rows(failed, HEAD)[n] for n in ("ours", "loop"))) == (
        "not measured"
    )


def test_a_program_stands_before_and_after():
    slow, fast = rows(loop=100.0, ours=320.0)
    made = [replace(row, unit="steps/s") for row in (slow, fast)]
    line = pages.program_table([(Result("x", {}, measurements=made), HEAD)])[-1]
    assert line == "| hot: here | 100 steps/s | 320 steps/s | **3.2×** |"


def test_a_compiled_trainer_stands_beside_its_fastest_peer():
    mine, slow, fast = rows(ours=320.0, slow=100.0, fast=200.0)
    made = [replace(mine, unit="steps/s")]
    made += [replace(row, unit="steps/s", role="peer") for row in (slow, fast)]
    head = replace(HEAD, beside=(), group="compiled")
    line = pages.fastest_peer_table([(Result("x", {}, measurements=made), head)])[-1]
    assert line == "| hot: here | 320 steps/s | fast 200 steps/s: **1.6×** |"
    line = pages.fastest_peer_table([(Result("x", {}, measurements=made[:1]), head)])[-1]
    assert line == "| hot: here | 320 steps/s | not measured |"
    assert "not measured | not measured" in pages.fastest_peer_table([(Result("x", {}), head)])[-1]


def test_a_table_without_any_result_says_so(monkeypatch):
    head = replace(HEAD, beside=(), group="compiled")
    monkeypatch.setattr(pages, "headlines", lambda groups, results: [(Result("x", {}), head)])
    assert pages.headline_table(("compiled",), RESULTS) == ["Not measured yet."]


def test_a_wrong_answer_is_called_wrong():
    fast, slow = rows(ours=1e-3, loop=4e-3)
    assert "(wrong)" in pages.comparison(replace(fast, status="disagrees"), slow)


@pytest.mark.parametrize(("quick", "shown"), [(True, "(?, quick)"), (False, "(?)")])
def test_a_quick_measurement_says_so(quick, shown, monkeypatch):
    when = type("Age", (), {"suite": "x", "day": "2026-01-01", "commit": "?"})
    monkeypatch.setattr(pages, "age", lambda result: when)
    assert pages.day_and_commit(Result("x", {"quick": quick})) == f"x 2026-01-01 {shown}"
