"""`loopless report` from the outside: exit codes, messages, a page that is whole."""

from made_up_page import write_result, write_run

from loopless.report.command import report


def test_what_is_here_is_shown_if_nothing_is_named(tmp_path, monkeypatch, capsys):
    write_run(tmp_path / "runs" / "one")
    write_result(tmp_path / "bench-results" / "returns.json")
    monkeypatch.chdir(tmp_path)
    assert report((), (), tmp_path / "page.html") == 0
    text = (tmp_path / "page.html").read_text()
    assert 'id="run-0"' in text
    assert 'id="suite-returns"' in text
    assert "page.html" in capsys.readouterr().out


def test_all_that_is_wrong_is_said_at_once_and_nothing_written(tmp_path, capsys):
    missing = tmp_path / "nope"
    assert report([missing], [missing / "x.json"], missing / "page.html") == 2
    said = capsys.readouterr().err
    assert [line.split()[0] for line in said.splitlines()] == ["report:"] * 3
    assert list(tmp_path.iterdir()) == []


def test_nothing_to_show_is_said(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert report((), (), tmp_path / "page.html") == 2
    assert "neither runs/ nor bench-results/" in capsys.readouterr().err


def test_something_broken_is_1_with_a_page_of_the_rest(tmp_path, capsys):
    (tmp_path / "broken.json").write_text("{}")
    write_result(tmp_path / "returns.json")
    assert report((), [tmp_path], tmp_path / "page.html") == 1
    assert "broken.json" in capsys.readouterr().err
    assert "broken.json" in (tmp_path / "page.html").read_text()


def test_only_broken_things_make_no_page(tmp_path):
    (tmp_path / "broken.json").write_text("[]")
    assert report((), [tmp_path], tmp_path / "page.html") == 2
    assert not (tmp_path / "page.html").exists()


def test_a_folder_is_no_page(tmp_path, capsys):
    write_result(tmp_path / "returns.json")
    (tmp_path / "folder").mkdir()
    assert report((), [tmp_path / "returns.json"], tmp_path / "folder") == 2
    assert "is a folder" in capsys.readouterr().err
