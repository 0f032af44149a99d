"""All suites in one table: what is compared with what, and how a ratio is said."""

import io
from dataclasses import replace

import pytest
from rich.console import Console

from loopless.bench import table
from loopless.bench.result import Measurement, Result


def row(contender, role, value, unit="s", **changes):
    made = Measurement("shapes", "2×[3]", contender, "some", role, value=value, unit=unit)
    return replace(made, **changes)


def lines(*rows):
    return table.lines([Result("returns", {}, {}, list(rows))])


def test_the_best_of_ours_stands_beside_the_best_of_theirs():
    (line,) = lines(
        row("slow", "ours", 3e-6), row("fast", "ours", 2e-6), row("loop", "reference", 4e-4),
        row("one", "peer", 8e-6), row("two", "peer", 6e-6), row("floor", "floor", 1e-6),
    )  # fmt: skip
    assert (line.ours.contender, line.peer.contender) == ("fast", "two")
    assert line.times(line.loop) == pytest.approx(200)
    assert line.times(line.peer) == pytest.approx(3)
    assert line.times(line.floor) == pytest.approx(0.5)


def test_of_a_rate_more_is_better():
    (line,) = lines(
        row("a", "ours", 100.0, "steps/s"), row("b", "ours", 300.0, "steps/s"),
        row("c", "peer", 50.0, "steps/s"), row("d", "peer", 150.0, "steps/s"),
    )  # fmt: skip
    assert line.times(line.peer) == pytest.approx(2)


@pytest.mark.parametrize("status", ["disagrees", "failed", "unavailable", "skipped"])
def test_who_is_wrong_or_absent_is_not_compared(status):
    rows = row("ours", "ours", 1.0), row("quick", "peer", 0.1, status=status)
    (line,) = lines(*rows, row("right", "peer", 5.0))
    assert line.times(line.peer) == 5
    assert lines(*rows) == []


@pytest.mark.parametrize(
    "rows",
    [
        [row("ours", "ours", 1.0)],
        [row("loop", "reference", 1.0)],
        [row("ours", "ours", 4.0, "MB"), row("loop", "reference", 8.0, "MB")],
        [row("ours", "ours", 1.0, section="proposals"), row("p", "peer", 2.0, section="proposals")],
    ],
    ids=["ours alone", "no ours", "no speed", "ablation"],
)
def test_what_cannot_be_compared_has_no_line(rows):
    assert lines(*rows) == []


@pytest.mark.parametrize(
    ("ratio", "said"), [(None, "–"), (57_083.4, "57,083×"), (99.6, "100×"), (9.96, "10×"),
                        (1.849, "1.8×"), (0.251, "0.25×")]
)  # fmt: skip
def test_ratios_are_said_in_two_digits(ratio, said):
    assert table.times(ratio) == said


def test_the_table_has_names_with_brackets_and_all_numbers():
    out = io.StringIO()
    found = lines(row("us", "ours", 2e-6), row("loop", "reference", 4e-4), row("p", "peer", 6e-6))
    table.show_lines(found, Console(file=out, width=120))
    for said in ("returns", "2×[3]", "2.00 µs", "400 µs", "200×", "p: 6.00 µs", "3×"):
        assert said in out.getvalue()
