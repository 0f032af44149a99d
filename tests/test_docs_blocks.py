"""Every block of the documentation: Python runs, commands are understood by the real parser."""

import functools
import re
import shlex
import tomllib
from pathlib import Path

import pytest
from site_pages import tables
from tyro.extras import SubcommandApp

from loopless import cli
from loopless.runs.config import flags, schema
from loopless.runs.config import resolve as config
from loopless.train import registry

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
FENCE = re.compile(r"^```(\w*).*?\n(.*?)^```", re.DOTALL | re.MULTILINE)
PAGES = {str(path.relative_to(DOCS)): path.read_text() for path in sorted(DOCS.rglob("*.md"))}
BLOCKS = {page: FENCE.findall(text) for page, text in PAGES.items()}
PYTHON = [page for page, blocks in BLOCKS.items() if "python" in dict(blocks)]
COMMANDS = sorted(
    {
        line
        for blocks in BLOCKS.values()
        for language, text in blocks
        if language == "sh"
        for line in text.splitlines()
        if line.strip()
    }
)


def program(page):
    """The page's Python blocks as one, every line in its place."""
    lines, text = [""] * PAGES[page].count("\n"), PAGES[page]
    for match in FENCE.finditer(text):
        if match[1] == "python":
            first = text[: match.start(2)].count("\n")
            code = match[2].splitlines()
            lines[first : first + len(code)] = code
    return "\n".join(lines)


@pytest.mark.parametrize("page", PYTHON)
def test_the_python_of_a_page_runs(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    exec(compile(program(page), str(DOCS / page), "exec"), {"__name__": "documentation"})


@pytest.mark.parametrize("page", PAGES)
def test_every_block_is_of_a_kind_that_is_checked(page):
    assert {language for language, _ in BLOCKS[page]} <= {"python", "sh", "text"}


def stubbed():
    """The command line with functions that do nothing; it parses as the real one does."""
    app = SubcommandApp()
    for name, function in tables.subcommands().items():
        app.command(functools.wraps(function)(lambda *_, **__: 0), name=name)
    return app


def understood(words):
    """Whether `loopless` takes these words; SystemExit or False if it does not."""
    if words == ["--version"]:
        return True
    if words[0] == "train":
        keys = schema.keys_of(registry.config_class(words[1]))
        known = {name: hint for name, (hint, _) in config.FILE.items()} | keys
        return flags.read(known, words[2:])[1] == []
    return stubbed().cli(prog="loopless", args=words) == 0


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_is_one_that_exists(command):
    words = shlex.split(command, comments=True)
    match words:
        case ["loopless", *rest]:
            assert understood(rest)
        case ["make", target]:
            assert re.search(rf"^{target}:", (ROOT / "Makefile").read_text(), re.MULTILINE)
        case ["pip", "install", what]:
            project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
            assert set(re.findall(r"\w+", what)) <= set(project["optional-dependencies"])
        case _:
            pytest.fail(f"nothing here knows whether {words[0]} exists")


def test_the_report_of_the_committed_results_is_written(tmp_path, monkeypatch):
    (command,) = (line for line in COMMANDS if line.startswith("loopless report"))
    (tmp_path / "benchmarks").symlink_to(ROOT / "benchmarks")
    monkeypatch.chdir(tmp_path)
    assert cli.main(shlex.split(command, comments=True)[1:]) == 0
    assert (tmp_path / "report.html").stat().st_size > 10_000


@pytest.mark.parametrize("words", [["bench", "--fast"], ["unknown"], ["play"]])
def test_a_command_that_does_not_exist_is_noticed(words, capsys):
    with pytest.raises(SystemExit):
        understood(words)


def test_a_flag_that_a_trainer_does_not_have_is_noticed():
    assert not understood(["train", "ppo", "--gama", "0.9"])
