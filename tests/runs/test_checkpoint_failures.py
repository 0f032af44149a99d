"""A failure at every write boundary of a checkpoint leaves one that loads: the old or the new."""

import os
import tempfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from failing_disk import WAYS, Died, Disk

from loopless.files import atomic
from loopless.runs.checkpoint import Checkpoints
from loopless.runs.failures import WriteFailed
from loopless.runs.folder import RunFolder


@dataclass(frozen=True)
class Settings:
    env: str = "CartPole-v1"


def state(seed):
    generator = np.random.default_rng(seed)
    return {"weights/w": generator.normal(size=5), "replay/x": generator.integers(0, 9, 50)}


def prepared(run: Path) -> Checkpoints:
    """Two checkpoints, the first of them the best."""
    (run / "checkpoints").mkdir()
    checkpoints = Checkpoints(run)
    for step in (1, 2):
        checkpoints.save(step, state(step), {"seed": step}, best=step == 1)
    return checkpoints


def save(checkpoints, step, seed):
    checkpoints.save(step, state(seed), {"seed": seed}, best=True)


def boundaries(step: int) -> int:
    """How many calls one save makes."""
    with tempfile.TemporaryDirectory() as folder:
        checkpoints = prepared(Path(folder))
        with Disk().installed() as disk:
            save(checkpoints, step, 3)
    return disk.count


def loaded_seed(checkpoints):
    """Which state is loaded; it is whole."""
    found = checkpoints.load()
    seed = found.numbers["seed"]
    for name, expected in state(seed).items():
        np.testing.assert_array_equal(found.arrays[name], expected)
    return seed


def hidden(path: str) -> str:
    """Where the new content of `path` is staged."""
    return str(atomic.staging_path(Path(path)))


def fail(checkpoints, step, boundary, way):
    disk = Disk(boundary, way)
    with disk.installed(), pytest.raises((WriteFailed, Died)) as caught:
        save(checkpoints, step, 3)
    return caught.value


NEXT = [(way, n) for way in WAYS for n in range(boundaries(3))]
SAME = [(way, n) for way in WAYS for n in range(boundaries(2))]


def test_there_are_boundaries_to_fail_at():
    # Three files, staged folder, publication, two pointers, one old state.
    assert boundaries(3) >= 30
    assert boundaries(2) > boundaries(3) - 2


@pytest.mark.parametrize(("way", "boundary"), NEXT)
def test_a_failed_save_leaves_the_last_checkpoint_or_the_new_one(tmp_path, way, boundary):
    checkpoints = prepared(tmp_path)
    fail(checkpoints, 3, boundary, way)
    assert loaded_seed(checkpoints) in (2, 3)  # as it was left
    assert checkpoints.load(kind="weights").step in (2, 3)
    assert checkpoints.load("best", kind="weights").step in (1, 3)
    atomic.recover(tmp_path)
    atomic.recover(checkpoints.folder)  # the next start
    assert loaded_seed(checkpoints) in (2, 3)
    assert not [name for name in os.listdir(checkpoints.folder) if name.startswith(".")]
    assert not [name for name in os.listdir(tmp_path) if name.startswith(".")]
    save(checkpoints, 3, 4)
    assert loaded_seed(checkpoints) == 4


@pytest.mark.parametrize(("way", "boundary"), SAME)
def test_a_failed_save_over_the_same_step_leaves_the_old_or_the_new(tmp_path, way, boundary):
    checkpoints = prepared(tmp_path)
    fail(checkpoints, 2, boundary, way)
    # Between two renames the newest is aside; the one before stands in for it.
    assert loaded_seed(checkpoints) in ((1, 2, 3) if way != "once" else (2, 3))
    atomic.recover(checkpoints.folder)
    assert loaded_seed(checkpoints) in (2, 3)
    assert sorted(os.listdir(checkpoints.folder)) == ["step_000000000001", "step_000000000002"]


@pytest.mark.parametrize(("way", "boundary"), [case for case in NEXT if case[0] == "once"])
def test_a_full_disk_is_named_with_the_checkpoint_that_is_kept_and_leaves_nothing(
    tmp_path, way, boundary
):
    checkpoints = prepared(tmp_path)
    error = fail(checkpoints, 3, boundary, way)
    assert isinstance(error, WriteFailed)
    assert error.exit_code == 74
    assert str(error) == (
        "run: cannot write checkpoint step_000000000003: No space left on device. The last good "
        "one is step_000000000002. Free some space (or delete some files, if `df -i` shows "
        "that the disk has no inodes left), then `loopless resume` the run."
    )
    assert not [name for name in os.listdir(checkpoints.folder) if name.startswith(".")]
    assert not [name for name in os.listdir(tmp_path) if name.startswith(".")]


def test_data_is_on_the_disk_before_its_name_and_the_new_before_the_old_goes(tmp_path):
    checkpoints = prepared(tmp_path)
    with Disk().installed() as disk:
        save(checkpoints, 3, 3)
    log = [tuple(part.removeprefix(f"{tmp_path}/") for part in entry) for entry in disk.log]
    staged, final = hidden("checkpoints/step_000000000003"), "checkpoints/step_000000000003"
    published = log.index(("rename", staged, final))
    for file in ("weights.safetensors", "state.safetensors", "manifest.json"):
        written = max(n for n, entry in enumerate(log) if entry == ("write", f"{staged}/{file}"))
        assert written < log.index(("fsync", f"{staged}/{file}")) < published
    assert log.index(("fsync", staged)) < published
    lasting = log.index(("fsync", "checkpoints"), published)
    switched = log.index(("replace", hidden("latest"), "latest"))
    assert lasting < log.index(("fsync", hidden("latest"))) < switched
    assert lasting < log.index(("unlink", "checkpoints/step_000000000001/state.safetensors"))


@pytest.mark.parametrize("way", ["dead", "torn"])
def test_a_run_that_died_in_a_save_is_resumed(tmp_path, way):
    RunFolder.create(tmp_path, "mine", "dqn", Settings()).close()
    checkpoints = Checkpoints(tmp_path / "mine")
    save(checkpoints, 1, 1)
    with Disk(5, way).installed(), pytest.raises(Died):
        save(checkpoints, 2, 2)
    assert os.listdir(checkpoints.folder).count(hidden("step_000000000002")) == 1
    with RunFolder.open(tmp_path / "mine", lock=True) as run:
        assert os.listdir(run.checkpoints) == ["step_000000000001"]
        assert loaded_seed(checkpoints) == 1
