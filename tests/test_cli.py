"""The `loopless` command from the outside: exit codes, messages, and what it does not import."""

import os
import subprocess
import sys

import pytest

from loopless import __version__
from loopless.bench.command import bench
from loopless.bench.result import Measurement, load
from loopless.bench.suites import Options, Suite


def loopless(*arguments, cwd=None):
    command = [sys.executable, "-m", "loopless.cli", *arguments]
    return subprocess.run(command, capture_output=True, text=True, cwd=cwd, timeout=60)


def run_fake(tmp_path, suite, **options):
    """`loopless bench` in this process, with a suite of ours and left on all cores."""
    asked = Options(json=tmp_path / "result.json", **options)
    return bench(asked, find_suite=lambda name: Suite(suite, {}), isolate=lambda threads: None)


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
    for option in ("SUITE", "--quick", "--json", "--threads", "--no-peers", "--ablate"):
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
                "unknown suite 'xyz'. There are: returns, replay, q_learning, dqn_speed, "
                "dqn_learning, ppo_speed, ppo_learning, avatarl, avatarl_learning, allo_speed, "
                "allo_learning."
            ),
        ),
        (("bench", "--threads", "0"), "--threads is 0"),
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


@pytest.mark.parametrize("arguments", [("train-the-cat",), ("bench", "--fast"), ()])
def test_what_the_parser_refuses_has_exit_code_2(arguments):
    assert loopless(*arguments).returncode == 2


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
