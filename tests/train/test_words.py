"""What the commands say where users stumbled: each message names the cause and what to do."""

import pytest

from loopless import cli
from loopless.envs.hosted import ids
from loopless.runs.config import flags
from loopless.runs.failures import EnvFailed, Interrupted, NonFinite
from loopless.runs.progress.clock import Clock
from loopless.runs.progress.display import Progress
from loopless.train import registry


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["train", "dqn", "--env", "Pendulum-v1"], "dqn chooses among actions. Use ppo"),
        (["train", "dqn", "--hidden"], "--hidden must be a list, each an integer; received no"),
        (["train", "lm", "--tokens", "nofile.bin"], "tokens: there is no file nofile.bin"),
        (["play", "runs/x", "--episodes", "0"], "episodes must be at least 1; received 0"),
        (["report", "nowhere"], "there is no run nowhere"),
        (["report", ".", "--out", "a/b.html"], "--output a/b.html: there is no folder a"),
    ],
    ids=lambda x: " ".join(x) if isinstance(x, list) else "",
)  # fmt: skip
def test_a_mistake_is_named_for_what_it_is(words, message, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert cli.main(words) == 2
    assert message in capsys.readouterr().err


def test_the_newest_runs_are_named_first(tmp_path, capsys):
    import os

    for age, name in enumerate(("c", "a", "b")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "run.json").write_text("{}")
        os.utime(tmp_path / name / "run.json", (1_000 - age, 1_000 - age))
    assert cli.main(["play", str(tmp_path / "zzzz")]) == 2
    assert "The newest are: c, a, b." in capsys.readouterr().err
    assert cli.main(["report", str(tmp_path / "zzzz")]) == 2
    assert "The newest are: c, a, b." in capsys.readouterr().err


def test_a_package_to_install_is_named_once():
    spec = ids.find("LunarLander-v3")
    theirs = ImportError('Box2D is not installed, run `pip install "gymnasium[box2d]"`')
    assert ids._missing(spec, theirs).count("pip install") == 1
    assert 'pip install "gymnasium[box2d]".' in ids._missing(spec, ImportError("no Box2D"))


@pytest.mark.parametrize(
    ("error", "ending"),
    [
        (EnvFailed("x"), "stopped by its environment"),
        (NonFinite("x"), "stopped at a number that is not finite"),
        (Interrupted("x"), "interrupted"),
    ],
    ids=lambda x: type(x).__name__ if isinstance(x, Exception) else "",
)
def test_the_last_line_says_in_words_how_a_run_ended(error, ending, capsys):
    with pytest.raises(type(error)), Progress(Clock(), total=10, name="mine"):
        raise error
    last = capsys.readouterr().err.splitlines()[-1]
    assert last.startswith(f"mine: {ending}, ")
    assert type(error).__name__ not in last


@pytest.mark.parametrize("trainer", registry.TRAINERS)
def test_help_is_in_groups_and_every_flag_is_in_one_of_them(trainer, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "70")
    with pytest.raises(SystemExit):
        cli.main(["train", trainer, "--help"])
    text = capsys.readouterr().out
    lines = text.splitlines()
    assert max(map(len, lines)) <= 70 + 30
    headings = [line for line in lines if line.endswith(":") and not line.startswith(" ")]
    assert headings[0] == "run:"
    assert {"run:", "network:", "learning:", "output:"} <= set(headings)
    for flag in flags.of_class(registry.config_class(trainer)):
        assert sum(line.startswith(f"  {flag.spelling}") for line in lines) >= 1, flag.spelling
    assert "None" not in text


def test_paragraphs_of_help_fit_the_terminal(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "50")
    flags.show_help("x", "One line of\nsource and another.\n\n    code stays\n    as it is", [])
    assert "One line of source and another." in capsys.readouterr().out
