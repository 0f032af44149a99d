"""The suite `felt`: how rows are judged, and when a log says that the task is solved."""

import os
import subprocess
import sys

import pytest

from suites.felt import suite
from suites.felt.suite import FIRST, OTHER, SB3, SECOND, Start


def rows_of(trainer, **costs):
    names = {"first": FIRST, "second": SECOND, "other": OTHER, "sb3": SB3}
    return [
        suite._row(trainer, names[key], [Start(cost + n, 1.0, 5_000) for n in (-1, 0, 1)])
        for key, cost in costs.items()
    ]


def test_the_bars_are_judged_by_the_medians():
    rows = suite.judge("ppo", rows_of("ppo", first=9.0, second=3.0, other=4.0, sb3=8.0))
    judged = {row.contender: [target.met for target in row.targets] for row in rows}
    assert judged == {FIRST: [False], SECOND: [True, True], OTHER: [True, False], SB3: []}


def test_without_sb3_its_bars_are_not_judged_and_dqn_has_none():
    rows = suite.judge("ppo", rows_of("ppo", first=9.0, second=3.0))
    assert [target.met for row in rows for target in row.targets] == [None, None, True]
    rows = suite.judge("dqn", rows_of("dqn", first=9.0, sb3=3.0))
    assert [(target.met, target.measured) for target in rows[0].targets] == [(None, 3.0)]


def test_a_seed_that_did_not_solve_it_fails_the_row():
    row = suite._row("ppo", FIRST, [Start(1.0, 1.0, 5_000), Start(9.0, 9.0, 0)])
    assert row.status == "failed"
    assert "1 seeds did not solve it" in row.reason


def test_the_log_says_when_it_was_solved(tmp_path):
    log = tmp_path / "metrics.jsonl"
    assert suite._solved_at(log) == 0
    log.write_text('{"step": 5000, "eval_return": 474.9}\n{"step": 10000, "eval_return": 475.0}\n{')
    assert suite._solved_at(log) == 10_000


@pytest.mark.skipif(not os.path.exists("/proc/self/task"), reason="reads /proc")
def test_the_time_of_children_counts():
    burn = "import time\nwhile time.process_time() < 0.15: pass\n"
    script = f"import subprocess, sys, time\nsubprocess.run([sys.executable, '-c', {burn!r}])\n"
    with subprocess.Popen([sys.executable, "-c", script + "print(1, flush=True)\ntime.sleep(60)"],
                          stdout=subprocess.PIPE) as child:  # fmt: skip
        assert child.stdout.readline()
        spent = suite._cpu_seconds(child.pid)
        child.kill()
    assert spent >= 0.15
    assert suite._cpu_seconds(child.pid) == 0.0
