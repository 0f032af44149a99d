"""Memory of the loss: a child is asked, a compiler is asked, and a failure is a row."""

import subprocess

import pytest

from suites.avatarl import memory
from suites.avatarl.losses import Losses

CASE = Losses(1000, 2, 64)


def test_a_child_tells_what_cross_entropy_takes():
    # Its log-softmax and its gradient of it: two arrays of the logits' size, and little else.
    case = Losses(50304, 4, 128)
    assert 1.5 < memory.in_torch(case, memory.ENTROPY) < 2.6


def test_a_child_that_fails_is_an_error(monkeypatch):
    done = subprocess.CompletedProcess([], 1, "", "trace\nMemoryError: none left")
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: done)
    with pytest.raises(RuntimeError, match="MemoryError: none left"):
        memory.in_torch(CASE, memory.OURS)


def test_every_probe_has_a_row_and_a_failure_is_one(monkeypatch):
    def fails(*_):
        raise RuntimeError("none left")

    monkeypatch.setattr(memory, "in_torch", fails)
    monkeypatch.setattr(memory, "in_jax", lambda case: 0.25)
    rows = memory.rows(CASE)
    assert [(row.status, row.value) for row in rows] == [("ok", 0.25), *[("failed", None)] * 3]
    assert rows[1].reason == "RuntimeError: none left"
