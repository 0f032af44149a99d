"""Environments in worker processes: the same experience, and nothing left behind."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from support import scripted_envs  # noqa: F401

from loopless.envs import EnvError, HostedEnvs

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(os.name != "posix", reason="workers need POSIX"),
]
NAMES = ("obs", "action", "reward", "next_obs", "terminated", "truncated", "valid")
PATIENCE_S = 20


def is_running(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def all_gone(pids):
    """Return whether these processes end by themselves before long."""
    deadline = time.monotonic() + PATIENCE_S
    while any(map(is_running, pids)) and time.monotonic() < deadline:
        time.sleep(0.02)
    return not any(map(is_running, pids))


def pids_of(world):
    return [process.pid for process in world._loop._processes]


def test_workers_give_what_one_process_gives():
    env_id, envs, workers = "tests/Scripted-v0", 3, 2
    table = np.random.default_rng(0).integers(0, 5, (24, envs))
    blocks, restarted = [], []
    for options in ({}, {"vectorization": "async", "workers": workers}):
        with HostedEnvs(env_id, envs, seed=9, **options) as world:
            numbers = iter(table)
            blocks.append(world.collect(lambda obs: next(numbers), 24))  # noqa: B023
            world.restart(3)
            restarted.append(world.step([0] * envs))
    for name in NAMES:
        ours, plain = (getattr(block, name) for block in reversed(blocks))
        np.testing.assert_array_equal(ours, plain, err_msg=name)
    for ours, plain in zip(*(block.episodes for block in blocks), strict=True):
        np.testing.assert_array_equal(ours, plain)
    for ours, plain in zip(*restarted, strict=True):
        np.testing.assert_array_equal(ours, plain)


def test_pictures_pass_through_shared_memory():
    with HostedEnvs("loopless/Pixels-v0", 2, vectorization="async", workers=1) as world:
        block = world.collect(lambda obs: np.array([1, 2]), 3)
        assert block.obs.dtype == np.uint8
        assert (block.all_obs.sum((2, 3)) == [4 * 255, 4 * 255, 0]).all()
        pids = pids_of(world)
        assert all(map(is_running, pids))
    assert all_gone(pids)
    world.close()


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ("raise", r"(?s:Traceback.*)OSError: the simulator is out of paper\n.*environment 0"),
        ("die", r"tests/Bad-v0, environments 0 to 0: the worker process died \(exit code -9\)"),
    ],
)
def test_what_goes_wrong_in_a_worker_is_told_here(how, words, capfd):
    kwargs = {"how": how, "at": 1}
    world = HostedEnvs("tests/Bad-v0", 1, vectorization="async", env_kwargs=kwargs)
    with pytest.raises(EnvError, match=words):
        world.collect(lambda obs: np.zeros(1, int), 3)
    assert all_gone(pids_of(world))
    assert capfd.readouterr() == ("", "")


def test_an_environment_that_cannot_be_made_is_told_before_any_process_starts():
    with pytest.raises(EnvError, match="cannot be made in another process"):
        HostedEnvs(
            "tests/Bad-v0", 1, vectorization="async", env_kwargs={"how": "reward", "number": 1j}
        )


PARENT = """
import signal, numpy as np
{before}
from loopless.envs import HostedEnvs
world = HostedEnvs("CartPole-v1", 2, vectorization="async", workers=2)
step = lambda: world.collect(lambda obs: np.zeros(2, int), 5)
step()
print(*[process.pid for process in world._loop._processes], flush=True)
{then}
"""
ENDLESS = "while True: step()"
ASKED = """
asked = []
signal.signal(signal.SIGINT, lambda *_: asked.append(1))
signal.signal(signal.SIGTERM, lambda *_: asked.append(1))
"""
GRACEFUL = """
while not asked: step()
step()
print("saved", flush=True)
"""


def start_parent(then, before=""):
    """Start a process with two workers; return it and their numbers once it steps them."""
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT.format(then=then, before=before)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    return parent, [int(word) for word in parent.stdout.readline().split()]


def test_an_interrupt_of_the_terminal_ends_the_workers_without_their_tracebacks():
    parent, workers = start_parent(ENDLESS)
    assert parent.pid not in map(os.getpgid, workers)
    os.killpg(parent.pid, signal.SIGINT)  # what Ctrl-C does: the foreground group
    _, errors = parent.communicate(timeout=PATIENCE_S)
    assert len(workers) == 2
    assert all_gone(workers)
    assert errors.count("Traceback") == 1
    assert errors.strip().endswith("KeyboardInterrupt")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_parent_that_wants_to_finish_its_work_keeps_its_workers(number):
    parent, workers = start_parent(GRACEFUL, ASKED)
    for pid in [*workers, parent.pid]:  # what a scheduler does: every process of the job
        os.kill(pid, number)
    output, errors = parent.communicate(timeout=PATIENCE_S)
    assert (output, errors) == ("saved\n", "")
    assert parent.returncode == 0
    assert all_gone(workers)


def test_workers_do_not_outlive_a_parent_that_was_killed():
    parent, workers = start_parent(ENDLESS)
    parent.kill()
    parent.communicate(timeout=PATIENCE_S)
    assert all_gone(workers)


HUNG = """
import signal, sys, threading, time, numpy as np
import support.scripted_envs
from loopless.envs import HostedEnvs
from loopless.runs.signals import StopSignals
kwargs = {{"how": "{how}", "at": 0}}
world = HostedEnvs("tests/Bad-v0", 1, vectorization="async", env_kwargs=kwargs)
pid = world._loop._processes[0].pid
threading.Timer(0.5, lambda: print(pid, flush=True)).start()
with StopSignals():
    world.collect(lambda obs: np.zeros(1, int), 1)
"""


def start_hung(how):
    """Start a process whose worker hangs; return it and the worker's number."""
    path = str(Path(__file__).parents[2])
    parent = subprocess.Popen(
        [sys.executable, "-c", HUNG.format(how=how)],
        env=os.environ | {"PYTHONPATH": os.pathsep.join([path, os.environ.get("PYTHONPATH", "")])},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
    )
    assert parent.stdout is not None
    return parent, int(parent.stdout.readline())


def test_a_worker_that_hangs_ends_with_its_trainer():
    (killed, sleeping), (interrupted, holding) = start_hung("sleep"), start_hung("hold the lock")
    assert is_running(sleeping)
    assert is_running(holding)
    killed.kill()
    interrupted.send_signal(signal.SIGINT)
    time.sleep(0.3)
    interrupted.send_signal(signal.SIGINT)
    assert (killed.wait(PATIENCE_S), interrupted.wait(PATIENCE_S)) == (-9, 130)
    assert all_gone([sleeping, holding])
    killed.communicate()
    interrupted.communicate()


def test_a_worker_that_hangs_outside_python_is_ended_after_the_limit(monkeypatch):
    monkeypatch.setattr("loopless.envs.hosted.workers.PATIENCE_S", 0.2)
    kwargs = {"how": "hold the lock", "at": 1}
    options = {"vectorization": "async", "workers": 1, "step_timeout": 0.1}
    world = HostedEnvs("tests/Bad-v0", 2, env_kwargs=kwargs, **options)
    with pytest.raises(EnvError, match=r"environments 0 to 1: no answer within step_timeout=0\.1"):
        world.collect(lambda obs: np.zeros(2, int), 3)
    assert all_gone(pids_of(world))


def test_a_parent_that_forgets_to_close_says_nothing():
    parent, workers = start_parent("")
    output, errors = parent.communicate(timeout=PATIENCE_S)
    assert (output, errors, parent.returncode) == ("", "", 0)
    assert all_gone(workers)
