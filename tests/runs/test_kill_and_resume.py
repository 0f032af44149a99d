"""All parts together: killed, stopped, damaged and resumed, a run ends as if left alone."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest

pytestmark = pytest.mark.slow  # it starts processes

# A trainer in miniature, the way the real ones use these parts.
TRAINER = """
import signal, sys
from dataclasses import dataclass
from pathlib import Path
import numpy as np
from loopless.runs.checkpoint import BackgroundSaver
from loopless.runs.checkpoint import Checkpoints
from loopless.runs.config import resolve
from loopless.runs.failures import Failure, Interrupted
from loopless.runs.folder import RunFolder
from loopless.runs.metrics import MetricsLog
from loopless.runs.signals import StopSignals

signal.signal(signal.SIGINT, signal.default_int_handler)

@dataclass(frozen=True)
class Settings:
    env: str = "walk"
    steps: int = 2000
    seed: int = 0

def train(run, config, resume):
    state = {"weights/w": np.zeros(5), "replay/x": np.zeros(3000)}
    checkpoints, step, best = Checkpoints(run.path), 0, None
    with MetricsLog(run.metrics) as log:
        if resume:
            found = checkpoints.load(template=state)
            state, step, best = found.arrays, found.step, found.numbers["best"]
            log.trim_after(step)
            checkpoints.trim_after(step)
            for line in found.skipped:
                print("skipped", line, flush=True)
        else:
            checkpoints.save(0, state, {"best": best})
        with StopSignals() as stop, BackgroundSaver(checkpoints, log) as saver:
            print("training from", step, flush=True)
            while step < config.steps and not stop.requested:
                for step in range(step + 1, step + 11):
                    draws = np.random.default_rng([config.seed, step])
                    state["weights/w"] += draws.normal(size=5)
                    state["replay/x"][step % 3000] = draws.normal()
                value = float(state["weights/w"].sum())
                improved = best is None or value > best
                best = value if improved else best
                log.write(step, return_mean=value)
                saver.save(step, state, {"best": best}, best=improved)
            saver.wait()
            if stop.requested:
                raise Interrupted(f"run: stopped at step {step} and saved.")

try:
    command, where, *flags = sys.argv[1:]
    if command == "train":
        config = resolve(Settings, flags, "walk")
        with RunFolder.create(Path(where).parent, Path(where).name, "walk", config) as run:
            train(run, config, resume=False)
    else:
        with RunFolder.open(Path(where), lock=True) as run:
            train(run, run.config(Settings), resume=True)
except Failure as failure:
    print(failure, file=sys.stderr)
    sys.exit(failure.exit_code)
"""
STEPS = 150


@pytest.fixture(scope="module")
def trainer(tmp_path_factory):
    """Starts the trainer."""
    script = tmp_path_factory.mktemp("trainer") / "trainer.py"
    script.write_text(TRAINER)
    children = []

    def start(*arguments):
        child = subprocess.Popen(
            [sys.executable, script, *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        children.append(child)
        return child

    yield start
    for child in children:
        child.kill()
        child.communicate()


def finish(child, code=0):
    out, err = child.communicate(timeout=60)
    assert child.returncode == code, err
    return out, err


def outcome(run):
    """The end of a run: checkpoints, and the rows but for their times."""
    files = {
        str(path.relative_to(run)): path.read_bytes()
        for path in sorted((run / "checkpoints").rglob("*.*"))
        if path.is_file() and f"{STEPS:012d}" in str(path)
    }
    assert len(files) == 3
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    for row in rows:
        del row["time"]
    return files, rows, (run / "latest").read_text(), (run / "best").read_text()


def wait_for_checkpoints(run, child):
    while len(os.listdir(run / "checkpoints")) < 3:
        assert child.poll() is None
        time.sleep(0.005)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory, trainer):
    run = tmp_path_factory.mktemp("runs") / "whole"
    finish(trainer("train", run, "--steps", str(STEPS)))
    return outcome(run)


def test_killed_again_and_again_it_ends_the_same(tmp_path, trainer, undisturbed):
    run = tmp_path / "mine"
    child = trainer("train", run, "--steps", str(STEPS))
    starts = []
    for delay in (0.0, 0.01, 0.03):
        starts.append(child.stdout.readline())
        time.sleep(delay)
        child.kill()
        child.wait()
        child = trainer("resume", run)
    out, _ = finish(child)
    assert all(line.startswith("training from") for line in starts)
    assert "skipped" not in out
    assert outcome(run) == undisturbed


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interrupted_it_saves_and_goes_on_from_there(tmp_path, trainer, undisturbed, number):
    run = tmp_path / "mine"
    child = trainer("train", run, "--steps", str(STEPS))
    child.stdout.readline()
    child.send_signal(number)
    _, err = finish(child, 75)
    stopped_at = err.split("stopped at step ")[1].split()[0]
    out, _ = finish(trainer("resume", run))
    assert out == f"training from {stopped_at}\n"
    assert outcome(run) == undisturbed


def test_a_damaged_last_checkpoint_costs_only_the_way_from_the_one_before(
    tmp_path, trainer, undisturbed
):
    run = tmp_path / "mine"
    child = trainer("train", run, "--steps", str(STEPS))
    child.stdout.readline()
    wait_for_checkpoints(run, child)
    child.send_signal(signal.SIGTERM)
    finish(child, 75)
    newest, older = sorted(os.listdir(run / "checkpoints"))[-2:][::-1]
    state = run / "checkpoints" / newest / "state.safetensors"
    state.write_bytes(state.read_bytes()[:-1])
    out, _ = finish(trainer("resume", run))
    skipped, start = out.splitlines()
    assert skipped.startswith(f"skipped {newest}: state.safetensors has")
    assert start == f"training from {int(older[5:])}"
    assert outcome(run) == undisturbed


def test_two_trainers_do_not_share_a_run(tmp_path, trainer):
    run = tmp_path / "mine"
    first = trainer("train", run, "--steps", "1000000")
    first.stdout.readline()
    _, err = finish(trainer("resume", run), 2)
    assert f"is in use by pid {first.pid} on host" in err
    first.kill()
    first.wait()
    second = trainer("resume", run)
    assert second.stdout.readline().startswith("training from")
