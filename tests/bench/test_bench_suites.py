"""Suites by name and by path: each can be loaded, wherever the command is given."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from loopless.bench import command, suites
from loopless.bench.result import load as load_result
from loopless.bench.suites import RESULTS, Options, UnknownSuite, check, load, name_of, names

ROOT = Path(__file__).parents[2]
MINE = """
from loopless.bench.result import Measurement
TITLES = {"mine": "My own"}
def run(options, result, say):
    import helper_of_mine
    row = Measurement("mine", "case", "us", "mine", "ours", value=helper_of_mine.VALUE)
    result.measurements.append(row)
"""


@pytest.fixture
def mine(tmp_path):
    (tmp_path / "my_suite.py").write_text(MINE)
    (tmp_path / "helper_of_mine.py").write_text("VALUE = 2.5")
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "suite.py").write_text(MINE)
    return tmp_path


@pytest.fixture
def installed(monkeypatch, tmp_path):
    """As in a wheel: there is no checkout around the package."""
    monkeypatch.setattr(suites, "BENCHMARKS", tmp_path / "benchmarks")


@pytest.mark.parametrize("name", names())
def test_every_suite_runs_and_shows_itself(name):
    suite = load(name)
    assert callable(suite.run)
    assert suite.TITLES
    assert callable(suite.page)


@pytest.mark.parametrize("name", names())
def test_a_committed_result_has_the_suites_titles_and_headlines(name):
    result, suite = load_result(RESULTS / f"{name}.json"), load(name)
    assert result.suite == name
    # A section that a suite has no more may still have rows in an older result.
    retired = {row.section for row in result.measurements} - suite.TITLES.keys()
    titles = {name: text for name, text in result.titles.items() if name not in retired}
    assert (titles, result.headlines) == (suite.TITLES, getattr(suite, "HEADLINES", ()))


@pytest.mark.parametrize("name", names())
def test_a_suite_has_at_most_four_files(name):
    files = [path.name for path in (ROOT / "benchmarks" / "suites" / name).glob("*.py")]
    assert "suite.py" in files
    assert len(files) <= 4


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("retruns", "'returns'"),
        ("xyz", "There are: returns"),
        ("nowhere/suite.py", "there is no suite at nowhere/suite.py"),
    ],
)
def test_an_unknown_name_gets_a_hint(name, hint):
    with pytest.raises(UnknownSuite, match=hint):
        load(name)


def test_a_folder_here_is_not_taken_for_a_suite(tmp_path, monkeypatch):
    (tmp_path / "xyz").mkdir()
    (tmp_path / "xyz" / "suite.py").write_text(MINE)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UnknownSuite):
        check("xyz")
    check("./xyz")


@pytest.mark.parametrize(
    ("path", "name"),
    [("my_suite.py", "my_suite"), ("folder", "folder"), ("folder/suite.py", "folder")],
)
def test_anyones_suite_runs_by_its_path(mine, path, name, capsys):
    options = Options(suite=str(mine / path), json=mine / "out.json")
    if path == "my_suite.py":
        assert command.bench(options, isolate=lambda threads: None) == 0
        result = load_result(mine / "out.json")
        assert (result.suite, result.measurements[0].value) == (name, 2.5)
        assert "My own" in capsys.readouterr().out
    assert name_of(str(mine / path)) == name
    assert load(str(mine / path)).TITLES == {"mine": "My own"}


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize("asked", [(), ("returns",), ("returns", "replay")])
def test_an_installed_copy_says_what_to_do(asked, capsys):
    assert command.run(asked, Options()) == 2
    assert "Clone its repository" in capsys.readouterr().err


@pytest.mark.slow
def test_the_documented_suite_runs(tmp_path):
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "speed.md").read_text(), re.DOTALL)
    (code,) = (block for block in blocks if "my_suite.py" in block)
    (tmp_path / "my_suite.py").write_text(code)
    done = subprocess.run(
        [sys.executable, "-m", "loopless.cli", "bench", "./my_suite.py", "--quick"],
        cwd=tmp_path, capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    data = json.loads((tmp_path / "bench-results" / "my_suite.json").read_text())
    assert [row["status"] for row in data["measurements"]] == ["ok"] * 4
    assert data["measurements"][0]["targets"]
    assert "loopless/bench/contest.py" in data["sources"]
