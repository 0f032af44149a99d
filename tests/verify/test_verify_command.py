"""`loopless verify` from the outside: exit codes, messages, the table, and the JSON for CI."""

import json
import re
import sys

import pytest

from loopless.cli import main
from loopless.verify.judge import known_claims
from loopless.verify.verdicts import DIFFERS, Finding, Report, Timing

MINE = '''
"""A user's file."""
import numpy as np
from loopless.reference import gae as loop

NUMBER = 3

def right(rewards, values, next_values, terminated, truncated, gamma, lam):
    fields = rewards, values, next_values, terminated, truncated
    return loop(*fields, gamma=gamma, lambda_=lam)

def mine(a, values, dones, last_value, gamma, lam):
    advantages, last = np.zeros_like(a), 0.0
    for t in reversed(range(len(a))):
        following = last_value if t == len(a) - 1 else values[t + 1]
        delta = a[t] + gamma * following * (1 - dones[t]) - values[t]
        advantages[t] = last = delta + gamma * lam * (1 - dones[t]) * last
    return advantages
'''


@pytest.fixture
def folder(tmp_path, monkeypatch):
    (tmp_path / "my_code.py").write_text(MINE)
    (tmp_path / "broken.py").write_text("import a_module_that_is_nowhere\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.path", [*sys.path])
    return tmp_path


def verify(*words):
    return main(["verify", *words, "--cases", "30"])


def test_a_right_function_is_0_and_is_timed(folder, capsys):
    assert verify("my_code.py:right", "--as", "gae") == 0
    out = capsys.readouterr().out
    assert re.search(r"equal on 3\d cases; ours is [\d,.]+× faster at 128×64", out)


def test_a_wrong_function_is_1_with_table_and_diagnosis(folder, capsys):
    assert verify("my_code:mine", "--as", "gae", "--map", "a=rewards", "--no-timing") == 1
    out = capsys.readouterr().out
    assert "Diagnosis: Treats truncation as termination" in out
    assert "cannot be told from termination" in out
    assert "your advantages" in out
    assert "right advantages" in out
    assert "←" in out


def test_json_holds_what_the_screen_shows(folder, capsys):
    words = ("my_code:mine", "--as", "gae", "--map", "a=rewards", "--no-timing")
    assert verify(*words, "--json", "-") == 1
    report = json.loads(capsys.readouterr().out)
    assert report["equal"] is False
    assert report["diagnosis"][0].startswith("Treats truncation as termination")
    assert report["called"]["a"] == "rewards"
    assert {"name", "status", "cases", "wrong", "words"} <= report["findings"][0].keys()
    assert len(report["failing"]["rows"]) == len(report["failing"]["wrong"])


def test_json_can_be_a_file(folder):
    assert verify("my_code:right", "--as", "gae", "--no-timing", "--json", "report.json") == 0
    report = json.loads((folder / "report.json").read_text())
    assert report["equal"] is True
    assert report["failing"] is None


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("my_code.py:right",), "say what it is with --as NAME. There are: gae, "),
        (("my_code.py:right", "--as", "gea"), "unknown --as 'gea'. Did you mean 'gae'?"),
        (("my_code.py:rigth", "--as", "gae"), "has no 'rigth'. Did you mean 'right'?"),
        (("my_code.py:NUMBER", "--as", "gae"), "is a int, and cannot be called"),
        (("my_code.py", "--as", "gae"), "names no function"),
        (("nowhere.py:f", "--as", "gae"), "there is no file nowhere.py"),
        (("nowhere:f", "--as", "gae"), "there is no module 'nowhere' here"),
        (("broken:f", "--as", "gae"), "No module named 'a_module_that_is_nowhere'"),
        (("my_code:mine", "--as", "gae"), "cannot tell what 'a' of its parameters"),
        (("my_code:right", "--as", "gae", "--map", "lam"), "write --map NAME=VALUE"),
        (("my_code:right", "--as", "gae", "--fix", "gamma=x"), "'x' is not a number"),
        (
            ("my_code:right", "--as", "gae", "--seconds", "0"),
            "--seconds must be above 0; received 0",
        ),
        (("my_code:right", "--as", "gae", "--json", "."), "--json . is a folder"),
        (("my_code:right", "--as", "gae", "--layout", "x"), "--layout x is none of gae's"),
    ],
)
def test_bad_requests_get_one_line_and_exit_code_2(folder, capsys, words, message):
    assert verify(*words) == 2
    error = capsys.readouterr().err
    assert message in error
    assert len(error.splitlines()) == 1


def test_help_names_every_claim(capsys):
    assert main(["verify", "--help"]) == 0
    out = capsys.readouterr().out
    assert [name for name in known_claims() if name not in out] == []


def test_the_last_line_says_who_is_faster():
    from loopless.verify.verdicts import verdict

    report = Report("f", "gae", {}, "NumPy", [Finding("terminations", DIFFERS, 10, 3)])
    assert verdict(report) == "differs: terminations."
    report.findings[0].status = "agrees"
    report.timing = Timing("128×64", 21.2e-3, 100e-6)
    line = verdict(report)
    assert line == "equal on 10 cases; ours is 212× faster at 128×64 (21.2 ms and 100 µs)."
    report.timing = Timing("128×64", 50e-6, 100e-6)
    assert "yours is 2× faster" in verdict(report)
