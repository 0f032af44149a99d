"""Every block of the documentation: Python runs, commands are understood by the real parser."""

import importlib.util
import inspect
import re
import shlex
import tomllib
from pathlib import Path

import pytest
from site_pages.filling import without_made

from loopless import cli
from loopless.runs.config import flags
from loopless.runs.config.toml import FILE, PRESET
from loopless.train import registry

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
FENCE = re.compile(r"^```(\w*).*?\n(.*?)^```", re.DOTALL | re.MULTILINE)
PAGES = {
    str(path.relative_to(DOCS)): without_made(path.read_text())
    for path in sorted(DOCS.rglob("*.md"))
}
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


@pytest.mark.slow
@pytest.mark.parametrize("page", PYTHON)
def test_the_python_of_a_page_runs(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    exec(compile(program(page), str(DOCS / page), "exec"), {"__name__": "documentation"})


@pytest.mark.parametrize("page", PAGES)
def test_every_block_is_of_a_kind_that_is_checked(page):
    assert {language for language, _ in BLOCKS[page]} <= {"python", "sh", "text"}


def problems(words):
    """What `loopless` finds wrong with these words, without running anything."""
    if words == ["--version"]:
        return []
    name, *rest = words
    if name not in cli.COMMANDS:
        return ["there is no such command"]
    if name == "train":
        known = [FILE, PRESET, *flags.of_class(registry.config_class(rest[0]))]
        return flags.read(known, rest[1:])[1]
    known = flags.of_function(cli.COMMANDS[name])
    values, wrong = flags.read(known, rest)
    return wrong + [
        f"{flag.name} is missing"
        for flag in known
        if flag.default is inspect.Parameter.empty and flag.name not in values
    ]


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_is_one_that_exists(command):
    words = shlex.split(command, comments=True)
    while variable := re.fullmatch(r"(LOOPLESS_[A-Z]+)=\S*", words[0]):
        assert any(variable[1] in path.read_text() for path in (ROOT / "src").rglob("*.py"))
        words = words[1:]
    match words:
        case ["loopless", *rest]:
            assert problems(rest) == []
        case ["make", target, *settings]:
            makefile = (ROOT / "Makefile").read_text()
            assert re.search(rf"^{target}:", makefile, re.MULTILINE)
            assert all(f"$({setting.partition('=')[0]})" in makefile for setting in settings)
        case ["pip", "install", what]:
            project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
            assert set(re.findall(r"\w+", what)) <= set(project["optional-dependencies"])
        case ["python", "-m", module, *_]:
            assert importlib.util.find_spec(module) is not None
        case _:
            pytest.fail(f"nothing here knows whether {words[0]} exists")


@pytest.mark.slow
def test_the_report_of_the_committed_results_is_written(tmp_path, monkeypatch):
    (command,) = (line for line in COMMANDS if line.startswith("loopless report"))
    (tmp_path / "benchmarks").symlink_to(ROOT / "benchmarks")
    monkeypatch.chdir(tmp_path)
    assert cli.main(shlex.split(command, comments=True)[1:]) == 0
    assert (tmp_path / "report.html").stat().st_size > 10_000


@pytest.mark.parametrize("words", [["bench", "--fast"], ["unknown"], ["play"]])
def test_a_command_that_does_not_exist_is_noticed(words):
    assert problems(words)


def test_a_flag_that_a_trainer_does_not_have_is_noticed():
    assert problems(["train", "ppo", "--gama", "0.9"])
