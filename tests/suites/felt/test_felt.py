"""The suite `felt`: how rows are judged, and when a log says that the task is solved."""

import os
import subprocess
import sys
import time

import pytest

from loopless.bench.result import Result
from loopless.bench.suites import Options
from loopless.runs.config import resolve
from loopless.train import registry
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


@pytest.mark.parametrize("quick", [False, True])
def test_every_contender_starts_with_every_seed_on_a_core_of_its_own(monkeypatch, quick):
    busy, cores, commands = set(), set(), []

    def watch(command, environment, core, log=None):
        assert core not in busy
        busy.add(core)
        commands.append(command)
        cores.add(core)
        time.sleep(0.001)
        busy.remove(core)
        return Start(float(len(commands)), 1.0, 5_000)

    monkeypatch.setattr(suite, "_watch", watch)
    monkeypatch.setattr(suite, "find_spec", lambda module: module)
    monkeypatch.setattr(os, "cpu_count", lambda: 4)
    result = Result("felt", {}, {})
    suite.run(Options(quick=quick), result, lambda text: None)
    seeds, trainers = (1, ["ppo"]) if quick else (5, ["ppo", "dqn"])
    assert [(row.section, row.contender) for row in result.measurements] == [
        (trainer, name)
        for trainer in trainers
        for name in (FIRST, SECOND, OTHER, SB3, "SBX", "rejax")
    ]
    assert {row.samples for row in result.measurements} == {seeds}
    assert len(commands) == len(trainers) * 6 * seeds
    assert cores == ({3} if quick else {2, 3})


def test_what_a_contender_raises_ends_the_suite(monkeypatch):
    def watch(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(suite, "_watch", watch)
    with pytest.raises(KeyboardInterrupt):
        suite.run(Options(), Result("felt", {}, {}), lambda text: None)


@pytest.mark.parametrize("trainer", suite.TITLES)
def test_the_flags_are_settings_of_the_trainer(trainer):
    flags = [*suite.FLAGS[trainer].split(), "--learning-rate", suite.RATES[trainer]]
    config = resolve(registry.config_class(trainer), flags, "felt")
    assert config.learning_rate == float(suite.RATES[trainer])
