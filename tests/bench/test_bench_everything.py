"""All suites at once: one table and one file of what was measured, whatever failed."""

import sys
from dataclasses import replace
from pathlib import Path

import pytest

from loopless.bench import command as command_module
from loopless.bench.result import load_all
from loopless.bench.suites import Options

GOOD = """
import sys
from pathlib import Path
from loopless.bench.result import Measurement, Result, Target, save
rows = [
    Measurement("shapes", "2×3", "us", "loopless", "ours", value=1e-5),
    Measurement("shapes", "2×3", "loop", "plain", "reference", value=1e-3,
                targets=(Target("t", 1.0, False),)),
]
save(Result(sys.argv[2], {"threads": 1}, {"cpu": "x"}, rows), Path(sys.argv[4]))
"""
BROKEN = "import sys; sys.exit('a suite that broke')"


def fake(broken=()):
    def command(*arguments):
        code = BROKEN if arguments[1] in broken else GOOD
        return [sys.executable, "-c", code, *arguments]

    return command


@pytest.fixture
def path(tmp_path):
    return tmp_path / "all.json"


def run(suites, options, path, command):
    """What was measured, and the exit code."""
    code = command_module.bench_several(suites, replace(options, json=path), command)
    return load_all(path), code


def test_all_suites_give_one_table_and_one_file(path, capsys):
    found, code = run(["returns", "replay"], Options(quick=True), path, fake())
    said = capsys.readouterr().out
    assert code == 0
    assert [one.suite for one in found] == ["returns", "replay"]
    assert said.count("100×") >= 2
    assert "1 of 1 targets missed" in said
    assert str(path) in said


def test_a_suite_that_fails_is_named_and_the_rest_is_there(path, capsys):
    found, code = run(["returns", "replay"], Options(), path, fake({"returns"}))
    said = capsys.readouterr().out
    assert code == 1
    assert [one.suite for one in found] == ["replay"]
    assert "a suite that broke" in said
    assert "returns.log" in said


def test_a_failed_suite_does_not_show_what_was_measured_before(path):
    run(["returns"], Options(), path, fake())
    found, _ = run(["returns"], Options(), path, fake({"returns"}))
    assert found == []


@pytest.mark.parametrize(
    ("options", "flags"),
    [
        (Options(quick=True), ["--threads", "1", "--quick"]),
        (Options(threads=2, peers=False), ["--threads", "2", "--no-peers"]),
        (Options(ablate=True), ["--threads", "1", "--ablate"]),
        (Options(grids=Path("here")), ["--threads", "1", "--grids", "here"]),
    ],
)
def test_options_are_handed_on(options, flags):
    assert command_module._flags(options) == flags
