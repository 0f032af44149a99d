"""Our native code against plain XLA: who is raced, in which environment, and what is stated."""

import contextlib

import pytest

from loopless.arrays.xla_cpu import PARTS, VARIABLE
from loopless.bench.contest import Contest
from loopless.bench.result import Result
from loopless.bench.timing import Budget
from suites.dqn_speed import slices
from suites.dqn_speed.slices import NATIVE, NATIVE_PARTS, PLAIN_XLA, Training

SHORT = Budget(sample_s=0.0, total_s=1e-3, most_samples=2)
CASE = Training(40, (6,), 8)


def race(case=CASE, **changes):
    result = Result("dqn_speed", {})
    contest = Contest(result, SHORT, lambda _: None)
    slices.measure_native(case, contest, case.steps, changes)
    return {row.contender: row for row in result.measurements}


@pytest.fixture
def started(monkeypatch):
    """Workers that are not started, and a list of what would have been."""
    made = []

    def worker(case, changes, native):
        made.append((changes, native))
        return contextlib.nullcontext(lambda: case.gradient_steps)

    monkeypatch.setattr(slices, "Worker", worker)
    return made


def test_a_trainer_runs_with_our_native_code_and_without(started):
    rows = race(mode="compiled")
    assert [native for _, native in started] == list(NATIVE_PARTS.values())
    assert all(changes == {"mode": "compiled"} for changes, _ in started)
    assert {row.status for row in rows.values()} == {"ok"}
    assert rows[NATIVE].unit == "steps/s"
    assert len(rows[NATIVE].targets) == 1
    assert PLAIN_XLA in rows[NATIVE].targets[-1].target
    assert set(NATIVE_PARTS.values()) == {"0", "1"}
    assert set(PARTS) == {"product", "avatarl"}  # so that a trainer without AvataRL differs in one


def test_a_run_that_does_not_learn_is_noticed(monkeypatch, started):
    monkeypatch.setattr(
        slices, "Worker", lambda *_: contextlib.nullcontext(lambda: CASE.gradient_steps - 1)
    )
    assert {row.status for row in race().values()} == {"disagrees"}


@pytest.mark.slow
def test_a_worker_has_the_setting_and_one_core(monkeypatch):
    seen = {}
    real = slices.subprocess.Popen

    def popen(words, **options):
        seen.update(options["env"])
        return real(words, **options)

    monkeypatch.setattr(slices.subprocess, "Popen", popen)
    with slices.Worker(CASE, {"mode": "compiled"}, "0") as there:
        assert there() == CASE.gradient_steps
    assert (seen[VARIABLE], seen["OMP_NUM_THREADS"]) == ("0", "1")
