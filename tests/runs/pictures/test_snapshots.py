"""What a trainer leaves for its pictures is there whole, evenly spread, and never too much."""

import numpy as np
import pytest

from loopless.runs.failures import WriteFailed
from loopless.runs.pictures import snapshots


def saved(run, *steps):
    for step in steps:
        snapshots.save(run, {"step": np.int64(step), "learned": np.full((2, 3), step, np.float32)})


def steps_of(run):
    return [int(found["step"]) for found in snapshots.history(run)]


def test_what_is_saved_is_read_oldest_first(tmp_path):
    saved(tmp_path, 9, 100, 20)
    found = snapshots.history(tmp_path)
    assert steps_of(tmp_path) == [9, 20, 100]
    np.testing.assert_array_equal(found[-1]["learned"], np.full((2, 3), 100))
    assert found[-1]["learned"].dtype == np.float32


def test_a_run_without_any_has_an_empty_history(tmp_path):
    assert snapshots.history(tmp_path) == []


def test_however_many_are_saved_a_few_stay_with_the_ends_and_no_large_holes(tmp_path, monkeypatch):
    monkeypatch.setattr(snapshots, "MOST", 8)
    for count in range(1, 60):
        saved(tmp_path, 10 * count)
        kept = steps_of(tmp_path)
        assert len(kept) == min(count, 8)
        assert (kept[0], kept[-1]) == (10, 10 * count)
        gaps = np.diff(kept)
        if len(gaps) > 1:
            assert gaps.max() <= 2 * max(10, np.ceil(count / 7) * 10)


def test_what_a_resumed_run_makes_again_is_dropped(tmp_path):
    saved(tmp_path, 10, 20, 30)
    snapshots.trim_after(tmp_path, 20)
    assert steps_of(tmp_path) == [10, 20]
    snapshots.trim_after(tmp_path / "nothing", 20)


def test_a_torn_file_is_passed_over(tmp_path):
    saved(tmp_path, 10, 20)
    whole = snapshots.paths(tmp_path)[0]
    whole.write_bytes(whole.read_bytes()[:100])
    (tmp_path / "snapshots" / "notes.npz").write_bytes(b"no snapshot")
    assert steps_of(tmp_path) == [20]


def test_objects_are_never_unpickled(tmp_path):
    (tmp_path / "snapshots").mkdir()
    np.savez(tmp_path / "snapshots" / "5.npz", step=5, learned=np.array([{}], object))
    assert snapshots.history(tmp_path) == []


def test_a_disk_that_fails_says_so(tmp_path):
    (tmp_path / "snapshots").write_text("in the way")
    with pytest.raises(WriteFailed, match="snapshots"):
        saved(tmp_path, 10)
