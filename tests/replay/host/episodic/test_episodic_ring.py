"""Rows that come and go: the episodic buffer beside a plain list of rows, and what it catches."""

import copy
import os
import tempfile

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule
from support.episodes import Beside, assert_same, buffer_of

from loopless.replay.host.episodic.buffer import EpisodicReplayBuffer

WEIGHTS = st.sampled_from([0, 0, 0.5, 1, 3.25, 1e-30, 1e30])


@st.composite
def rows_of_marks(draw, convention):
    marks = draw(st.lists(st.booleans(), min_size=1, max_size=8))
    if convention == "double":
        marks = [mark for mark in marks for _ in range(2 if mark else 1)]
    return [False, *marks, False, False]


class BesideAList(RuleBasedStateMachine):
    """Adds, weights and copies in any order; after each the buffer draws what the list allows."""

    @initialize(
        capacity=st.integers(20, 50),
        law=st.sampled_from(["episode", "transition"]),
        convention=st.sampled_from(["double", "single", "none"]),
        data=st.data(),
    )
    def begin(self, capacity, law, convention, data):
        self.beside = Beside(capacity, convention, law=law)
        self.add(data)

    @rule(data=st.data())
    def add(self, data):
        for _ in range(data.draw(st.integers(1, 4))):
            self.beside.add(data.draw(rows_of_marks(self.beside.convention)))

    @rule(data=st.data(), rows=st.booleans())
    def weigh(self, data, rows):
        beside = self.beside
        count = beside.buffer.rows if rows else len(beside.buffer)
        weights = data.draw(st.lists(WEIGHTS, min_size=count, max_size=count))
        before = beside.buffer.state()
        try:
            (beside.weigh_rows if rows else beside.weigh_steps)(weights)
        except ValueError:
            assert_same(before, beside.buffer.state())
            assert beside.chance(**{"weights" if rows else "steps": weights}) == 0

    @rule(rows=st.booleans())
    def weigh_alike(self, rows):
        (self.beside.weigh_rows if rows else self.beside.weigh_steps)(None)

    @rule(how=st.sampled_from(["file", "state", "copy"]))
    def replace(self, how):
        one = self.beside.buffer
        if how == "file":
            with tempfile.TemporaryDirectory() as folder:
                one.save(os.path.join(folder, "buffer"))
                other = EpisodicReplayBuffer.load(os.path.join(folder, "buffer"))
        elif how == "state":
            other = Beside(one.capacity, one.terminals, law=one.law, seed=7).buffer
            other.restore(one.state())
        else:
            other = copy.deepcopy(one)
        assert_same(one.state(), other.state())
        assert_same(one.sample(20, discount=0.9), other.sample(20, discount=0.9))
        self.beside.buffer = other

    @rule(discount=st.sampled_from([0, 0.3, 0.9, 1]), group=st.sampled_from([1, 5]))
    def draw(self, discount, group):
        beside = self.beside
        beside.check(discount=discount, draws=60)
        batch = beside.buffer.sample(60, discount=discount, episodes=60 // group)
        assert beside.wrong_pairs(batch) == 0
        rows = beside.buffer.rows_of(batch["indices"]).reshape(-1, group)
        assert (rows == rows[:, :1]).all()


BesideAList.TestCase.settings = settings(max_examples=60, stateful_step_count=20)
TestBesideAList = BesideAList.TestCase


def test_the_list_catches_a_stale_row(monkeypatch):
    beside = buffer_of([0] * 6, [0, 1, 1, 0, 0, 0])
    # A mutant: the row in the way stays in the index when it is overwritten
    monkeypatch.setattr(beside.buffer._arena.queue, "drop", lambda rows: None)
    beside.add([0, 0])
    assert beside.wrong_pairs(beside.buffer.sample(300, discount=1)) > 0


@pytest.mark.parametrize("segments", [1, 2])
def test_the_list_catches_a_row_read_from_where_it_is_not(segments):
    beside = buffer_of([0] * 6, [0, 1, 1, 0, 0, 0] if segments == 2 else [0] * 6)
    beside.check(discount=1)
    # Mutants: one step off in the table of rows, or in the list of starts
    if segments == 1:
        beside.buffer._arena.queue.begins[:] += 1
        beside.buffer._arena.queue.ends[:] += 1
    else:
        beside.buffer._arena.pairs[5:, 0] += 1
    assert beside.wrong_pairs(beside.buffer.sample(300, discount=1)) > 0


def test_rows_are_found_by_flat_index():
    beside = buffer_of([0] * 5, [0] * 5, [0] * 4, capacity=15)
    beside.add([0] * 3)
    assert beside.buffer.offsets.tolist() == [5, 10, 0]
    assert beside.buffer.rows_of([5, 9, 10, 13, 0, 2]).tolist() == [0, 0, 1, 1, 2, 2]
    with pytest.raises(ValueError, match="no step is stored at 3, 14"):
        beside.buffer.rows_of([0, 3, 14, 5])


def test_a_row_that_replaces_all_others_is_counted_right_when_the_table_moves():
    buffer = EpisodicReplayBuffer(9, {"obs": ((), np.int64)}, terminals="none")
    for _ in range(15):
        buffer.add_episode(obs=np.arange(2))
    buffer.add_episode(obs=np.arange(9))
    assert buffer.starts == 8
    assert set(buffer.sample(200, discount=0.9)["obs"].tolist()) == set(range(8))
