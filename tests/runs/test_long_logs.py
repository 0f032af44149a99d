"""Logs of any length are read in bounded memory, and what is drawn of them is the same."""

import json
import subprocess
import sys

import numpy as np
import pytest

from loopless.runs import columns
from loopless.runs.columns import Log
from loopless.runs.metrics import MetricsLog

# Reads a log as `plot` and `report` do, or trims it as `resume` does, and prints its peak memory.
READ = """
import sys
from pathlib import Path
from loopless.process import peak_bytes
from loopless.runs import columns, metrics
from loopless.runs.columns import Log
from loopless.runs.metrics import MetricsLog

columns.BLOCK = metrics.COPIED = 1 << 15
columns.MOST_BYTES = 1 << 20
path = Path(sys.argv[2])
if sys.argv[1] == "trim":
    with MetricsLog(path) as log:
        log.trim_after(500)
else:
    log = Log(path)
    for _ in log.refresh():
        pass
print(peak_bytes())
"""
NAMES = "loss", "return_mean", "q_mean", "td_error", "gradient_norm", "steps_per_second"


def write(path, rows, first=0):
    with path.open("a") as file:
        for step in range(first, first + rows):
            values = dict.fromkeys(NAMES, 0.123456789 + step % 97)
            row = {"step": step, "time": step / 10, "kind": "train", **values}
            file.write(f"{json.dumps(row)}\n")


def read(path):
    log = Log(path)
    for _ in log.refresh():
        pass
    return log


def test_a_long_log_keeps_its_ends_and_its_means(tmp_path, monkeypatch):
    write(tmp_path / "log", 5_000)
    whole = read(tmp_path / "log").train
    monkeypatch.setattr(columns, "BLOCK", 5_000)
    monkeypatch.setattr(columns, "MOST_BYTES", 40_000)
    merged = read(tmp_path / "log").train
    assert sum(array.nbytes for array in merged.values()) <= 40_000
    assert len(merged["step"]) > 200
    for name in ("step", "time", *NAMES):
        np.testing.assert_array_equal(merged[name][[0, -1]], whole[name][[0, -1]])
    assert (np.diff(merged["step"]) > 0).all()
    # Of each block the first and the last row stay as they are: so much may the steps differ.
    assert np.diff(merged["step"]).max() <= 4 * np.median(np.diff(merged["step"]))
    assert merged["loss"].mean() == pytest.approx(whole["loss"].mean(), rel=0.03)


def test_gaps_do_not_swallow_their_neighbours():
    assert columns._halve({"step": np.arange(3)})["step"].tolist() == [0, 1, 2]
    values = np.array([1.0, np.nan, 3.0, 5.0, np.nan, np.nan, np.nan, 9.0])
    merged = columns._merge("loss", values)
    np.testing.assert_array_equal(merged, [1.0, 3.0, 5.0, np.nan, 9.0])
    np.testing.assert_array_equal(columns._merge("step", np.arange(8)), [0, 2, 4, 6, 7])


def test_however_many_events_there_are_a_few_stay_with_the_ends(tmp_path, monkeypatch):
    monkeypatch.setattr(columns, "MOST_EVENTS", 10)
    with MetricsLog(tmp_path / "log") as log:
        for step in range(500):
            log.event(step, "resume", "x" * 5_000)
    events = read(tmp_path / "log").events
    assert len(events) <= 10
    assert (events[0]["step"], events[-1]["step"]) == (0, 499)
    assert max(len(event["message"]) for event in events) == 1_000


def test_a_line_without_an_end_is_not_gathered(tmp_path, monkeypatch):
    monkeypatch.setattr(columns, "LONGEST_LINE", 1_000)
    monkeypatch.setattr(columns, "BLOCK", 100)
    write(tmp_path / "log", 3)
    with (tmp_path / "log").open("a") as file:
        file.write("x" * 100_000)
    log = Log(tmp_path / "log")
    for _ in log.refresh():
        assert len(log._lines._rest) <= 1_100
    with (tmp_path / "log").open("a") as file:
        file.write("x\n")
    write(tmp_path / "log", 2, first=3)
    assert [len(rows) for rows in log.refresh() if rows]
    assert log.train["step"].tolist() == [0, 1, 2, 3, 4]
    assert (log.broken, log.first_broken) == (1, 4)


@pytest.mark.slow
@pytest.mark.parametrize("words", ["read", "trim"])
def test_memory_does_not_grow_with_the_log(words, tmp_path):
    """Blocks and columns are as much smaller than the real ones as this log is than one of 1 GB."""
    write(tmp_path / "small", 1_000)
    lines = (tmp_path / "small").read_bytes()
    with (tmp_path / "large").open("wb") as file:
        file.writelines([lines] * (30 * 2**20 // len(lines)))
    command = [sys.executable, "-c", READ, words]
    peaks = [
        int(subprocess.check_output([*command, tmp_path / name])) for name in ("small", "large")
    ]
    assert peaks[1] - peaks[0] < 10 * 2**20
