"""Results of several suites in one file, or in a folder; the newest counts."""

import json

import pytest

from loopless.bench.result import Measurement, Result, Target, load_all, save, save_all
from loopless.report.gathering import gather_results


def result(suite="returns", date="2026-01-01", value=1.0):
    row = Measurement("a", "b", "c", "d", "ours", value=value, targets=(Target("< 2", 1.0, True),))
    return Result(suite, {"threads": 1}, {"date": date}, [row])


def test_many_results_survive_the_trip_through_one_file(tmp_path):
    before = [result("returns"), result("replay")]
    save_all(before, tmp_path / "all.json")
    assert load_all(tmp_path / "all.json") == before


def test_a_file_of_one_suite_is_one_result(tmp_path):
    save(result(), tmp_path / "returns.json")
    assert load_all(tmp_path / "returns.json") == [result()]


def test_of_a_folder_the_newest_of_each_suite_counts_in_the_order_of_suites(tmp_path):
    save(result("replay"), tmp_path / "a.json")
    save(result("returns", "2026-01-02", 5.0), tmp_path / "b.json")
    save(result("returns", "2026-01-01", 6.0), tmp_path / "c.json")
    problems = []
    found = gather_results([tmp_path], problems, ("returns", "replay"))
    assert problems == []
    assert [(one.suite, one.measurements[0].value) for one in found] == [
        ("returns", 5.0),
        ("replay", 1.0),
    ]


@pytest.mark.parametrize(
    "content",
    [b"", b"{}", b"[]", b"null", b"\xff", b'{"schema": 2}', b'{"schema": 1, "measurements": []}',
     b'{"schema": 2, "suites": 3}', b'{"schema": 2, "suites": [[]]}', b"[" * 100_000],
)  # fmt: skip
def test_what_is_no_result_is_named(tmp_path, content):
    save(result(), tmp_path / "good.json")
    (tmp_path / "bad.json").write_bytes(content)
    problems = []
    assert gather_results([tmp_path], problems) == [result()]
    assert len(problems) == 1
    assert "bad.json" in problems[0]


def test_a_file_that_is_gone_is_named(tmp_path):
    problems = []
    assert gather_results([tmp_path / "gone.json"], problems) == []
    assert "gone.json" in problems[0]


def test_a_row_with_more_than_we_know_is_refused_not_lost(tmp_path):
    save(result(), tmp_path / "x.json")
    data = json.loads((tmp_path / "x.json").read_text())
    data["measurements"][0]["new"] = 1
    (tmp_path / "x.json").write_text(json.dumps(data))
    with pytest.raises(ValueError, match="new"):
        load_all(tmp_path / "x.json")
