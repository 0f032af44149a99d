"""`loopless demo`: parts that fail alone, a state that is whole after Ctrl-C, a page at the end."""

import json
import os
import signal
import sys
from itertools import pairwise

import pytest

from loopless import demo
from loopless.bench.result import Measurement, Result, save

VERDICT = {
    "function": "wrong:gae", "claim": "gae", "called": {}, "how": "NumPy", "findings": [],
    "diagnosis": ["Treats truncation as termination."], "notes": [], "failing": None,
    "timing": None, "ratio": 24.3,
}  # fmt: skip
LOG = [
    {"step": 1000, "time": 1.0, "kind": "eval", "eval_return": 499.5},
    {"step": 1000, "time": 2.0, "kind": "event", "event": "end", "message": ""},
]


def _fake(arguments):
    """What each command leaves behind, without its work."""
    from pathlib import Path

    kind, first = arguments[:2]
    after = dict(pairwise(arguments))
    if first == os.environ.get("BROKEN"):
        sys.exit("it broke")
    if kind == "verify":
        Path(after["--json"]).write_text(json.dumps(VERDICT))
        sys.exit(1)
    if kind == "bench":
        rows = [Measurement("shapes", "2×3", "us", "loopless", "ours", value=1e-5),
                Measurement("shapes", "2×3", "loop", "plain", "reference", value=1e-3)]  # fmt: skip
        save(Result(first, {"threads": 1}, {}, rows), Path(after["--json"]))
    if kind == "train":
        run = Path(after["--runs"]) / after["--run"]
        run.mkdir(parents=True)
        (run / "run.json").write_text(json.dumps({"format": 1, "trainer": first}))
        (run / "config.toml").write_text('env = "CartPole-v1"\n')
        (run / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in LOG))
        if first == os.environ.get("STOPPED"):
            os.kill(os.getppid(), signal.SIGINT)
            signal.sigwait({signal.SIGINT, signal.SIGTERM})
            sys.exit(f"Saved. `loopless resume {run}` continues.")
    if kind == "sample":
        print("def f(x):\n    return x")


def command(*arguments):
    """This file, in place of `loopless`."""
    return [sys.executable, __file__, *arguments]


@pytest.fixture
def at(tmp_path):
    return tmp_path / "here"


def test_everything_goes_well(at, capsys):
    assert demo.demo((), at, command) == 0
    said = capsys.readouterr().out
    for words in (
        "Treats truncation as termination. Ours is 24× faster.",
        "2 measurements, 100× to 100×",
        "evaluation return 499.5 after 1k steps",
        "“def f(x): return x”",
        "8 of 8 parts",
        "report.html",
    ):
        assert words in " ".join(said.split())
    page = (at / "report.html").read_text()
    for words in ("loopless demo", "suite-returns", "wrong:gae", "return x", "after def"):
        assert words in page


@pytest.mark.parametrize("name", ["returns", "ppo", "loopless.verify.wrong.gae:termination_only"])
def test_a_part_that_fails_says_so_and_sinks_nothing(at, capsys, monkeypatch, name):
    monkeypatch.setenv("BROKEN", name)
    assert demo.demo(("verify", "returns", "dqn", "ppo"), at, command) == 1
    said = capsys.readouterr().out
    assert "it broke" in said
    assert "3 of 4 parts" in said
    assert (at / "report.html").is_file()


def test_control_c_leaves_a_whole_state_and_says_how_it_goes_on(at, capsys, monkeypatch):
    monkeypatch.setenv("STOPPED", "dqn")
    before = dict(os.environ)
    assert demo.demo(("verify", "dqn", "ppo"), at, command) == 130
    said = " ".join(capsys.readouterr().out.split())
    assert "1 of 3 parts" in said
    assert "Saved. `loopless resume" in said
    assert "Interrupted" in said
    assert not (at / "runs" / "ppo").exists()
    assert "499.5" in (at / "report.html").read_text()
    assert dict(os.environ) == before


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (("pppo",), "there is no part 'pppo'. Did you mean 'ppo'?"),
        (("sample",), "Name both"),
    ],
)
def test_what_cannot_be_is_refused_before_anything_starts(at, capsys, names, message):
    assert demo.demo(names, at, pytest.fail) == 2
    assert message in capsys.readouterr().err
    assert not at.exists()


def test_a_folder_that_holds_something_is_refused(at, capsys):
    at.mkdir()
    (at / "mine.txt").write_text("mine")
    assert demo.demo((), at, pytest.fail) == 2
    assert "is there already" in capsys.readouterr().err


def test_without_a_folder_each_demo_has_the_next_number(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert [demo.demo(("verify",), None, command) for _ in range(2)] == [0, 0]
    assert sorted(path.name for path in (tmp_path / "demo-results").iterdir()) == ["0", "1"]


def test_every_command_of_the_demo_is_one_that_there_is(at):
    """The arguments are refused by nobody, as far as the parsers go."""
    from loopless.runs import config as configs
    from loopless.train import registry

    for name, piece in demo.pieces().items():
        arguments = list(piece.arguments(at))
        if arguments[0] == "train":
            config = configs.resolve(registry.config_class(arguments[1]), arguments[2:], name)
            assert config.problems() == []


def test_an_installed_copy_leaves_out_the_races_and_says_so(at, monkeypatch, capsys):
    monkeypatch.setattr(demo, "suite_names", lambda: ())
    assert demo.demo(["verify"], at, command) == 0
    assert "The races (returns, q_learning) are left out" in capsys.readouterr().err
    assert demo.demo(["returns"], at, command) == 2
    assert "there is no part 'returns'" in capsys.readouterr().err


if __name__ == "__main__":
    _fake(sys.argv[1:])
