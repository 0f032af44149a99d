"""Results survive the trip through JSON, whole or not at all; tables say what is in them."""

import io
import json
from dataclasses import replace

import pytest
from rich.console import Console

import pages
from loopless.bench import table
from loopless.bench.machine import describe
from loopless.bench.result import SCHEMA, Measurement, Result, Target, load, save


def row(**changes):
    made = Measurement(
        section="shapes",
        case="25×4",
        contender="ours",
        library="loopless",
        role="ours",
        value=1.5e-5,
        lower_quartile=1.4e-5,
        upper_quartile=1.7e-5,
        samples=10,
        calls_per_sample=20,
        max_error=1e-6,
        targets=(Target("≤ 12 µs", 15.0, False), Target("≥ 2 × it", None, None)),
    )
    return replace(made, **changes)


def result(*rows, **changes):
    return Result("returns", {"threads": 1}, {"cpu": "some"}, list(rows), **changes)


def text_of(shown, width=120):
    out = io.StringIO()
    table.show(shown, Console(file=out, width=width))
    return out.getvalue()


def test_json_round_trip_gives_an_equal_result(tmp_path):
    before = result(row(), row(status="unavailable", value=None, reason="no module"))
    save(before, tmp_path / "deep" / "result.json")
    assert load(tmp_path / "deep" / "result.json") == before


def test_json_has_the_fields_that_readers_rely_on(tmp_path):
    save(result(row(), interrupted=True), tmp_path / "result.json")
    data = json.loads((tmp_path / "result.json").read_text(encoding="utf-8"))
    assert data["schema"] == SCHEMA
    assert data["interrupted"] is True
    assert data["measurements"][0]["targets"][0] == {
        "target": "≤ 12 µs",
        "measured": 15.0,
        "met": False,
    }


def test_a_failed_save_leaves_the_old_file_and_nothing_else(tmp_path):
    path = tmp_path / "result.json"
    save(result(row()), path)
    old = path.read_bytes()
    with pytest.raises(ValueError, match="JSON"):
        save(result(row(value=float("nan"))), path)
    assert path.read_bytes() == old
    assert list(tmp_path.iterdir()) == [path]


def test_another_schema_is_refused(tmp_path):
    save(result(row(), schema=SCHEMA + 1), tmp_path / "result.json")
    with pytest.raises(ValueError, match="schema"):
        load(tmp_path / "result.json")


@pytest.mark.parametrize(
    ("role", "status", "wrong"),
    [
        ("ours", "ok", False),
        ("ours", "unavailable", False),
        ("ours", "disagrees", True),
        ("ours", "failed", True),
        ("peer", "disagrees", False),
    ],
)
def test_only_our_own_failure_makes_the_run_wrong(role, status, wrong):
    assert result(row(role=role, status=status)).ours_is_wrong is wrong


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (8.3e-7, "0.83 µs"),
        (1.23e-5, "12.3 µs"),
        (2.5e-4, "250 µs"),
        (0.0031, "3.10 ms"),
        (2, "2.00 s"),
    ],
)
def test_durations_have_three_digits(seconds, text):
    assert table.duration(seconds) == text


def test_table_shows_times_targets_and_reasons():
    shown = text_of(
        result(
            row(),
            row(contender="peer", role="peer", status="unavailable", value=None, reason="absent"),
            row(contender="other", role="peer", status="disagrees", reason="off by 3"),
        )
    )
    assert "15.0 µs ±10%" in shown
    assert "missed" in shown
    assert "peer unavailable: absent" in shown
    assert "wrong" in shown
    assert "off by 3" in shown


@pytest.mark.parametrize(("load", "busy"), [(9.0, True), (3.9, False), (None, False)])
def test_a_busy_machine_is_told_of(load, busy):
    shown = result(row())
    shown.machine |= {"load": load, "cores": 2}
    assert ("The machine was busy" in text_of(shown)) is busy


@pytest.mark.parametrize("width", [50, 500])
def test_a_narrow_screen_gets_every_case(width):
    cases = [f"case {number} of a long name" for number in range(4)]
    shown = text_of(result(*(row(case=case) for case in cases)), width=width)
    assert all(case in shown for case in cases)


def test_markdown_has_a_column_a_case_and_says_what_is_wrong_or_missing():
    rows = [
        row(),
        row(case="9×9", value=2e-3),
        row(contender="peer", role="peer", status="disagrees"),
        row(contender="absent", role="peer", status="unavailable", value=None),
    ]
    assert pages.grid("what", rows) == [
        "| what | 25×4 | 9×9 |",
        "| --- | --: | --: |",
        "| ours | 15.0 µs | 2.00 ms |",
        "| peer | 15.0 µs (wrong) | – |",
        "| absent | unavailable | – |",
    ]


def test_markdown_can_be_turned_round():
    rows = [row(), row(case="9×9", contender="peer", value=2e-3)]
    assert pages.grid("what", rows, "case", "contender") == [
        "| what | ours | peer |",
        "| --- | --: | --: |",
        "| 25×4 | 15.0 µs | – |",
        "| 9×9 | – | 2.00 ms |",
    ]


def test_markdown_lists_targets_with_their_verdicts():
    lines = pages.target_table([row()])
    assert lines[2:] == [
        "| ours, 25×4 | ≤ 12 µs | 15.00 | **missed** |",
        "| ours, 25×4 | ≥ 2 × it | – | not measured |",
    ]


def test_an_empty_interrupted_result_is_shown():
    assert "Interrupted" in text_of(result(interrupted=True))


def test_machine_tells_versions_and_cores_but_no_names():
    found = describe()
    assert found["packages"]["numpy"]
    assert found["cores"] >= 1
    assert set(found) >= {"date", "commit", "cpu", "threads", "python"}
    assert "host" not in json.dumps(found)
