"""The episodic buffer: edge cases by number, rows beside a plain list, refusals, saved states."""

import importlib.util
import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loopless.reference import episodic as reference
from loopless.replay import memory
from loopless.replay.episodic import EpisodicReplayBuffer

FIELDS = {"obs": ((), np.int64)}
EXAMPLES = Path(__file__).parents[2] / "examples"


class Beside:
    """A buffer, and the list of rows that it should hold; each observation is seen only once."""

    def __init__(self, capacity, convention="double", **options):
        fields = {**FIELDS, "action": ((3,), np.float32)}
        self.buffer = EpisodicReplayBuffer(capacity, fields, terminals=convention, **options)
        self.convention, self.rows, self.next, self.cursor = convention, [], 1, 0

    def add(self, marks, valid=None):
        length, capacity = len(marks), self.buffer.capacity
        obs = np.arange(self.next, self.next + length)
        action = np.repeat(obs[:, None], 3, 1).astype(np.float32)
        self.buffer.add_episode(obs=obs, action=action, terminals=np.array(marks), valid=valid)
        # The list's own account of what must go: whoever is met from the cursor on
        begin = self.cursor
        if begin + length > capacity:
            while self.rows and self.rows[0]["begin"] >= begin:
                self.rows.pop(0)
            begin = 0
        while self.rows and begin <= self.rows[0]["begin"] < begin + length:
            self.rows.pop(0)
        horizons = reference.horizons(marks, self.convention, valid)
        self.rows.append({"begin": begin, "obs": obs.tolist(), "horizons": horizons})
        self.cursor, self.next = begin + length, self.next + length

    def wrong_pairs(self, batch):
        """How many of the pairs drawn do not lie in one live segment."""
        reach = {
            o: (row["begin"] + t, n)
            for row in self.rows
            for t, (o, n) in enumerate(zip(row["obs"], row["horizons"], strict=True))
        }
        wrong = 0
        columns = (batch[name].ravel().tolist() for name in ("obs", "next_obs", "gap", "indices"))
        for start, later, gap, index in zip(*columns, strict=True):
            flat, n = reach.get(start, (-1, 0))
            wrong += not (1 <= gap <= n and later == start + gap and flat == index)
        return wrong

    def check(self, discount=0.9, draws=300):
        buffer = self.buffer
        assert buffer.rows == len(self.rows)
        assert len(buffer) == sum(len(row["obs"]) for row in self.rows)
        assert buffer.starts == sum(n > 0 for row in self.rows for n in row["horizons"])
        assert buffer.offsets.tolist() == [row["begin"] for row in self.rows]
        batch = buffer.sample(draws, discount=discount)
        assert self.wrong_pairs(batch) == 0
        assert (batch["action"] == batch["obs"][:, None]).all()
        return batch


def buffer_of(*rows, convention="double", capacity=None, **options):
    beside = Beside(capacity or sum(map(len, rows)), convention, **options)
    for row in rows:
        beside.add(row)
    return beside


def starts_of(beside, draws=2000):
    return sorted(set(beside.check(draws=draws)["indices"].tolist()))


def test_case_01_a_row_of_two_steps_has_one_pair():
    beside = buffer_of([0, 0])
    batch = beside.check()
    assert set(batch["indices"].tolist()) == {0}
    assert set(batch["gap"].tolist()) == {1}


@pytest.mark.parametrize("convention", ["double", "single", "none"])
def test_case_02_a_row_of_one_step_is_refused_and_nothing_changes(convention):
    beside = buffer_of([0, 0, 0], convention=convention, capacity=4)
    before = beside.buffer.state()
    with pytest.raises(ValueError, match="no step with a successor"):
        beside.buffer.add_episode(obs=[7], action=np.zeros((1, 3), np.float32), terminals=[0])
    assert_same(before, beside.buffer.state())


def test_case_03_the_first_mark_of_a_pair_sees_one_step():
    batch = buffer_of([0, 0, 1, 1, 0, 0]).check(discount=1)
    assert set(batch["gap"][batch["indices"] == 2].tolist()) == {1}


@pytest.mark.parametrize(("row", "starts"), [([0, 1, 1, 0, 0], [0, 1, 3]), ([0, 1, 1, 0], [0, 1])])
def test_case_04_the_second_mark_of_a_pair_is_never_a_start(row, starts):
    assert starts_of(buffer_of(row)) == starts


def test_case_05_a_tail_after_an_end_is_a_segment_of_its_own():
    batch = buffer_of([0, 1, 1, 0, 0, 0]).check(discount=1, draws=2000)
    assert set(batch["gap"][batch["indices"] == 3].tolist()) == {1, 2}


def test_case_06_a_run_of_four_marks_is_two_episodes_of_one_step():
    beside = buffer_of([0, 1, 1, 1, 1, 0, 0])
    assert starts_of(beside) == [0, 1, 3, 5]


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ([0, 1, 0, 0], "1 marked in a row from step 1"),
        ([1, 1, 1, 0], "3 marked in a row from step 0"),
    ],
)
def test_case_07_an_odd_run_is_an_error(row, said):
    beside = buffer_of([0, 0, 0], capacity=20)
    before = beside.buffer.state()
    with pytest.raises(ValueError, match=said):
        beside.add(row)
    assert_same(before, beside.buffer.state())


def test_case_07_an_odd_run_that_the_end_of_the_row_clips_is_none():
    assert starts_of(buffer_of([0, 0, 1, 1, 1])) == [0, 1, 2]


def test_case_08_no_marks_at_all_and_marks_in_some_rows_only():
    assert starts_of(buffer_of([0, 0, 0, 0])) == [0, 1, 2]
    assert starts_of(buffer_of([0, 0, 0], [0, 1, 1, 0, 0], [0, 0])) == [0, 1, 3, 4, 6, 8]


@pytest.mark.parametrize("segments", [101, 10_001])
def test_case_09_many_segments_in_one_row_after_a_poorer_one(segments):
    beside = buffer_of([0, 0, 0], [0, 0, 1, 1] * segments)
    beside.check(discount=1, draws=5000)
    assert beside.buffer.starts == 2 + 3 * segments


@pytest.mark.parametrize(
    "later",
    [[0, 0], [0] * 9, [0, 1, 1, 0, 1, 1], [0] * 12, [0, 1, 1] * 4],
    ids=["shorter", "longer", "rich", "whole, free", "whole, rich"],
)
def test_case_10_an_overwritten_row_is_never_drawn(later):
    beside = buffer_of([0, 1, 1, 0, 0], [0] * 7, capacity=12)
    for _ in range(7):
        beside.add(later)
        beside.check(discount=1)


def test_case_10_rows_that_fill_the_storage_exactly_leave_no_gap():
    beside = buffer_of([0] * 4, [0] * 4, [0] * 4)
    beside.add([0] * 4)
    beside.check()
    assert len(beside.buffer) == 12
    assert beside.buffer.offsets.tolist() == [4, 8, 0]


def test_case_10_a_capacity_of_one_holds_no_row():
    buffer = EpisodicReplayBuffer(1, FIELDS)
    with pytest.raises(ValueError, match="2 steps, the buffer room for 1"):
        buffer.add_episode(obs=[1, 2], terminals=[0, 0])
    with pytest.raises(ValueError, match="no step with a successor"):
        buffer.add_episode(obs=[1], terminals=[0])
    assert len(buffer) == 0


def test_case_12_marks_of_every_spelling_agree():
    marks = np.array([0, 0, 1, 1, 0, 0, 0])
    spellings = [
        marks.astype(bool), marks.astype(np.int8), (marks * 255).astype(np.uint8), -marks,
        marks.astype(np.float32), marks[:, None], marks.tolist(),
    ]  # fmt: skip
    states = []
    for spelling in spellings:
        buffer = EpisodicReplayBuffer(7, FIELDS)
        buffer.add_episode(obs=np.arange(7), terminals=spelling)
        states.append(buffer.state()["horizons"].tolist())
    assert states == [[3, 2, 1, 0, 2, 1, 0]] * len(spellings)


@pytest.mark.parametrize("discount", [0, 1e-6, 0.2, 0.999999, 1])
def test_case_13_every_discount_stays_in_its_segment(discount):
    buffer_of([0, 0], [0, 0, 0, 1, 1, 0, 0], [0] * 5).check(discount=discount)


@pytest.mark.parametrize("discount", [0, 0.2, 0.999999, 1])
def test_case_13_a_horizon_of_a_million(discount):
    length = 1_000_002
    buffer = EpisodicReplayBuffer(length, FIELDS, terminals="none")
    buffer.add_episode(obs=np.arange(length))
    batch = buffer.sample(2000, discount=discount)
    assert (batch["next_obs"] == batch["obs"] + batch["gap"]).all()
    assert batch["next_obs"].max() < length
    assert (batch["gap"].max() > 1) == (discount > 0)


@pytest.mark.parametrize("discount", [0.2, 0.9, 1])
def test_case_15_a_cap_of_one_gives_the_next_step(discount):
    buffer = buffer_of([0] * 30).buffer
    assert set(buffer.sample(500, discount=discount, max_horizon=1)["gap"].tolist()) == {1}


def test_case_16_all_that_is_wrong_is_said_at_once_and_nothing_changes():
    beside = buffer_of([0, 0, 0], capacity=5)
    before = beside.buffer.state()
    with pytest.raises(ValueError, match="add_episode: ") as refused:
        beside.buffer.add_episode(
            obs=np.arange(6), action=np.zeros((4, 3), np.float32), terminals=[0] * 3, color=[1]
        )
    for said in (
        "6 steps, the buffer room for 5",
        "action has shape (4, 3), expected (6, 3)",
        "terminals has shape (3,), expected (6,)",
        "color is unknown",
        "Nothing was added",
    ):
        assert said in str(refused.value)
    assert_same(before, beside.buffer.state())


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ({"obs": [1, 2]}, "terminals is missing"),
        ({"obs": [1.5, 2.5], "terminals": [0, 0]}, "obs has dtype float64, expected int64"),
        ({"obs": 3, "terminals": [0, 0]}, "obs has shape"),
        ({"terminals": [0, 0]}, "obs is missing"),
        ({"obs": [], "terminals": []}, "there is no step|dtype float64"),
        ({"obs": [1, 2], "terminals": ["a", "b"]}, "marks are booleans or numbers"),
        ({"obs": [1, 2], "terminals": [0, 0], "valid": [1]}, "valid has shape"),
    ],
)
def test_wrong_rows_are_refused(row, said):
    buffer = EpisodicReplayBuffer(9, FIELDS)
    with pytest.raises((TypeError, ValueError), match=said):
        buffer.add_episode(**row)
    assert buffer.rows == 0


def test_case_17_a_step_that_is_not_valid_splits_its_segment():
    beside = Beside(9, "none")
    beside.add([0] * 9, valid=[1, 1, 1, 0, 1, 1, 1, 1, 1])
    assert starts_of(beside) == [0, 1, 4, 5, 6, 7]


def test_case_18_goals_in_the_middle_of_rows_fit_the_closed_form(tmp_path):
    path = EXAMPLES / "episodic_gaps.py"
    spec = importlib.util.spec_from_file_location("episodic_gaps", path)
    assert spec is not None
    assert spec.loader is not None
    example = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(example)
    picture = tmp_path / "gaps.png"
    fits = example.main(["--rows", "16", "--batches", "2000", "--out", str(picture)])
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert all(0.3 < fit < 2 for fit in fits.values())
    beside = Beside(16 * 200)
    rng = np.random.default_rng(0)
    for _ in range(20):
        beside.add(example.walk(rng, 200)["terminals"].tolist())
    assert beside.wrong_pairs(beside.buffer.sample(32, discount=0.99, batches=1000)) == 0


def assert_same(one, other):
    assert one.keys() == other.keys()
    for name, value in one.items():
        assert np.asarray(value).dtype == np.asarray(other[name]).dtype
        assert np.asarray(value).tobytes() == np.asarray(other[name]).tobytes(), name


@pytest.mark.parametrize("law", ["episode", "transition"])
@pytest.mark.parametrize("adds", [0, 1, 3, 8, 20])
def test_case_19_a_restored_buffer_goes_on_alike(law, adds):
    beside, rng = Beside(40, law=law, seed=5), np.random.default_rng(adds)
    for _ in range(adds):
        beside.add(([0] * int(rng.integers(2, 6)) + [1, 1]) * int(rng.integers(1, 3)))
        beside.buffer.sample(3, discount=0.5)
    if adds:
        beside.buffer.set_row_weights(rng.random(beside.buffer.rows))
    state = beside.buffer.state()
    other = Beside(40, law=law, seed=9)
    other.add([0, 0, 0, 0])
    other.buffer.restore(state)
    assert_same(state, other.buffer.state())
    beside.next, other.next = 1000, 1000
    for _ in range(8):
        for one in (beside, other):
            one.buffer.add_episode(
                obs=np.arange(7), action=np.zeros((7, 3), np.float32), terminals=[0] * 7
            )
        draws = [one.buffer.sample(50, discount=0.9) for one in (beside, other)]
        assert_same(*draws)
        assert_same(beside.buffer.state(), other.buffer.state())


@pytest.mark.parametrize("law", ["episode", "transition"])
def test_case_19_a_buffer_whose_weighted_rows_are_gone_goes_on_alike(law):
    one, other = (buffer_of([0] * 5, [0] * 3, law=law).buffer for _ in range(2))
    one.set_row_weights([9, 1])
    one.add_episode(obs=[1, 2, 3], action=np.zeros((3, 3), np.float32), terminals=[0] * 3)
    other.restore(one.state())
    assert_same(one.sample(200, discount=0.9), other.sample(200, discount=0.9))


def changed(state, name, change):
    value = change(np.array(state[name])) if change else None
    return {k: v for k, v in state.items() if k != name} | ({name: value} if change else {})


def first_off(array):
    array[0] += 1
    return array


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("lengths", None),
        ("lengths", first_off),
        ("lengths", lambda a: a.astype(np.float32)),
        ("lengths", lambda a: a - a),
        ("horizons", first_off),
        ("horizons", lambda a: a[:-1]),
        ("weights", lambda a: a - 2),
        ("weights", lambda a: a * np.nan),
        ("first", lambda a: 11),
        ("capacity", lambda a: 99),
        ("law", lambda a: 1),
        ("terminals", lambda a: 1),
        ("generator", lambda a: a[:1]),
        ("data/obs", lambda a: a[1:]),
        ("data/obs", lambda a: a.astype(np.int32)),
        ("data/action", None),
    ],
)
def test_a_wrong_state_is_refused_and_nothing_changes(name, change):
    state = buffer_of([0, 1, 1, 0, 0], [0] * 4, capacity=12).buffer.state()
    buffer = buffer_of([0] * 3, capacity=12).buffer
    before = buffer.state()
    with pytest.raises((TypeError, ValueError), match=r"restore: .* The buffer is unchanged\."):
        buffer.restore(changed(state, name, change))
    assert_same(before, buffer.state())


@st.composite
def rows_of_marks(draw, convention):
    marks = draw(st.lists(st.booleans(), min_size=1, max_size=8))
    if convention == "double":
        marks = [mark for mark in marks for _ in range(2 if mark else 1)]
    return [False, *marks, False, False]


@pytest.mark.parametrize("law", ["episode", "transition"])
@pytest.mark.parametrize("convention", ["double", "single", "none"])
@settings(max_examples=20)
@given(data=st.data())
def test_a_buffer_beside_a_list_of_rows(law, convention, data):
    beside = Beside(data.draw(st.integers(20, 50)), convention, law=law)
    for _ in range(data.draw(st.integers(1, 15))):
        beside.add(data.draw(rows_of_marks(convention)))
        beside.check(discount=data.draw(st.sampled_from([0, 0.3, 0.9, 1])), draws=60)


def test_the_list_catches_a_stale_row(monkeypatch):
    beside = buffer_of([0] * 6, [0, 1, 1, 0, 0, 0])
    # A mutant: the row in the way stays in the index when it is overwritten
    monkeypatch.setattr(beside.buffer._store.queue, "drop", lambda rows: None)
    beside.add([0, 0])
    assert beside.wrong_pairs(beside.buffer.sample(300, discount=1)) > 0


def test_batches_go_into_the_callers_arrays():
    one, other = (buffer_of([0] * 9, seed=3).buffer for _ in range(2))
    fresh = one.sample(8, discount=0.9, batches=4)
    out = {name: np.empty_like(array) for name, array in fresh.items()}
    filled = other.sample(8, discount=0.9, batches=4, out=out)
    assert all(filled[name] is out[name] for name in out)
    assert_same(fresh, out)
    starts = other.sample_starts(5)
    assert other.sample_starts(5, out=starts)["obs"] is starts["obs"]


def test_wrong_out_arrays_are_refused_all_at_once_and_nothing_is_drawn():
    buffer = buffer_of([0] * 9).buffer
    out = buffer.sample(8, discount=0.9)
    before = buffer.state()
    out["obs"], out["gap"] = out["obs"][:4], out["gap"].astype(np.int32)
    out["next_obs"] = np.zeros(16, np.int64)[::2]
    del out["indices"]
    with pytest.raises(ValueError, match="sample: ") as refused:
        buffer.sample(8, discount=0.9, out=out)
    for said in ("indices is missing", "out['obs']", "out['gap']", "out['next_obs']"):
        assert said in str(refused.value)
    assert_same(before, buffer.state())


@pytest.mark.parametrize(
    ("call", "said"),
    [
        ({"discount": -0.1}, "discount lies in [0, 1]; received -0.1"),
        ({"discount": 1.1}, "discount lies in [0, 1]"),
        ({"discount": float("nan")}, "discount lies in [0, 1]; received nan"),
        ({"discount": "0.9"}, "discount lies in [0, 1]"),
        ({"batch_size": 0}, "batch_size is an integer from 1 up; received 0"),
        ({"batches": 0}, "batches is an integer from 1 up"),
        ({"max_horizon": 0}, "max_horizon is an integer from 1 up"),
        ({"episodes": 3}, "batch_size=8 is no multiple of episodes=3"),
        ({"episodes": 16}, "batch_size=8 is no multiple of episodes=16"),
    ],
)
def test_wrong_arguments_are_refused(call, said):
    buffer = buffer_of([0] * 9).buffer
    with pytest.raises(ValueError, match=re.escape(said)):
        buffer.sample(**{"batch_size": 8, "discount": 0.9, **call})


def test_an_empty_buffer_says_so():
    buffer = EpisodicReplayBuffer(9, FIELDS)
    with pytest.raises(RuntimeError, match="the buffer is empty"):
        buffer.sample(1, discount=0.9)
    with pytest.raises(RuntimeError, match="the buffer is empty"):
        buffer.rows_of([0])


@pytest.mark.parametrize(
    ("declared", "said"),
    [
        ({"capacity": 0}, "capacity is an integer from 1 up"),
        ({"capacity": 2**31}, "capacity is below 2³¹"),
        ({"seed": -1}, "seed is an integer"),
        ({"terminals": "triple"}, "terminals='triple' is unknown"),
        ({"law": "fair"}, "law='fair' is unknown"),
        ({"fields": {"state": ((), int)}}, 'fields has no "obs"'),
        ({"fields": {"obs": ((), int), "gap": ((), int)}}, "gap is a name of the buffer's own"),
    ],
)
def test_wrong_declarations_are_refused(declared, said):
    with pytest.raises(ValueError, match=said):
        EpisodicReplayBuffer(**{"capacity": 9, "fields": FIELDS, **declared})


def test_what_does_not_fit_is_refused_before_it_is_allocated(monkeypatch):
    monkeypatch.setattr(memory, "free_memory_bytes", lambda: 10**9)
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


@pytest.mark.parametrize("dtype", ["bool", "uint8", "int16", "float32", "float64", "complex128"])
@pytest.mark.parametrize("shape", [(), (1,), (3,), (2, 3), (0,), (5, 8)])
def test_every_shape_and_dtype_comes_back_as_it_was(dtype, shape):
    rng = np.random.default_rng(0)
    fields = {"extra": (shape, dtype), "obs": {"a": (shape, dtype), "b": ((), np.int64)}}
    buffer = EpisodicReplayBuffer(20, fields, terminals="single")
    data = rng.integers(0, 100, (20, *shape)).astype(dtype)
    other = rng.integers(0, 100, (20, *shape)).astype(dtype)
    obs = {"a": data, "b": np.arange(20)}
    buffer.add_episode(obs=obs, extra=other, terminals=[0, 1] * 10)
    batch = buffer.sample(30, discount=1, batches=2)
    assert batch["obs"]["a"].dtype == dtype
    assert np.array_equal(batch["obs"]["a"], data[batch["obs"]["b"]])
    assert np.array_equal(batch["next_obs"]["a"], data[batch["next_obs"]["b"]])
    assert np.array_equal(batch["extra"], other[batch["indices"]])
    assert np.array_equal(buffer["extra"], other)


def test_grouped_draws_share_their_rows():
    beside = buffer_of(*[[0] * 5] * 8)
    batch = beside.buffer.sample(60, discount=0.9, batches=3, episodes=12)
    rows = beside.buffer.rows_of(batch["indices"]).reshape(3, 12, 5)
    assert (rows == rows[..., :1]).all()
    assert len(np.unique(rows)) > 4
    assert beside.wrong_pairs(batch) == 0


def test_rows_are_found_by_flat_index():
    beside = buffer_of([0] * 5, [0] * 5, [0] * 4, capacity=15)
    beside.add([0] * 3)
    assert beside.buffer.offsets.tolist() == [5, 10, 0]
    assert beside.buffer.rows_of([5, 9, 10, 13, 0, 2]).tolist() == [0, 0, 1, 1, 2, 2]
    with pytest.raises(ValueError, match="no step is stored at 3, 14"):
        beside.buffer.rows_of([0, 3, 14, 5])


@pytest.mark.parametrize("weights", [[1, 2], [1, -1, 1], [0, 0, 0], [1, np.nan, 1], [1, np.inf, 1]])
def test_wrong_weights_are_refused(weights):
    buffer = buffer_of([0] * 2, [0] * 2, [0] * 2).buffer
    with pytest.raises(ValueError, match="weights are"):
        buffer.set_row_weights(weights)


def test_weights_go_with_their_rows_and_new_rows_weigh_one():
    beside = buffer_of([0] * 4, [0] * 4, [0] * 4)
    beside.buffer.set_row_weights([5, 0, 0])
    assert set(beside.check()["indices"].tolist()) == {0, 1, 2}
    beside.add([0] * 3)
    assert set(beside.check()["indices"].tolist()) == {0, 1}  # the row that lies there now


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
        ({"lengths": [4, 5]}, "lengths are from 0 to 4"),
        ({"lengths": [4.0, 4.0]}, "lengths is no array"),
        ({"lengths": [4, 1]}, "no step with a successor"),
        ({"lengths": [0, 0]}, "there is no step"),
        ({"terminals": None}, "terminals is missing"),
        ({"terminals": np.eye(2, 4)}, "of row 0 has 1 marked in a row from step 0"),
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
