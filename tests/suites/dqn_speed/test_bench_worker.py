"""A trainer in another process: it advances when told, has its cores, and ends with its parent."""

import os
import subprocess
import sys

import pytest

from loopless.bench.machine import ONE_THREAD_FLAG, THREAD_VARIABLES
from suites import processes
from suites.dqn_speed import slices
from suites.dqn_speed.slices import PPOTraining, Training

SMALL = Training(40, (6,), 8)
ROLLOUTS = PPOTraining(32, (6,), envs=2, horizon=8, epochs=1, minibatches=2)

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("case", [SMALL, ROLLOUTS], ids=lambda case: case.trainer)
def test_a_slice_is_made_there_and_counted_and_the_child_ends(case):
    with slices.Worker(case, {"mode": "hosted", "overlap": True}) as there:
        assert [there(), there()] == [4, 4]
        child = there._child
    assert child.returncode == 0


def test_agents_have_the_worker_s_cores():
    with slices.Worker(SMALL, {"mode": "compiled", "seeds": 4}) as there:
        assert there() == 4


def test_a_worker_that_dies_is_an_error():
    with pytest.raises(RuntimeError, match="exit code"), slices.Worker(SMALL, {"env": "None-v0"}):
        pass


def test_limits_on_threads_are_not_handed_on(monkeypatch):
    monkeypatch.setenv("XLA_FLAGS", f"--a=1 {ONE_THREAD_FLAG}")
    for name in THREAD_VARIABLES:
        monkeypatch.setenv(name, "1")
    found = processes.unlimited()
    assert not set(THREAD_VARIABLES) & set(found)
    assert found["XLA_FLAGS"] == "--a=1"


@pytest.mark.skipif(
    not hasattr(os, "sched_setaffinity") or (os.cpu_count() or 1) < 2, reason="two cores needed"
)
def test_a_child_of_a_pinned_process_can_have_two_cores():
    code = "import os; from suites.processes import use_cores; "
    code += "os.sched_setaffinity(0, [0]); use_cores(2); print(len(os.sched_getaffinity(0)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "2\n"
