"""The episodic buffer at its edges, by their numbers in the specification.

Case 11 and what 13 and 14 ask of gaps stand in `test_episodic_laws.py`, 19 in
`test_episodic_saved.py`.
"""

import importlib.util
from pathlib import Path

import numpy as np
import pytest
from support.episodes import FIELDS, Beside, assert_same, buffer_of, starts_of

from loopless.replay.host.episodic.buffer import EpisodicReplayBuffer

EXAMPLES = Path(__file__).parents[4] / "examples"


def test_case_01_a_row_of_two_steps_has_one_pair():
    beside = buffer_of([0, 0])
    batch = beside.check()
    assert set(batch["indices"].tolist()) == {0}
    assert set(batch["gap"].tolist()) == {1}


@pytest.mark.parametrize("convention", ["double", "single", "none"])
def test_case_02_a_row_of_one_step_is_refused_and_nothing_changes(convention):
    beside = buffer_of([0, 0, 0], convention=convention, capacity=4)
    before = beside.buffer.state()
    with pytest.raises(ValueError, match="no step with a later one"):
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
        ([0, 1, 0, 0], "run of 1 marks from step 1"),
        ([1, 1, 1, 0], "run of 3 marks from step 0"),
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
    with pytest.raises(ValueError, match="2 steps, more than capacity=1"):
        buffer.add_episode(obs=[1, 2], terminals=[0, 0])
    with pytest.raises(ValueError, match="no step with a later one"):
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
        "6 steps, more than capacity=5",
        "action has shape (4, 3), expected (6, 3)",
        "terminals has shape (3,), expected (6,)",
        "color is unknown",
        "Nothing was added",
    ):
        assert said in str(refused.value)
    assert_same(before, beside.buffer.state())


def test_case_17_a_step_that_is_not_valid_splits_its_segment():
    beside = Beside(9, "none")
    beside.add([0] * 9, valid=[1, 1, 1, 0, 1, 1, 1, 1, 1])
    assert starts_of(beside) == [0, 1, 4, 5, 6, 7]


@pytest.fixture(scope="module")
def example():
    spec = importlib.util.spec_from_file_location("episodic_gaps", EXAMPLES / "episodic_gaps.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.slow  # it draws a picture
def test_case_18_goals_in_the_middle_of_rows_fit_the_closed_form(example, tmp_path):
    picture = tmp_path / "gaps.png"
    fits = example.main(["--rows", "16", "--batches", "2000", "--out", str(picture)])
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert all(0.01 < fit < 2 for fit in fits.values())  # 0: compared with itself


def test_case_18_goals_in_the_middle_of_rows_are_never_crossed_in_a_hundred_thousand_batches(
    example,
):
    beside, rng = Beside(16 * 200), np.random.default_rng(0)
    for _ in range(20):
        beside.add(example.walk(rng, 200)["terminals"].tolist())
    horizon = np.zeros(beside.next, np.int64)
    for row in beside.rows:
        horizon[row["obs"]] = row["horizons"]
    for _ in range(100):
        batch = beside.buffer.sample(16, discount=0.99, batches=1000)
        assert (batch["gap"] >= 1).all()
        assert (batch["gap"] <= horizon[batch["obs"]]).all()
        assert (batch["next_obs"] == batch["obs"] + batch["gap"]).all()
