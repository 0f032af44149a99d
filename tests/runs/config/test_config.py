"""Configs: file under flags, every mistake told at once, text that comes back equal."""

import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import pytest
import tyro
from hypothesis import given
from hypothesis import strategies as st

from loopless.runs.config import from_toml, resolve, to_toml
from loopless.runs.failures import USAGE, BadConfig


@dataclass(frozen=True)
class Replay:
    """Where experience is kept."""

    capacity: int = 100_000
    """How many steps are kept."""
    prioritized: bool = False
    """Draw by priority."""


@dataclass(frozen=True)
class Settings:
    """A trainer for the tests."""

    env: str = "CartPole-v1"
    """Which environment."""
    learning_rate: float = 1e-3
    """Step size of the optimiser."""
    batch_size: int = 32
    """Steps in a batch."""
    hidden: tuple[int, ...] = (64, 64)
    """Widths of the hidden layers."""
    betas: tuple[float, ...] = (0.9, 0.999)
    """Decay rates."""
    loss: Literal["mse", "huber"] = "mse"
    """Which loss."""
    order: Literal[1, 2] = 2
    """Which norm."""
    run: Path | None = None
    """Folder of the run."""
    seeds: int | None = None
    """How many agents."""
    double: bool = True
    """Choose actions by the online net."""
    replay: Replay = field(default_factory=Replay)

    def problems(self) -> list[str]:
        found = []
        if not self.learning_rate > 0:
            found.append(f"learning_rate is {self.learning_rate}; it is above 0.")
        if self.batch_size > self.replay.capacity:
            found.append(f"batch_size is {self.batch_size}; replay.capacity is the most.")
        return found


PROG = "loopless train test"


def problems(*arguments):
    with pytest.raises(BadConfig) as caught:
        resolve(Settings, arguments, PROG)
    assert caught.value.exit_code == USAGE
    assert str(caught.value) == "\n".join(f"config: {line}" for line in caught.value.problems)
    return caught.value.problems


@pytest.fixture
def file(tmp_path, monkeypatch):
    """Writes `dqn.toml` into the current folder."""
    monkeypatch.chdir(tmp_path)
    return Path("dqn.toml").write_text


# Values


def test_no_arguments_give_the_defaults():
    assert resolve(Settings, [], PROG) == Settings()


@pytest.mark.parametrize(
    "line",
    [
        "--env Acrobot-v1",
        "--env=a=b",
        "--learning-rate 3e-4",
        "--learning-rate 1",
        "--learning_rate=.5",
        "--learning-rate inf",
        "--batch-size 8 --batch-size 9",
        "--hidden 120 84",
        "--hidden 7",
        "--betas 0.5 1",
        "--betas -0.5 -1e-3 -.5",
        "--loss huber",
        "--order 1",
        "--run some/where",
        "--run None",
        "--seeds 5",
        "--seeds -2",
        "--double",
        "--no-double",
        "--replay.prioritized",
        "--replay.no-prioritized --replay.prioritized",
        "--replay.capacity 1_000",
    ],
)
def test_flags_mean_what_tyro_takes_them_to_mean(line):
    expected = tyro.cli(Settings, args=line.split())
    assert resolve(Settings, line.split(), PROG) == expected
    assert from_toml(Settings, to_toml(expected)) == expected


def test_a_million_may_be_written_as_1e6(file):
    assert resolve(Settings, ["--seeds", "1e6"], PROG).seeds == 1_000_000
    file("seeds = 2e3")
    assert resolve(Settings, ["--config", "dqn.toml"], PROG).seeds == 2000


def test_flags_go_over_the_file_and_the_file_over_the_defaults(file):
    file('learning_rate = 1\nhidden = [3]\nrun = "x"\n[replay]\ncapacity = 99\n')
    found = resolve(Settings, ["--config", "dqn.toml", "--hidden", "4", "5"], PROG)
    expected = Settings(learning_rate=1.0, hidden=(4, 5), run=Path("x"), replay=Replay(capacity=99))
    assert found == expected
    assert isinstance(found.learning_rate, float)


def test_a_flag_that_repeats_the_default_still_goes_over_the_file(file):
    file('loss = "huber"\ndouble = false')
    found = resolve(Settings, ["--config=dqn.toml", "--loss", "mse", "--double"], PROG)
    assert (found.loss, found.double) == ("mse", True)


def test_the_place_of_the_config_flag_does_not_matter(file):
    file("batch_size = 5")
    found = resolve(Settings, ["--batch-size", "6", "--config", "dqn.toml"], PROG)
    assert found.batch_size == 6


# Mistakes


def test_an_unknown_key_has_its_line_and_the_nearest_name(file):
    file("# a comment\n\nbatch_size = 5\nlearn_rate = 3\n")
    assert problems("--config", "dqn.toml") == [
        'unknown key "learn_rate" in dqn.toml, line 4. Did you mean "learning_rate"?'
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("hidden = [\n 1,\n 2,\n]\nx_y_z = 1", 'unknown key "x_y_z" in dqn.toml, line 5.'),
        ('env = """\n[x]\ny = 1\n"""\nx_y_z = 1', 'unknown key "x_y_z" in dqn.toml, line 5.'),
        (
            "[replay]\ncapacty = 3",
            'unknown key "replay.capacty" in dqn.toml, line 2. Did you mean "replay.capacity"?',
        ),
        (
            "\nreplay.capacty = 3",
            'unknown key "replay.capacty" in dqn.toml, line 2. Did you mean "replay.capacity"?',
        ),
        ("capacity = 3", 'unknown key "capacity" in dqn.toml, line 1. Did you mean "replay.cap'),
        ("[replai]\ncapacity = 3", 'unknown key "replai" in dqn.toml, line 1. Did you mean "repl'),
        ("batch_size = 3.5", '"batch_size" in dqn.toml, line 1, must be an integer; received 3.5.'),
        (
            "batch_size = true",
            '"batch_size" in dqn.toml, line 1, must be an integer; received True.',
        ),
        (
            'batch_size = "3"',
            "\"batch_size\" in dqn.toml, line 1, must be an integer; received '3'.",
        ),
        ("batch_size = 9223372036854775808", "must be an integer; received "),
        ("learning_rate = true", "must be a number; received True."),
        ("learning_rate = nan", "must be a number; received nan."),
        (f"learning_rate = 1{'0' * 400}", "must be a number; received "),
        ("double = 1", "must be true or false; received 1."),
        ("env = 1979-05-27", "must be text; received "),
        ("run = 3", "must be a path or None; received 3."),
        ('loss = "l1"', 'must be one of "mse", "huber"; received \'l1\'.'),
        ("order = 1.0", "must be one of 1, 2; received 1.0."),
        ("hidden = 3", "must be a list, each an integer; received 3."),
        ("hidden = [1, [2]]", "must be a list, each an integer; received [1, [2]]."),
        ("replay = 3", '"replay" in dqn.toml, line 1, must be a table, [replay]; received 3.'),
        ("[learning_rate]\nx = 1", "must be a number; received a table."),
        ("[[replay]]\ncapacity = 1", "must be a table, [replay]; received "),
        ("a = [", "dqn.toml is not TOML: "),
        ("a = 1\nb = x\n", "(at line 2, column 5)."),
        ("a = " + "[" * 9999, "dqn.toml is not TOML"),
        ("a" * 2_000_000, "cannot read dqn.toml: it is larger than 1,048,576 bytes."),
    ],
)
def test_what_is_wrong_in_a_file_is_said(file, text, message):
    file(text)
    (found,) = problems("--config", "dqn.toml")
    assert message in found


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("none.toml", "there is no file none.toml."),
        (".", "cannot read .: it is not a regular file."),
        ("bytes.toml", "bytes.toml is not text in UTF-8."),
    ],
)
def test_a_file_that_cannot_be_read_is_said(tmp_path, monkeypatch, name, message):
    monkeypatch.chdir(tmp_path)
    Path("bytes.toml").write_bytes(b"\xff\xfe")
    assert problems("--config", name) == [message]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("--learn-rate 3", "unknown flag --learn-rate. Did you mean --learning-rate?"),
        ("--no-duble", "unknown flag --no-duble. Did you mean --no-double?"),
        ("--capacity 3", "unknown flag --capacity. Did you mean --replay.capacity?"),
        ("--xyzxyz 3", "unknown flag --xyzxyz. See --help."),
        ("-x", "unknown flag -x. See --help."),
        ("--seeds many", "--seeds must be an integer or None; received 'many'."),
        ("--seeds 1.5", "--seeds must be an integer or None; received '1.5'."),
        ("--batch-size None", "--batch-size must be an integer; received 'None'."),
        ("--batch-size 1 2", "'2' belongs to no flag: --batch-size takes one value."),
        ("--batch-size", "--batch-size must be an integer; received no value."),
        ("--learning-rate nan", "--learning-rate must be a number; received 'nan'."),
        ("--loss l1", '--loss must be one of "mse", "huber"; received \'l1\'.'),
        ("--hidden 1 x", "--hidden must be a list, each an integer; received '1 x'."),
        ("--double false", "'false' belongs to no flag: --double takes no value; its opposite is"),
        ("--no-double=1", "'1' belongs to no flag: --no-double takes no value."),
        ("stray", "'stray' belongs to no flag: a flag begins with --."),
        ("--env \udcff", "must be text; received "),
    ],
)
def test_what_is_wrong_with_a_flag_is_said(line, message):
    (found,) = problems(*line.split())
    assert message in found


def test_all_mistakes_of_file_flags_and_values_are_told_at_once(file):
    file('batch_size = 999_999\nlearn_rate = 3\nloss = "l1"\n')
    found = problems("--config", "dqn.toml", "--seeds", "x", "--sede", "--learning-rate", "-1")
    assert len(found) == 6
    words = ["learn_rate", '"loss"', "--seeds", "--sede", "learning_rate is -1.0", "batch_size is"]
    assert all(word in line for word, line in zip(words, found, strict=True))


@pytest.mark.parametrize(
    ("hint", "default", "message"),
    [(dict, None, "no field can be of type"), (int | None, 3, "None must be its default")],
)
def test_a_config_class_that_a_file_cannot_hold_is_refused(hint, default, message):
    namespace = {"__annotations__": {"odd": hint}, "odd": default}
    cls = dataclass(frozen=True)(type("Odd", (), namespace))
    with pytest.raises(TypeError, match=message):
        resolve(cls, [], PROG)


# Text

TEXTS = st.text(st.characters(exclude_categories=["Cs"]))
SETTINGS = st.builds(
    Settings,
    env=TEXTS,
    learning_rate=st.floats(min_value=5e-324),
    batch_size=st.integers(-(2**63), 2),
    hidden=st.lists(st.integers(-(2**63), 2**63 - 1)).map(tuple),
    betas=st.lists(st.floats(allow_nan=False)).map(tuple),
    loss=st.sampled_from(["mse", "huber"]),
    order=st.sampled_from([1, 2]),
    run=st.none() | TEXTS.map(Path),
    seeds=st.none() | st.integers(0, 9),
    double=st.booleans(),
    replay=st.builds(Replay, st.integers(5, 9), st.booleans()),
)


@given(SETTINGS)
def test_text_comes_back_equal(settings):
    text = to_toml(settings, "first line\nsecond line")
    assert text.startswith("# first line\n# second line\n")
    again = from_toml(Settings, text.encode().decode())
    assert again == settings
    assert repr(again) == repr(settings)  # -0.0 and 0.0 are equal, and so are 1 and 1.0
    assert to_toml(again, "first line\nsecond line") == text


def test_a_text_is_held_to_the_config_too():
    with pytest.raises(BadConfig, match=r'"x" in runs/a/config.toml, line 2'):
        from_toml(Settings, "seeds = 3\nx = 2", source="runs/a/config.toml")
    with pytest.raises(BadConfig, match=r"learning_rate is 0\.0"):
        from_toml(Settings, "learning_rate = 0")


# Help

CHILD = """
import sys
from loopless.runs.config import resolve
from dataclasses import dataclass
@dataclass(frozen=True)
class Settings:
    '''What it does.'''
    learning_rate: float = 0.25
    '''Step size of the optimiser.'''
try:
    resolve(Settings, sys.argv[1:], "loopless train test")
finally:
    print([name for name in ("jax", "numpy", "torch", "tyro") if name in sys.modules])
"""


@pytest.mark.parametrize("arguments", [["--help"], []])
def test_reading_a_config_loads_no_array_library(tmp_path, arguments):
    script = tmp_path / "child.py"
    script.write_text(CHILD)
    done = subprocess.run(
        [sys.executable, script, *arguments], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "[]"
    if arguments:
        for word in ("loopless train test", "What it does.", "--config", "--learning-rate"):
            assert word in done.stdout
        assert "Step size of the optimiser. (default: 0.25)" in done.stdout
