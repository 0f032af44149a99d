"""What an episodic buffer may be made of, and what rows it takes: declarations, padded arrays."""

import numpy as np
import pytest
from support.episodes import FIELDS, assert_same

from loopless import process
from loopless.replay.host.episodic.buffer import EpisodicReplayBuffer


@pytest.mark.parametrize(
    ("declared", "said"),
    [
        ({"capacity": 0}, "capacity must be an integer of at least 1"),
        ({"capacity": 2**31}, "capacity must be below 2³¹"),
        ({"seed": -1}, "seed must be an integer"),
        ({"terminals": "triple"}, "terminals='triple' is unknown"),
        ({"law": "fair"}, "law='fair' is unknown"),
        ({"fields": {"state": ((), int)}}, 'fields has no "obs"'),
        (
            {"fields": {"obs": ((), int), "gap": ((), int)}},
            "gap is a name that the buffer uses",
        ),
    ],
)
def test_wrong_declarations_are_refused(declared, said):
    with pytest.raises(ValueError, match=said):
        EpisodicReplayBuffer(**{"capacity": 9, "fields": FIELDS, **declared})


def test_what_does_not_fit_is_refused_before_it_is_allocated(monkeypatch):
    monkeypatch.setattr(process, "free_memory_bytes", lambda: 10**9)
    with pytest.raises(ValueError, match=r"1,000,000 steps need 28\.2 GB, of which obs"):
        EpisodicReplayBuffer(1_000_000, {"obs": ((84, 84, 4), np.uint8)})


def test_the_index_takes_eight_bytes_a_step():
    buffer = EpisodicReplayBuffer(100_000, {"obs": ((2,), np.float32)}, terminals="none")
    assert buffer.nbytes < 100_000 * (8 + 8) + 1000
    buffer.add_episode(obs=np.zeros((1000, 2), np.float32))
    assert repr(buffer) == (
        "EpisodicReplayBuffer(100,000 steps, 1.6 MB: obs (2,) float32; "
        "1,000 steps in 1 rows, 999 starts)"
    )


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ({"obs": [1, 2]}, "terminals is missing"),
        ({"obs": [1.5, 2.5], "terminals": [0, 0]}, "obs contains 1.5, which int64 cannot hold"),
        ({"obs": 3, "terminals": [0, 0]}, "obs has shape"),
        ({"terminals": [0, 0]}, "obs is missing"),
        ({"obs": [], "terminals": []}, "the rows have no step|dtype float64"),
        ({"obs": [1, 2], "terminals": ["a", "b"]}, "marks must be booleans or numbers"),
        ({"obs": [1, 2], "terminals": [0, 0], "valid": [1]}, "valid has shape"),
    ],
)
def test_wrong_rows_are_refused(row, said):
    buffer = EpisodicReplayBuffer(9, FIELDS)
    with pytest.raises((TypeError, ValueError), match=said):
        buffer.add_episode(**row)
    assert buffer.rows == 0


@pytest.mark.parametrize("convention", ["double", "single", "none"])
def test_padded_arrays_make_the_buffer_that_rows_make(convention):
    rng = np.random.default_rng(0)
    lengths = np.array([5, 0, 9, 2, 9])
    marks = np.zeros((5, 9, 1), np.uint8)
    marks[0, 1:3], marks[2, 3:7], marks[4, 8], marks[1:2] = 255, 255, 255, 255
    marks[0, 5:] = 255  # padding is not read
    obs, action = rng.random((5, 9, 2)), rng.integers(0, 9, (5, 9))
    padded = EpisodicReplayBuffer.from_padded(
        obs, marks, lengths, action=action, convention=convention, law="transition", seed=4
    )
    fields = {"obs": ((2,), np.float64), "action": ((), np.int64)}
    rows = EpisodicReplayBuffer(25, fields, terminals=convention, law="transition", seed=4)
    for e in (0, 2, 3, 4):
        n = lengths[e]
        rows.add_episode(obs=obs[e, :n], action=action[e, :n], terminals=marks[e, :n])
    assert_same(padded.state(), rows.state())
    assert_same(padded.sample(40, discount=0.9), rows.sample(40, discount=0.9))


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"lengths": [4, 5]}, "lengths must be from 0 to 4"),
        ({"lengths": [4.0, 4.0]}, "lengths must be integers"),
        ({"lengths": [4, 1]}, "no step with a later one"),
        ({"lengths": [0, 0]}, "the rows have no step"),
        ({"terminals": None}, "terminals is missing"),
        ({"terminals": np.eye(2, 4)}, "of row 0 has a run of 1 marks from step 0"),
        ({"terminals": np.zeros((2, 3))}, "terminals has shape"),
        ({"action": np.zeros((2, 3))}, "action has shape"),
        ({"obs": np.zeros(4)}, "obs has shape"),
        ({"capacity": 7}, "8 steps, more than capacity=7"),
    ],
)
def test_wrong_padded_arrays_are_refused(given, said):
    whole = {"obs": np.zeros((2, 4)), "terminals": np.zeros((2, 4)), "lengths": [4, 4]}
    with pytest.raises(ValueError, match=said):
        EpisodicReplayBuffer.from_padded(**(whole | given))
