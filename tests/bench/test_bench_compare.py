"""What moved since an older result: beyond noise, and said with what else differs."""

import io
from dataclasses import replace
from types import SimpleNamespace

import pytest
from rich.console import Console

from loopless import cli
from loopless.bench import compare
from loopless.bench.command import bench
from loopless.bench.result import Measurement, Result, load_all, save
from loopless.bench.suites import Options


def row(value, spread=0.01, unit="s", **changes):
    made = Measurement(
        "shapes", "2×[3]", "us", "loopless", "ours", value=value, unit=unit, samples=9,
        lower_quartile=value * (1 - spread), upper_quartile=value * (1 + spread),
    )  # fmt: skip
    return replace(made, **changes)


def result(*rows, suite="returns", numpy="2.0", **settings):
    machine = {"cpu": "A", "packages": {"numpy": numpy}}
    return Result(suite, {"threads": 1, **settings}, machine, list(rows))


def text_of(old, new):
    out = io.StringIO()
    compare.show(compare.compare(old, new), Console(file=out, width=120), "old.json")
    return out.getvalue()


@pytest.mark.parametrize(
    ("before", "after", "moved", "times"),
    [
        (row(2e-5), row(1e-5), True, 2.0),
        (row(1e-5), row(2e-5), True, 0.5),
        (row(1e-5), row(1.05e-5), False, 1 / 1.05),  # less than a tenth
        (row(1e-5, spread=0.3), row(1.3e-5, spread=0.3), False, 1 / 1.3),  # the quartiles meet
        (row(100.0, unit="steps/s"), row(300.0, unit="steps/s"), True, 3.0),
        (row(1.0, lower_quartile=None, upper_quartile=None), row(2.0), True, 0.5),
    ],
)
def test_a_row_has_moved_if_noise_cannot_explain_it(before, after, moved, times):
    (move,) = compare.compare([result(before)], [result(after)]).moves
    assert move.moved is moved
    assert move.times == pytest.approx(times)


def test_what_only_one_has_is_counted_and_other_suites_are_left_alone():
    old = [result(row(1.0), row(1.0, case="gone")), result(row(1.0), suite="replay")]
    found = compare.compare(old, [result(row(1.0), row(1.0, case="new"))])
    assert [key[2] for key in found.gone] == ["gone"]
    assert [key[2] for key in found.new] == ["new"]
    assert len(found.moves) == 1


def test_it_is_said_what_moved_and_what_else_differs():
    said = text_of([result(row(4e-5), quick=False)], [result(row(1e-5), numpy="2.1", quick=True)])
    assert "4.00× faster" in said
    assert "40.0 µs" in said
    assert "2×[3]" in said
    assert "1 faster, 0 slower, 0 as before" in said
    assert "numpy: 2.0 → 2.1" in said
    assert "returns quick: False → True" in said


def test_the_command_compares_with_a_file(tmp_path, capsys):
    save(result(row(4e-5)), tmp_path / "old.json")

    def suite(options, found, say):
        found.measurements.append(row(1e-5))

    options = Options(json=tmp_path / "new.json", compare=tmp_path / "old.json")
    assert (
        bench(options, lambda name: SimpleNamespace(run=suite, TITLES={}), lambda threads: None)
        == 0
    )
    assert "4.00× faster" in capsys.readouterr().out


def test_a_file_that_cannot_be_compared_with_is_refused_before_measuring(tmp_path, capsys):
    options = Options(json=tmp_path / "new.json", compare=tmp_path / "old.json")
    assert bench(options, pytest.fail, lambda threads: None) == 2
    assert "old.json" in capsys.readouterr().err


@pytest.mark.parametrize("words", ["--compare OLD NEW", "NEW --compare OLD", "NEW --compare=OLD"])
def test_two_files_are_compared_without_measuring(words, tmp_path, capsys):
    files = {"OLD": tmp_path / "old.json", "NEW": tmp_path / "new.json"}
    save(result(row(4e-5)), files["OLD"])
    save(result(row(1e-5)), files["NEW"])
    for name, file in files.items():
        words = words.replace(name, str(file))
    assert cli.main(["bench", *words.split()]) == 0
    assert "4.00× faster" in capsys.readouterr().out


@pytest.mark.parametrize("missing", ["old.json", "new.json"])
def test_a_file_that_cannot_be_read_is_named(missing, tmp_path, capsys):
    for name in {"old.json", "new.json"} - {missing}:
        save(result(row(1e-5)), tmp_path / name)
    words = ["bench", "--compare", str(tmp_path / "old.json"), str(tmp_path / "new.json")]
    assert cli.main(words) == 2
    assert missing in capsys.readouterr().err


def test_a_result_is_no_suite(tmp_path, capsys):
    save(result(row(1e-5)), tmp_path / "old.json")
    assert cli.main(["bench", str(tmp_path / "old.json")]) == 2
    assert "--compare" in capsys.readouterr().err


def test_an_older_result_is_compared_under_the_suites_new_name(tmp_path):
    (tmp_path / "old.json").write_text(
        '{"suite": "training", "settings": {}, "machine": {}, "measurements": [], '
        '"interrupted": false, "schema": 2}'
    )
    (old,) = load_all(tmp_path / "old.json")
    assert (old.suite, old.titles, old.headlines, old.sources) == ("dqn_speed", {}, (), {})
