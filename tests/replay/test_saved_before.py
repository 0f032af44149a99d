"""Files that older code wrote, before its modules moved to their present places, still load.

`saved_before/` holds one small file for each kind of buffer and one memory-mapped folder; the
functions below say what was added before each was saved. The drawn indices are the old code's.
"""

import shutil
from pathlib import Path

import numpy as np
import pytest

from loopless.replay import EpisodicReplayBuffer, PrioritizedReplayBuffer, ReplayBuffer

FOLDER = Path(__file__).parent / "saved_before"
FIELDS = {
    "obs": ((2,), np.float32),
    "next_obs": ((2,), np.float32),
    "nested": {"phase": ((), np.complex64), "count": ((), np.int16)},
    "reward": ((), np.float64),
    "terminated": ((), np.bool_),
    "truncated": ((), np.bool_),
}


def transitions(first, count):
    number = np.arange(first, first + count)
    obs = np.stack([number, -number], 1).astype(np.float32)
    return {
        "obs": obs,
        "next_obs": obs + np.float32(1),
        "nested": {"phase": number.astype(np.complex64) * 1j, "count": number.astype(np.int16)},
        "reward": number / 3,
        "terminated": number % 5 == 4,
        "truncated": number % 7 == 6,
    }


def ring(**options):
    buffer = ReplayBuffer(10, FIELDS, seed=5, n_step=2, gamma=0.9, single_copy="obs", **options)
    buffer.add(**transitions(0, 7))
    buffer.add(**transitions(7, 9))
    buffer.sample(3)
    return buffer


def prioritized():
    buffer = PrioritizedReplayBuffer(10, FIELDS, seed=6, alpha=0.5)
    buffer.add(**transitions(0, 13))
    drawn = buffer.sample(4, beta=0.7)["indices"]
    buffer.update_priorities(drawn, [1.0, 4.0, 0.0, 0.25])
    return buffer


def episodic():
    buffer = EpisodicReplayBuffer(
        20, {"obs": ((2,), np.float32)}, terminals="single", law="transition", seed=7
    )
    for length in (6, 7, 5, 5):
        obs = np.arange(2 * length, dtype=np.float32).reshape(length, 2)
        buffer.add_episode(obs=obs, terminals=np.arange(length) == 2)
    buffer.set_row_weights([1.0, 3.0, 2.0])
    buffer.set_step_weights(np.arange(17) / 4)
    buffer.sample(3, discount=0.5)
    return buffer


def draw(buffer):
    if isinstance(buffer, EpisodicReplayBuffer):
        return buffer.sample(8, discount=0.9)
    return buffer.sample(8)


def assert_same(batch, expected):
    assert batch.keys() == expected.keys()
    for name, value in expected.items():
        if isinstance(value, dict):
            assert_same(batch[name], value)
        else:
            np.testing.assert_array_equal(batch[name], value, err_msg=name, strict=True)


CASES = {
    "ring": (ring, [7, 7, 2, 8, 5, 9, 2, 0]),
    "prioritized": (prioritized, [0, 2, 2, 2, 3, 5, 7, 8]),
    "episodic": (episodic, [13, 0, 1, 16, 3, 14, 0, 16]),
}


@pytest.mark.parametrize("name", CASES)
def test_a_file_saved_before_loads_and_goes_on(name):
    make, indices = CASES[name]
    expected = make()
    buffer = type(expected).load(FOLDER / f"{name}.safetensors")
    assert repr(buffer) == repr(expected)
    assert_same(buffer.state(), expected.state())
    drawn = draw(buffer)
    assert_same(drawn, draw(expected))
    assert drawn["indices"].tolist() == indices


def test_a_folder_flushed_before_opens_and_goes_on(tmp_path):
    """What was overwritten after the flush is put back from the journal."""
    shutil.copytree(FOLDER / "memmap", tmp_path / "memmap")
    with ReplayBuffer.open(tmp_path / "memmap") as buffer:
        expected = ring(storage="memmap", path=tmp_path / "new")
        assert_same(buffer.state(), expected.state())
        assert_same(draw(buffer), draw(expected))
        expected.close()
