"""The log of a run: whole lines, written in batches, cut where a crash or a resume says so."""

import errno
import json
import os
import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from loopless.runs.failures import WriteFailed
from loopless.runs.metrics import METRICS, MetricsLog, columns, read


class Clock:
    """Seconds that pass when told to."""

    def __init__(self):
        self.now = 1000.0

    def __call__(self):
        return self.now


@pytest.fixture
def path(tmp_path):
    return tmp_path / "metrics.jsonl"


def test_rows_come_back_as_they_were_written(path):
    with MetricsLog(path, clock=Clock()) as log:
        log.event(0, "start", "von vorn – 1/2")
        log.write(10, loss=0.5, episodes=3, return_mean=np.float32(0.5))
        log.write(10, "eval", eval_return=np.array([1.5, 2.5]), eval_length_mean=[3, 4])
    assert read(path) == [
        {"step": 0, "time": 1000.0, "kind": "event", "event": "start", "message": "von vorn – 1/2"},
        {"step": 10, "time": 1000.0, "kind": "train", "loss": 0.5, "episodes": 3,
         "return_mean": 0.5},
        {"step": 10, "time": 1000.0, "kind": "eval", "eval_return": [1.5, 2.5],
         "eval_length_mean": [3, 4]},
    ]  # fmt: skip
    assert path.read_bytes().count(b"\n") == 3


@given(st.floats(), st.lists(st.floats(width=32)))
def test_finite_numbers_come_back_exactly_and_others_as_null(tmp_path_factory, wide, narrow):
    path = tmp_path_factory.mktemp("log") / "metrics.jsonl"
    with MetricsLog(path) as log:
        log.write(1, loss=wide, q_mean=np.array(narrow, np.float32))
    assert not re.search("NaN|Infinity", path.read_text())
    (row,) = read(path)
    expected = [x if np.isfinite(x) else None for x in [wide, *narrow]]
    assert [row["loss"], *row["q_mean"]] == expected


def test_jax_arrays_can_be_logged(path):
    jnp = pytest.importorskip("jax.numpy")
    with MetricsLog(path) as log:
        log.write(1, loss=jnp.float32(0.25), q_mean=jnp.arange(2))
    assert (read(path)[0]["loss"], read(path)[0]["q_mean"]) == (0.25, [0, 1])


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"retrun_mean": 1.0}, '"retrun_mean" is not in the table of metrics. Did you mean "ret'),
        ({"xyz": 1.0}, r'"xyz" is not in the table of metrics\. Enter new names in METRICS'),
        ({"step": 1}, "step"),
    ],
)
def test_a_name_outside_the_table_is_refused(path, values, message):
    with MetricsLog(path) as log:
        with pytest.raises((ValueError, TypeError), match=message):
            log.write(3, **values)
        log.flush()
    assert read(path) == []


@pytest.mark.parametrize("value", ["1", None, True, np.zeros((2, 2)), 1j])
def test_what_is_no_number_is_refused(path, value):
    with MetricsLog(path) as log, pytest.raises(TypeError, match="metrics: loss has shape"):
        log.write(3, loss=value)


def test_every_metric_has_a_unit_an_explanation_and_one_line_in_its_picture():
    for name, metric in METRICS.items():
        assert metric.unit, name
        assert metric.explanation.endswith("."), name
    pictures = {metric.picture for metric in METRICS.values() if metric.style in ("low", "high")}
    for picture in pictures:
        lines = [m for m in METRICS.values() if (m.picture, m.style) == (picture, "line")]
        assert len(lines) == 1


# Batching


def test_lines_are_written_about_once_a_second_and_whole(path):
    clock = Clock()
    log = MetricsLog(path, clock=clock)
    for _ in range(5):
        clock.now += 0.19
        log.write(1, loss=1.0)
    assert path.read_bytes() == b""
    clock.now += 0.1
    log.write(2, loss=1.0)
    assert len(read(path)) == 6
    log.write(3, loss=1.0)
    assert len(read(path)) == 6
    log.close()
    assert len(read(path)) == 7
    log.close()


def test_the_disk_is_waited_for_by_sync_alone(path, monkeypatch):
    calls = []
    monkeypatch.setattr(os, "fsync", calls.append)
    with MetricsLog(path) as log:
        log.write(1, loss=1.0)
        log.flush()
        assert calls == []
        log.write(2, loss=1.0)
        log.sync()
        assert len(calls) == 1
        assert len(read(path)) == 2


def test_a_full_disk_is_named_and_no_line_is_lost_or_doubled(path, monkeypatch):
    log = MetricsLog(path)
    log.write(1, loss=1.0)
    log.write(2, loss=2.0)
    write = os.write

    def full_after_ten_bytes(file, data):
        if os.fstat(file).st_size:
            raise OSError(errno.ENOSPC, "")
        return write(file, bytes(data[:10]))

    with monkeypatch.context() as patched:
        patched.setattr(os, "write", full_after_ten_bytes)
        with pytest.raises(WriteFailed, match="No space left on device"):
            log.flush()
        assert read(path) == []
    log.close()
    assert [row["loss"] for row in read(path)] == [1.0, 2.0]


# After a crash, and on resume


def test_a_torn_last_line_is_skipped_and_then_cut(path):
    with MetricsLog(path) as log:
        log.write(1, loss=1.0)
        log.write(2, loss=2.0)
    whole = path.read_bytes()
    for cut in range(whole.index(b"\n") + 1, len(whole)):
        path.write_bytes(whole[:cut])
        problems = []
        assert [row["step"] for row in read(path, problems)] == [1]
        assert problems == []
        with MetricsLog(path) as log:
            log.write(3, loss=3.0)
        assert [row["step"] for row in read(path, problems)] == [1, 3]
        assert problems == []


@pytest.mark.parametrize("size", [0, 1, 65_535, 65_536, 65_537, 200_000])
def test_a_torn_line_of_any_length_is_cut(path, size):
    for whole in (b"", b'{"step": 1, "time": 0, "kind": "train"}\n'):
        path.write_bytes(whole + b"x" * size)
        MetricsLog(path).close()
        assert path.read_bytes() == whole


@pytest.mark.parametrize(
    "line",
    [
        b"", b"x", b"[1]", b"\0\0\0", b'{"step": 1}', b'{"step": "1", "time": 0, "kind": "train"}',
        b'{"step": 1, "time": 0, "kind": "train", "loss": NaN}', b"[" * 99_999, b"\xff",
    ],
)  # fmt: skip
def test_a_broken_line_is_named_and_left_out(path, line):
    good = b'{"step": 1, "time": 0, "kind": "train"}\n'
    path.write_bytes(good + line + b"\n" + good)
    problems = []
    assert len(read(path, problems)) == 2
    assert len(problems) == 1
    assert "line 2 is not a row of a log" in problems[0]
    assert len(read(path)) == 2
    with MetricsLog(path) as log:
        assert log.trim_after(5) == 1
    assert path.read_bytes() == good + good


def test_rows_after_the_step_are_trimmed_and_the_rest_keeps_its_bytes(path):
    with MetricsLog(path) as log:
        for step in (0, 10, 20, 30):
            log.write(step, loss=step / 7)
        log.event(25, "nan")
        log.flush()
        before = path.read_bytes().splitlines(keepends=True)
        assert log.trim_after(20) == 2
        assert path.read_bytes() == b"".join(before[:3])
        log.write(21, loss=1.0)
    assert [row["step"] for row in read(path)] == [0, 10, 20, 21]
    assert os.listdir(path.parent) == [path.name]


def test_trimming_nothing_leaves_the_file_alone(path):
    with MetricsLog(path) as log:
        log.write(1, loss=1.0)
        log.flush()
        inode = path.stat().st_ino
        assert log.trim_after(1) == 0
    assert path.stat().st_ino == inode


@pytest.mark.parametrize("function", ["open", "write", "fsync", "replace"])
def test_a_failed_trim_leaves_the_old_log(path, monkeypatch, function):
    log = MetricsLog(path)
    log.write(1, loss=1.0)
    log.write(2, loss=1.0)
    log.flush()
    before = path.read_bytes()

    def fails(*arguments, **options):
        raise OSError(errno.EROFS, "")

    with monkeypatch.context() as patched:
        patched.setattr(os, function, fails)
        with pytest.raises(WriteFailed, match="Read-only file system"):
            log.trim_after(1)
    log.close()
    assert path.read_bytes() == before
    assert os.listdir(path.parent) == [path.name]


# Columns


def test_columns_are_arrays_by_name_with_gaps_as_nan(path):
    with MetricsLog(path, clock=Clock()) as log:
        log.write(1, loss=1.0, q_mean=[1.0, 2.0])
        log.event(2, "resume")
        log.write(2, "eval", eval_return=5.0)
        log.write(3, loss=float("nan"), q_mean=[float("inf"), 4.0])
        log.write(4, episodes=7)
    found = columns(read(path))
    assert list(found) == ["step", "time", "loss", "q_mean", "episodes"]
    assert found["step"].tolist() == [1, 3, 4]
    np.testing.assert_array_equal(found["loss"], [1.0, np.nan, np.nan])
    np.testing.assert_array_equal(found["q_mean"], [[1.0, 2.0], [np.nan, 4.0], [np.nan, np.nan]])
    np.testing.assert_array_equal(found["episodes"], [np.nan, np.nan, 7])
    assert columns(read(path), "eval")["eval_return"].tolist() == [5.0]
    assert columns([])["step"].shape == (0,)


def test_columns_of_a_hostile_log_are_numbers(path):
    row = {"step": 1, "time": 0, "kind": "train", "loss": "x", "q_mean": [1, "y"], "beta": 10**400}
    path.write_text(json.dumps(row) + "\n" + json.dumps(row | {"q_mean": [1, 2, 3], "?": 0}) + "\n")
    found = columns(read(path))
    assert found["q_mean"].shape == (2, 3)
    assert np.isnan([*found["loss"], *found["beta"], *found["q_mean"][0]]).all()
    assert "?" not in found


def test_metrics_by_component_come_back_as_columns(tmp_path):
    path = tmp_path / "metrics.jsonl"
    with MetricsLog(path) as log:
        log.write(1, loss=1.0)
        log.write(2, similarity=np.array([[0.5, np.nan, 1.0], [0.1, 0.2, 0.3]]))
    found = columns(read(path))["similarity"]
    assert found.shape == (2, 2, 3)
    assert np.isnan(found[0]).all()
    np.testing.assert_array_equal(found[1], [[0.5, np.nan, 1.0], [0.1, 0.2, 0.3]])


@pytest.mark.parametrize("wrong", [1.0, [1.0, 2.0]])
def test_metrics_by_component_have_both_axes(tmp_path, wrong):
    with MetricsLog(tmp_path / "log") as log, pytest.raises(TypeError, match=r"log .seeds, comp"):
        log.write(1, similarity=wrong)


@pytest.mark.parametrize("odd", ["[1, 2]", "[[1], [1, 2]]", "[[[1]]]", '"x"', "[]"])
def test_a_row_of_another_shape_is_no_number(tmp_path, odd):
    path = tmp_path / "log"
    path.write_text(
        f'{{"step": 1, "time": 0, "kind": "train", "similarity": {odd}}}\n'
        '{"step": 2, "time": 0, "kind": "train", "similarity": [[0.5, 0.25]]}\n'
    )
    found = columns(read(path))["similarity"]
    np.testing.assert_array_equal(found[1:], [[[0.5, 0.25]]])
    assert np.isnan(found[0]).all()
