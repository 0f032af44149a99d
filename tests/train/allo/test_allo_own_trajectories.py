"""The example of own trajectories: its file can be read, its waves are found, and it is drawn."""

import example_modules
import numpy as np
import pytest

from loopless.train.allo.files import read_trajectories


@pytest.fixture(scope="module")
def trajectories():
    return example_modules.load("allo_own_trajectories")


def test_the_file_of_walks_is_one_that_the_trainer_reads(trajectories, tmp_path):
    path = tmp_path / "walks.npz"
    trajectories.write_walks(path, 20)
    found = read_trajectories(path, "single", "transition")
    assert len(found.table) <= trajectories.CELLS
    assert found.buffer.starts == len(np.load(path)["obs"]) - 20


def test_waves_know_their_own(trajectories):
    angles = 2 * np.pi * np.arange(60) / 60
    exact = np.stack([np.ones(60), np.sin(angles + 1), np.cos(angles), np.cos(2 * angles)], 1)
    _, near = trajectories.waves(angles, exact)
    np.testing.assert_allclose(near, 1)
    _, near = trajectories.waves(angles, exact[:, ::-1].copy())
    assert near[0] < 1e-6


@pytest.mark.slow
def test_features_of_own_trajectories_are_learned_and_drawn(trajectories, tmp_path):
    out = tmp_path / "picture.png"
    near = trajectories.main(
        ["--rows", "300", "--steps", "600", "--components", "3", "--out", str(out)]
    )
    assert near[0] > 0.95
    assert near.shape == (3,)
    assert out.stat().st_size > 10_000
