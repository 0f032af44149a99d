"""Cores, threads and memory of this process."""

import mmap
import os

import numpy as np
import pytest

from loopless import process as module
from loopless.process import cores, even_share, peak_bytes, resident_bytes, threads

SIZE, SLACK = 64 << 20, 2 << 20  # the system adds pages up now and then


def test_cores_are_those_that_the_process_may_run_on(monkeypatch):
    monkeypatch.setattr(os, "cpu_count", lambda: 8)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {3, 5, 7}, raising=False)
    assert cores() == 3
    monkeypatch.delattr(os, "sched_getaffinity")
    assert cores() == 8
    monkeypatch.setattr(os, "cpu_count", lambda: None)
    assert cores() == 1


@pytest.mark.parametrize(("told", "expected"), [(None, 4), ("", 4), ("3", 3), ("0", 4), ("x", 4)])
def test_xla_has_the_threads_that_it_was_told(monkeypatch, told, expected):
    monkeypatch.setattr(module, "cores", lambda: 4)
    monkeypatch.delenv("PJRT_NPROC", raising=False)
    if told is not None:
        monkeypatch.setenv("PJRT_NPROC", told)
    assert threads() == expected


@pytest.mark.parametrize(
    ("agents", "there", "expected"),
    [(1, 8, 1), (8, 1, 1), (8, 2, 2), (8, 3, 2), (5, 2, 1), (5, 8, 5), (6, 4, 3), (10, 8, 5)],
)
def test_cores_have_the_same_number_of_agents(agents, there, expected):
    assert even_share(agents, there) == expected


def test_what_is_held_counts_and_what_was_held_stays_in_the_peak():
    before = resident_bytes()
    # Asked of the system: the allocator may serve an array from memory that it already holds.
    memory = mmap.mmap(-1, SIZE)
    np.frombuffer(memory, np.uint8)[:] = 1
    during = resident_bytes()
    memory.close()
    assert during - before > 0.9 * SIZE
    assert resident_bytes() < during - 0.9 * SIZE
    assert peak_bytes() >= during - SLACK
