"""What was measured is known by its files, and a change of one of them makes a result stale."""

from dataclasses import replace

import pytest

from loopless.bench import command, sources, suites
from loopless.bench.result import Result, save

MACHINE = {"date": "2026-01-02T03:04:05", "commit": {"id": "0123456789abcdef"}}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Sources and results of a made-up checkout."""
    monkeypatch.setattr(sources, "SOURCE", tmp_path)
    monkeypatch.setattr(command, "RESULTS", tmp_path)
    (tmp_path / "a.py").write_text("a = 1")
    (tmp_path / "b.py").write_text("b = 1")
    return tmp_path


@pytest.fixture
def measured(folder):
    result = Result("returns", {}, MACHINE, sources=sources.digests(["a.py", "b.py"]))
    save(result, folder / "returns.json")
    return result


def test_what_this_process_imported_is_known_by_its_content():
    names = sources.imported()
    assert {"loopless/__init__.py", "loopless/bench/sources.py"} <= names
    digests = sources.digests(names)
    assert set(digests) == names
    assert len(set(digests.values())) > 3


def test_an_unchanged_result_is_up_to_date(measured, capsys):
    assert sources.age(measured).changed == ()
    assert command.list_stale(["returns"]) == 0
    assert "measured 2026-01-02, commit 012345678; up to date" in capsys.readouterr().out


@pytest.mark.parametrize("change", ["edited", "deleted"])
def test_a_changed_source_makes_it_stale(folder, measured, change, capsys):
    (folder / "b.py").write_text("b = 2") if change == "edited" else (folder / "b.py").unlink()
    assert sources.age(measured).changed == ("b.py",)
    assert command.list_stale(["returns"]) == 1
    assert "stale: 1 source(s) changed since: b.py" in capsys.readouterr().out


def test_the_harness_itself_does_not_count(folder):
    (folder / "loopless" / "bench").mkdir(parents=True)
    (folder / "loopless" / "bench" / "x.py").write_text("1")
    result = Result("returns", {}, MACHINE, sources=sources.digests(["loopless/bench/x.py"]))
    (folder / "loopless" / "bench" / "x.py").write_text("2")
    assert sources.age(result).changed == ()


def test_a_result_without_digests_is_stale_and_says_why(folder, measured, capsys):
    save(replace(measured, sources={}), folder / "returns.json")
    assert command.list_stale(["returns"]) == 1
    assert "does not say which sources it measured" in capsys.readouterr().out


def test_a_suite_that_was_never_measured_is_named(folder, capsys):
    assert command.list_stale(["replay"]) == 1
    assert "replay: never measured" in capsys.readouterr().out


def test_without_a_name_every_suite_is_listed(capsys):
    command.list_stale([])
    lines = capsys.readouterr().out.splitlines()
    assert [line.partition(":")[0] for line in lines] == list(suites.names())


def test_an_unknown_suite_is_refused(capsys):
    assert command.list_stale(["retruns"]) == 2
    assert "Did you mean" in capsys.readouterr().err


def test_notes_of_children_are_passed_on_and_end_with_the_recording(tmp_path, monkeypatch):
    monkeypatch.delenv(sources.VARIABLE, raising=False)
    (tmp_path / "notes").write_text("loopless/cli.py\n")
    with sources.record() as digests:
        sources.pass_on(tmp_path / "notes")
        sources.pass_on(tmp_path / "nothing here")
        assert "loopless/cli.py" in digests()
    assert sources.VARIABLE not in sources.os.environ
