"""`add_episodes` against a loop of `add_episode`, and rows that need casts against plain ones."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.episodes import assert_same

from loopless.replay.fields import flatten
from loopless.replay.host.episodic.buffer import EpisodicReplayBuffer

FIELDS = {"obs": ((), np.int64), "picture": {"left": ((2,), np.float32)}}
MARKS = {"double": [0, 0, 1, 1, 0, 0, 0], "single": [0, 1, 0, 0, 1, 0, 0], "none": [0] * 7}


def rows_of(lengths, convention, first=0):
    """Return the arrays of rows laid end to end; every observation is another number."""
    obs = np.arange(first, first + sum(lengths))
    marks = [np.resize(MARKS[convention], length) for length in lengths]
    left = np.stack([obs, obs + 0.5], 1).astype(np.float32)
    return {
        "obs": obs,
        "picture": {"left": left},
        "terminals": np.concatenate(marks) != 0 if convention != "none" else None,
    }


def part(rows, begin, end):
    cut = slice(begin, end)
    terminals = rows["terminals"]
    return {
        "obs": rows["obs"][cut],
        "picture": {"left": rows["picture"]["left"][cut]},
        "terminals": None if terminals is None else terminals[cut],
    }


def add_by_loop(buffer, lengths, rows, valid=None):
    ends = np.cumsum(lengths)
    for begin, end in zip(ends - lengths, ends, strict=True):
        inside = None if valid is None else valid[begin:end]
        buffer.add_episode(**part(rows, begin, end), valid=inside)


def assert_equal_buffers(one, other):
    assert_same(one.state(), other.state())
    assert one.offsets.tolist() == other.offsets.tolist()
    assert len(one) == len(other) == one.lengths.sum()
    for _ in range(2):
        batches = (flatten("", buffer.sample(64, discount=0.9)) for buffer in (one, other))
        assert_same(*batches)


@pytest.mark.parametrize("law", ["episode", "transition"])
@pytest.mark.parametrize("convention", MARKS)
@settings(max_examples=40)
@given(
    calls=st.lists(st.lists(st.integers(2, 9), min_size=1, max_size=8), min_size=1, max_size=3),
    capacity=st.integers(9, 40),
)
def test_many_rows_are_added_as_one_by_one(convention, law, calls, capacity):
    many, loop = (
        EpisodicReplayBuffer(capacity, FIELDS, terminals=convention, law=law, seed=3)
        for _ in range(2)
    )
    first = 0
    for lengths in calls:
        rows = rows_of(lengths, convention, first)
        many.add_episodes(lengths=np.array(lengths), **rows)
        add_by_loop(loop, lengths, rows)
        first += sum(lengths)
        assert_equal_buffers(many, loop)


@pytest.mark.parametrize("law", ["episode", "transition"])
def test_many_rows_beside_weights_and_invalid_steps(law):
    many, loop = (
        EpisodicReplayBuffer(20, FIELDS, terminals="single", law=law, seed=1) for _ in range(2)
    )
    for buffer in (many, loop):
        buffer.add_episode(**rows_of([7], "single"))
        buffer.set_step_weights(np.arange(7.0))
        buffer.set_row_weights([2.0])
    lengths = [6, 5, 4]
    rows, valid = rows_of(lengths, "single", 7), np.arange(15) % 6 != 5
    many.add_episodes(lengths=lengths, valid=valid, **rows)
    add_by_loop(loop, lengths, rows, valid)
    assert_equal_buffers(many, loop)


def test_many_rows_in_files(tmp_path):
    many, loop = (
        EpisodicReplayBuffer(
            12, FIELDS, terminals="double", storage="memmap", path=tmp_path / name, seed=2
        )
        for name in ("many", "loop")
    )
    for k, lengths in enumerate([[5, 4], [3, 6, 2, 7]]):
        rows = rows_of(lengths, "double", 100 * k)
        many.add_episodes(lengths=lengths, **rows)
        add_by_loop(loop, lengths, rows)
    many.flush()
    assert_equal_buffers(many, loop)
    many.close()
    again = EpisodicReplayBuffer.open(tmp_path / "many")
    assert again.lengths.tolist() == loop.lengths.tolist()
    loop.close()
    again.close()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"lengths": [4, 5]}, "sum to the number of steps, 10; received 4, 5, which sum to 9"),
        ({"lengths": [12, -2]}, "lengths must be at least 0"),
        ({"lengths": [[4, 6]]}, r"lengths must be integers \[episodes\]"),
        ({"lengths": [4.0, 6.0]}, r"lengths must be integers \[episodes\]"),
        ({"lengths": []}, "one or more"),
        ({"lengths": [10, 0]}, "rows 1 have no step with a later one"),
        ({"lengths": [9, 1]}, "rows 1 have no step with a later one"),
        ({"terminals": None}, "terminals is missing"),
        ({"terminals": np.arange(10) == 5}, "terminals of row 1 has a run of 1 marks from step 1"),
        ({"obs": np.arange(9)}, r"sum to the number of steps, 9"),
        ({"reward": np.zeros(10)}, "reward"),
    ],
)
def test_what_is_wrong_with_many_rows_is_said_and_nothing_is_added(change, message):
    buffer = EpisodicReplayBuffer(11, FIELDS, terminals="double")
    buffer.add_episode(**rows_of([5], "double"))
    before = buffer.state()
    arguments = rows_of([4, 6], "none") | {"lengths": [4, 6], "terminals": np.zeros(10, bool)}
    with pytest.raises(ValueError, match=message):
        buffer.add_episodes(**arguments | change)
    assert_same(buffer.state(), before)


def test_a_row_longer_than_the_buffer_is_refused_among_many():
    buffer = EpisodicReplayBuffer(8, FIELDS, terminals="none")
    with pytest.raises(ValueError, match="an episode has 9 steps, more than capacity=8"):
        buffer.add_episodes(lengths=[2, 9], **rows_of([2, 9], "none"))


@pytest.mark.parametrize("convention", MARKS)
def test_a_row_that_needs_casts_is_stored_as_a_plain_one(convention):
    fields = {"obs": ((), np.int64), "reward": ((3,), np.float64)}
    plain, cast = (EpisodicReplayBuffer(9, fields, terminals=convention) for _ in range(2))
    marks = np.resize(MARKS[convention], 6)
    for begin in (0, 10, 20):
        obs = np.arange(begin, begin + 6)
        reward = np.stack([obs] * 3, 1).astype(np.float64)
        plain.add_episode(obs=obs, reward=reward, terminals=marks != 0)
        assert plain._plain.read({"obs": obs, "reward": reward}, marks != 0) is not None
        single = reward.astype(np.float32)
        cast.add_episode(obs=obs.astype(np.int32), reward=single, terminals=marks)
        assert cast._plain.read({"obs": obs.astype(np.int32), "reward": reward}, marks) is None
    assert_equal_buffers(plain, cast)


def test_what_is_no_plain_row_is_left_to_the_checks():
    buffer = EpisodicReplayBuffer(9, {"obs": ((), np.int64)}, terminals="single")
    obs, marks = np.arange(4), np.zeros(4, bool)
    read_only = marks.copy()
    read_only.flags.writeable = False
    assert buffer._plain.read({"obs": obs}, marks) is not None
    for values, terminals in [
        ({"obs": obs}, None),
        ({"obs": obs}, read_only),
        ({"obs": obs}, np.zeros(8, bool)[::2]),
        ({"obs": obs}, np.zeros(5, bool)),
        ({"obs": obs}, np.zeros(4, np.uint8)),
        ({"obs": obs[:, None]}, marks),
        ({"obs": np.int64(3)}, marks),
        ({"obs": obs[:0]}, marks[:0]),
        ({"obs": np.arange(10)}, np.zeros(10, bool)),
        ({"obs": obs[:1]}, marks[:1]),
        ({"obs": obs, "reward": obs}, marks),
        ({"other": obs}, marks),
    ]:
        assert buffer._plain.read(values, terminals) is None
    buffer.add_episode(obs=obs, terminals=read_only)
    assert buffer.rows == 1
