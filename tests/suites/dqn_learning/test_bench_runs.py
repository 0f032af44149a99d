"""Runs as processes: made once, made anew if unfinished or changed, ended with the suite."""

import json
import os
import signal
import sys
import threading
import time
from dataclasses import asdict

import pytest

from loopless.bench.machine import ONE_THREAD_FLAG, THREAD_VARIABLES
from suites import processes
from suites.dqn_learning import runs
from suites.dqn_learning.runs import Outcome, RunFailed, Runs
from suites.dqn_learning.tasks import agent_job

JOB, OTHER = agent_job("cartpole"), agent_job("cartpole", seed=1)
CURVE = {"final": [500.0], "best": [500.0], "curve_steps": [1, 2], "curve_returns": [[3.0, 4.0]]}


@pytest.fixture
def made(tmp_path, monkeypatch):
    """Runs whose children are not started, and a list of what would have been."""
    started = []

    def child(self, job, core, *words):
        started.append((job.name, words))
        (self.folder / job.name).mkdir(exist_ok=True)
        return 1.5, json.dumps(CURVE)

    monkeypatch.setattr(Runs, "child", child)
    return tmp_path / "runs", started


def ended(folder, jobs=(JOB,), threads=1):
    return dict(Runs(folder, threads, "abc1234").outcomes(jobs))


def test_a_run_is_trained_then_evaluated_and_its_outcome_kept(made):
    folder, started = made
    outcome = ended(folder)[JOB]
    assert (outcome.final, outcome.curve_steps, outcome.command) == ([500.0], [1, 2], JOB.command)
    (_, training), (_, evaluating) = started
    assert training[:3] == ("loopless.cli", "train", "dqn")
    assert training[-4:] == ("--runs", str(folder), "--run", JOB.name)
    words = json.dumps([str(folder / JOB.name), 100])
    assert evaluating == ("suites.dqn_learning.runs:evaluate", words)
    kept = json.loads((folder / JOB.name / "outcome.json").read_text())
    assert kept == asdict(outcome)


def test_a_finished_run_is_not_made_again(made):
    folder, started = made
    first, count = ended(folder), len(started)
    assert ended(folder, [JOB, JOB]) == first
    assert len(started) == count


@pytest.mark.parametrize(
    "spoil",
    [
        lambda path: path.unlink(),
        lambda path: path.write_text("{"),
        lambda path: path.write_text("{}"),
        lambda path: path.write_text(path.read_text().replace("CartPole-v1", "Acrobot-v1")),
        lambda path: path.write_text(path.read_text().replace("--seed 0", "--seed 7")),
    ],
    ids=["unfinished", "torn", "foreign", "another preset", "another command"],
)
def test_any_other_is_made_anew(made, spoil):
    folder, started = made
    ended(folder)
    (folder / JOB.name / "left over").touch()
    spoil(folder / JOB.name / "outcome.json")
    ended(folder)
    assert [name for name, _ in started] == [JOB.name] * 4
    assert not (folder / JOB.name / "left over").exists()


def test_a_preset_that_is_not_there_is_a_failed_run(made):
    folder, started = made
    missing = agent_job("nothing")
    assert "Run this suite in a checkout" in str(ended(folder, [missing])[missing])
    assert not started


def scripted(monkeypatch, code):
    """Children run this instead, whatever they are told."""
    real = processes.subprocess.Popen
    monkeypatch.setattr(
        processes.subprocess,
        "Popen",
        lambda words, **options: real([sys.executable, "-c", code], **options),
    )


def test_a_child_that_fails_fails_its_run_alone_with_its_last_line(tmp_path, monkeypatch):
    scripted(monkeypatch, "import sys; print('first', 'last', sep='\\n', file=sys.stderr); exit(3)")
    found = ended(tmp_path / "runs", [JOB, OTHER])
    assert all(isinstance(one, RunFailed) for one in found.values())
    assert str(found[JOB]) == f"{JOB.name}: exit code 3: last"


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="this system cannot pin")
def test_a_child_has_one_core_and_one_thread(tmp_path, monkeypatch):
    code = "import os, json, time; time.sleep(0.3); print(json.dumps([len(os.sched_getaffinity(0)),"
    code += f" *(os.environ[name] for name in {THREAD_VARIABLES}), os.environ['XLA_FLAGS']]))"
    scripted(monkeypatch, code)
    _, printed = Runs(tmp_path, 1).child(JOB, min(os.sched_getaffinity(0)), "some_module")
    found = json.loads(printed)
    assert found[0] == 1
    assert found[1:5] == ["1"] * 4
    assert found[5].endswith(ONE_THREAD_FLAG)


@pytest.mark.slow
def test_interrupting_the_suite_ends_its_children(tmp_path, monkeypatch):
    scripted(monkeypatch, "import time; time.sleep(60)")
    suite = Runs(tmp_path / "runs", 1)
    threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT)).start()
    start = time.perf_counter()
    with pytest.raises(KeyboardInterrupt):
        list(suite.outcomes([JOB, OTHER]))
    assert time.perf_counter() - start < 30
    assert not suite._children
    assert not list((tmp_path / "runs").glob("*/outcome.json"))


def test_jobs_run_side_by_side_but_no_more_than_asked_for(made, monkeypatch):
    folder, _ = made
    running, most, lock = 0, [], threading.Lock()

    def child(self, job, core, *words):
        nonlocal running
        with lock:
            running += 1
            most.append((running, core))
        time.sleep(0.05)
        with lock:
            running -= 1
        (self.folder / job.name).mkdir(exist_ok=True)
        return 1.5, json.dumps(CURVE)

    monkeypatch.setattr(Runs, "child", child)
    monkeypatch.setattr(runs, "_cores", lambda: [4, 5])
    ended(folder, [agent_job("cartpole", seed=seed) for seed in range(4)], threads=2)
    assert max(count for count, _ in most) == 2
    assert {core for _, core in most} == {4, 5}


@pytest.mark.parametrize(("returns", "curves"), [([1.0, 2.0], [[1.0, 2.0]]), (
    [[1.0, 3.0], [2.0, 4.0]], [[1.0, 2.0], [3.0, 4.0]]
)])  # fmt: skip
def test_curves_are_read_from_the_log_an_agent_a_row(tmp_path, returns, curves):
    lines = [
        {"step": 10 * (i + 1), "time": 1.0, "kind": "eval", "eval_return": value}
        for i, value in enumerate(returns)
    ]
    lines.append({"step": 15, "time": 1.0, "kind": "train", "return_mean": 9.0})
    (tmp_path / "metrics.jsonl").write_text("".join(f"{json.dumps(x)}\n" for x in lines))
    found = runs.curves(tmp_path)
    assert found == {"curve_steps": [10, 20], "curve_returns": curves}


@pytest.mark.slow
def test_a_real_run_from_end_to_end(tmp_path, monkeypatch):
    monkeypatch.setattr(runs, "EPISODES", 3)
    job = agent_job("cartpole", "compiled", seeds=2, steps=100)
    outcome = ended(tmp_path / "runs", [job])[job]
    assert isinstance(outcome, Outcome), outcome
    assert len(outcome.final) == len(outcome.best) == len(outcome.curve_returns) == 2
    assert outcome.curve_steps == [100]
    assert all(8 <= score <= 500 for score in outcome.final)
    assert outcome.wall_s > 0
    assert outcome.commit == "abc1234"
