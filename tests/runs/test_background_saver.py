"""Saving beside training: the same bytes, of the state as it was when asked."""

import errno
import os
import threading

import numpy as np
import pytest

from loopless.runs.checkpoint import BackgroundSaver, Checkpoints
from loopless.runs.failures import WriteFailed
from loopless.runs.metrics import MetricsLog


def state():
    return {"weights/w": np.arange(6.0).reshape(2, 3).T, "replay/x": np.arange(50_000)}


def make(run):
    (run / "checkpoints").mkdir(parents=True)
    return Checkpoints(run)


def files(folder):
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


class SlowDisk:
    """Holds back the first flush until told, so that a save is under way for sure."""

    def __init__(self, monkeypatch):
        self.go, self.waits = threading.Event(), threading.Event()
        fsync = os.fsync

        def slow(file):
            self.waits.set()
            assert self.go.wait(30)
            fsync(file)

        monkeypatch.setattr(os, "fsync", slow)


def test_the_bytes_are_those_of_a_save_that_was_waited_for(tmp_path):
    make(tmp_path / "a").save(3, state(), {"x": 1}, best=True)
    with BackgroundSaver(make(tmp_path / "b")) as saver:
        saver.save(3, state(), {"x": 1}, best=True)
        assert saver.wait() == "step_000000000003"
    assert files(tmp_path / "a") == files(tmp_path / "b")


def test_the_state_is_saved_as_it_was_when_asked(tmp_path, monkeypatch):
    checkpoints, disk = make(tmp_path), SlowDisk(monkeypatch)
    arrays, numbers = state(), {"x": 1}
    with BackgroundSaver(checkpoints) as saver:
        saver.save(1, arrays, numbers)
        assert disk.waits.wait(30)
        assert checkpoints.names() == []  # training goes on meanwhile
        for array in arrays.values():
            array += 1
        numbers["x"] = 2
        disk.go.set()
    found = checkpoints.load()
    assert found.numbers == {"x": 1}
    for name, expected in state().items():
        np.testing.assert_array_equal(found.arrays[name], expected)


def test_saves_keep_their_order_and_leaving_waits(tmp_path):
    checkpoints = make(tmp_path)
    with BackgroundSaver(checkpoints) as saver:
        for step in (1, 2, 3):
            saver.save(step, state(), {})
    assert (tmp_path / "latest").read_text() == "step_000000000003\n"
    assert len(checkpoints.names()) == 3


@pytest.mark.parametrize("call", ["save", "wait", "close"])
def test_a_failed_write_is_raised_by_the_next_call(tmp_path, monkeypatch, call):
    checkpoints = make(tmp_path)
    saver = BackgroundSaver(checkpoints)
    saver.save(1, state(), {})
    saver.wait()

    def full(*arguments):
        raise OSError(errno.ENOSPC, "")

    with monkeypatch.context() as patched:
        patched.setattr(os, "write", full)
        saver.save(2, state(), {})
        with pytest.raises(WriteFailed, match="The last good one is step_000000000001"):
            saver.save(3, state(), {}) if call == "save" else getattr(saver, call)()
    saver.close()
    assert checkpoints.load().step == 1


def test_rows_are_on_the_disk_before_the_checkpoint(tmp_path, monkeypatch):
    checkpoints, order = make(tmp_path), []
    fsync, rename = os.fsync, os.rename
    monkeypatch.setattr(
        os, "fsync", lambda f: (order.append(os.readlink(f"/proc/self/fd/{f}")), fsync(f))
    )
    monkeypatch.setattr(os, "rename", lambda *a: (order.append("published"), rename(*a)))
    with MetricsLog(tmp_path / "metrics.jsonl") as log, BackgroundSaver(checkpoints, log) as saver:
        log.write(1, loss=1.0)
        saver.save(1, state(), {})
        assert (tmp_path / "metrics.jsonl").stat().st_size > 0
        saver.wait()
    assert order.index(str(tmp_path / "metrics.jsonl")) < order.index("published")
