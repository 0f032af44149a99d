"""The `loopless` command from the outside: exit codes, messages, and what it does not import."""

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from loopless import __version__, cli
from loopless.bench.command import bench
from loopless.bench.result import Measurement, load
from loopless.bench.suites import Options, names
from loopless.runs.config import flags


def loopless(*arguments, cwd=None):
    command = [sys.executable, "-m", "loopless.cli", *arguments]
    return subprocess.run(command, capture_output=True, text=True, cwd=cwd, timeout=60)


def run_fake(tmp_path, suite, **options):
    """`loopless bench` in this process, with a suite of ours and left on all cores."""
    asked = Options(json=tmp_path / "result.json", **options)
    return bench(
        asked,
        load_suite=lambda name: SimpleNamespace(run=suite, TITLES={}),
        isolate=lambda threads: None,
    )


def one_row(result, status="ok"):
    row = Measurement("shapes", "2×3", "ours", "loopless", "ours", value=1.0, status=status)
    result.measurements.append(row)


def test_help_names_the_subcommands():
    done = loopless("--help")
    assert done.returncode == 0
    assert "bench" in done.stdout


@pytest.mark.parametrize("asked", ["--help", "--version"])
def test_a_reader_that_leaves_gets_no_traceback(asked):
    """As in `loopless … | head -1`."""
    reading, writing = os.pipe()
    os.close(reading)
    command = [sys.executable, "-m", "loopless.cli", asked]
    done = subprocess.run(command, stdout=writing, stderr=subprocess.PIPE, text=True, timeout=60)
    os.close(writing)
    assert "Traceback" not in done.stderr


def test_help_of_bench_names_every_option():
    done = loopless("bench", "--help")
    assert done.returncode == 0
    for option in ("SUITES", "--quick", "--json", "--threads", "--no-peers", "--ablate", *names()):
        assert option in done.stdout


def test_version():
    done = loopless("--version")
    assert (done.returncode, done.stdout) == (0, f"loopless {__version__}\n")


def test_help_imports_no_array_library():
    code = (
        "import sys\n"
        "from loopless.cli import main\n"
        "try:\n    main(['--help'])\nexcept SystemExit:\n    pass\n"
        "heavy = {'numpy', 'numba', 'torch', 'jax'} & set(sys.modules)\n"
        "sys.exit(','.join(sorted(heavy)) or 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("bench", "retruns"), "unknown suite 'retruns'. Did you mean 'returns'?"),
        (
            ("bench", "xyz"),
            (
                "unknown suite 'xyz'. There are: returns, replay, q_learning, own_code, dqn_speed, "
                "dqn_learning, ppo_speed, ppo_learning, avatarl, avatarl_learning, allo_speed, "
                "allo_learning, felt, pictures."
            ),
        ),
        (("bench", "--threads", "0"), "--threads must be from 1 to "),
        (("bench", "--json", "."), "--json . is a folder"),
        (("bench", "--json", "taken/result.json"), "cannot make the folder"),
    ],
)
def test_bad_requests_get_one_line_and_exit_code_2(arguments, message, tmp_path):
    (tmp_path / "taken").write_text("a file")
    done = loopless(*arguments, cwd=tmp_path)
    assert done.returncode == 2
    assert message in done.stderr
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    ("arguments", "messages"),
    [
        (["trian"], ["there is no command 'trian'. Did you mean 'train'?"]),
        (["x"], ["there is no command 'x'. There are: train, resume,"]),
        ([], ["name a command."]),
        (["bench", "--quik"], ["unknown flag --quik. Did you mean --quick?"]),
        (
            ["play", "--episodes", "x"],
            ["--episodes must be an integer; received 'x'", "RUN is missing"],
        ),
        (
            ["resume", "a", "b", "--steps"],
            ["--steps must be an integer or None; received no value", "unexpected 'b'"],
        ),
        (["verify", "a:b", "--library", "jaks"], ['one of "numpy", "torch", "jax"']),
    ],
)
def test_all_mistakes_of_a_command_line_are_named_with_exit_code_2(arguments, messages, capsys):
    assert cli.main(arguments) == 2
    error = capsys.readouterr().err
    assert all(message in error for message in messages)
    assert len(error.splitlines()) == len(messages)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--quick", "returns"], {"suites": ("returns",), "quick": True}),
        (["a", "--threads", "2", "b"], {"suites": ("a", "b"), "threads": 2}),
        (
            ["a", "--no-peers", "--json=x.json"],
            {"suites": ("a",), "peers": False, "json": Path("x.json")},
        ),
    ],
)
def test_words_may_stand_before_and_after_flags(arguments, expected):
    """A flag takes as many words as it has values; the rest are the command's own words."""
    values, problems = flags.read(flags.of_function(cli.bench), arguments)
    assert problems == []
    assert values == expected


@pytest.mark.parametrize("name", cli.COMMANDS)
def test_every_word_and_flag_of_a_command_is_explained(name):
    listed = flags.of_function(cli.COMMANDS[name])
    assert [flag.name for flag in listed if not flag.text] == []


def test_a_right_run_is_0_and_writes_the_result(tmp_path, capsys):
    code = run_fake(tmp_path, lambda options, result, say: one_row(result), threads=1)
    assert code == 0
    found = load(tmp_path / "result.json")
    assert found.measurements[0].contender == "ours"
    assert found.settings["threads"] == 1
    assert "result.json" in capsys.readouterr().out


def test_our_disagreement_is_1(tmp_path):
    assert run_fake(tmp_path, lambda options, result, say: one_row(result, "disagrees")) == 1


def test_ctrl_c_is_130_with_the_rows_so_far(tmp_path, capsys):
    def suite(options, result, say):
        one_row(result)
        raise KeyboardInterrupt

    assert run_fake(tmp_path, suite) == 130
    found = load(tmp_path / "result.json")
    assert found.interrupted
    assert len(found.measurements) == 1
    assert "Interrupted" in capsys.readouterr().out


def test_an_error_in_a_suite_is_not_hidden_and_loses_no_rows(tmp_path):
    def suite(options, result, say):
        one_row(result)
        raise RuntimeError("broken")

    with pytest.raises(RuntimeError, match="broken"):
        run_fake(tmp_path, suite)
    assert len(load(tmp_path / "result.json").measurements) == 1
