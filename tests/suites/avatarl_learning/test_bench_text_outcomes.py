"""Runs on text as processes: trained, read, and none of them twice."""

import json
from dataclasses import asdict

import pytest

from suites.avatarl_learning.suite import STUDENTS, read_log
from suites.dqn_learning.runs import RunFailed, Runs

(JOB,) = STUDENTS[0].jobs(seeds=1)
CORPUS = {"name": "some text", "bytes": 12, "sha256": "ab"}
LOG = [
    {"kind": "train", "step": 50, "tokens": 5, "tokens_per_second": 1.0},
    {"kind": "eval", "step": 50, "tokens": 5, "validation_loss": 4.0},
    {"kind": "train", "step": 100, "tokens": 10, "tokens_per_second": 90.0},
    {"kind": "train", "step": 150, "tokens": 15, "tokens_per_second": 110.0},
    {
        "kind": "eval", "step": 150, "tokens": 15, "validation_loss": 3.0,
        "validation_per_character": 1.5, "critic_loss": 2.0,
    },
]  # fmt: skip


def write(path, log):
    (path / "data").mkdir(parents=True, exist_ok=True)
    (path / "data" / "dataset.json").write_text(json.dumps({"corpus": CORPUS}))
    (path / "metrics.jsonl").write_text(
        "".join(json.dumps({"time": 0.0, **row}) + "\n" for row in log)
    )


@pytest.fixture
def made(tmp_path, monkeypatch):
    """Runs whose children are not started, and a list of what would have been."""
    started = []

    def child(self, job, core, *words):
        started.append(words)
        write(self.folder / job.name, LOG)
        if words[0] == "loopless.cli":
            return 1.5, ""
        return 0.1, json.dumps(read_log(*json.loads(words[1])))

    monkeypatch.setattr(Runs, "child", child)
    return tmp_path / "runs", started


def ended(folder):
    return dict(Runs(folder, 1, "abc1234", read_log).outcomes([JOB]))[JOB]


def test_a_run_is_trained_and_its_outcome_kept(made):
    folder, started = made
    outcome = ended(folder)
    training, reading = started
    assert training[:3] == ("loopless.cli", "train", "avatarl")
    assert training[training.index("--critic") + 1] == str(folder / "critic")
    assert reading[0] == "suites.avatarl_learning.suite:read_log"
    (final,) = outcome.final
    assert final == {"validation_loss": 3.0, "validation_per_character": 1.5, "critic_loss": 2.0}
    assert (outcome.curve_steps, outcome.curve_returns) == ([5, 15], [[4.0, 3.0]])
    expected = {"tokens_per_s": 100.0, "corpus": CORPUS}
    assert outcome.details == expected
    assert json.loads((folder / JOB.name / "outcome.json").read_text()) == asdict(outcome)


def test_a_finished_run_is_not_made_again(made):
    folder, started = made
    first = ended(folder)
    assert ended(folder) == first
    assert len(started) == 2


@pytest.mark.parametrize("spoil", ["command", "settings", "torn"])
def test_a_changed_or_torn_outcome_is_made_anew(made, spoil):
    folder, started = made
    ended(folder)
    file = folder / JOB.name / "outcome.json"
    kept = json.loads(file.read_text())
    file.write_text("{" if spoil == "torn" else json.dumps(kept | {spoil: "another"}))
    ended(folder)
    assert len(started) == 4


def test_a_run_without_a_validation_has_failed(made, monkeypatch):
    monkeypatch.setitem(globals(), "LOG", LOG[:1])
    outcome = ended(made[0])
    assert isinstance(outcome, RunFailed)
    assert "no validation" in str(outcome)
