"""What ALLO learns from: files in all their forms, what is wrong with them, and by which law."""

import jax
import numpy as np
import pytest
from allo_cases import tiny
from scipy import stats

from loopless.replay.device import random_words
from loopless.runs.failures import BadConfig
from loopless.train.allo.data import move_to_device, read_source
from loopless.train.allo.files import read_trajectories

RNG = np.random.default_rng(0)
LENGTHS = np.array([6, 0, 4])
ROWS = RNG.integers(0, 5, (3, 6, 2)).astype(np.float64)
SINGLE = np.zeros((3, 6), bool)
SINGLE[0, 2] = SINGLE[0, 5] = SINGLE[2, 3] = True
DOUBLE = SINGLE | np.roll(SINGLE, -1, 1)
COUNTED = np.arange(6) < LENGTHS[:, None]


@pytest.fixture
def save(tmp_path):
    def file(**arrays):
        np.savez(tmp_path / "mine.npz", **arrays)
        return tmp_path / "mine.npz"

    return file


FORMS = {
    "padded": {"obs": ROWS, "terminals": SINGLE, "lengths": LENGTHS},
    "flat, in rows": {"obs": ROWS[COUNTED], "terminals": SINGLE[COUNTED], "lengths": LENGTHS},
    "flat": {"obs": ROWS[COUNTED], "terminals": SINGLE[COUNTED]},
    "marks as a column": {"obs": ROWS[COUNTED], "terminals": 255 * SINGLE[COUNTED][:, None]},
    "double": {"obs": ROWS, "terminals": DOUBLE, "lengths": LENGTHS},
}


@pytest.mark.parametrize("form", FORMS)
def test_every_form_holds_the_same_pairs(form, save):
    convention = "double" if form == "double" else "single"
    read = read_trajectories(save(**FORMS[form]), convention, "transition")
    found = read.table[read.buffer["obs"]]
    np.testing.assert_array_equal(found, ROWS[COUNTED])
    assert read.table.dtype == np.float32
    assert len(np.unique(read.table, axis=0)) == len(read.table)
    assert read.buffer.starts == 7
    horizons = read.buffer._arena.pairs[:7]
    np.testing.assert_array_equal(horizons[:, 0], [0, 1, 3, 4, 6, 7, 8])
    np.testing.assert_array_equal(horizons[:, 1], [2, 1, 2, 1, 3, 2, 1])


def test_rows_without_marks_are_episodes(save):
    read = read_trajectories(save(obs=ROWS, lengths=LENGTHS), "none", "transition")
    assert read.buffer.rows == 2
    assert read.buffer.starts == 8


def test_large_observations_are_not_compared(save):
    images = np.zeros((4, 10, 10, 3), np.uint8)
    read = read_trajectories(save(obs=images, terminals=[0, 0, 0, 1]), "single", "transition")
    assert read.table.shape == images.shape
    assert read.table.dtype == np.uint8


BAD = [
    ({"terminals": SINGLE}, "there is no obs"),
    ({"obs": ROWS[0]}, "there are no terminals"),
    ({"obs": np.array(["a", "b"]), "terminals": [0, 1]}, "received <U1"),
    ({"obs": np.zeros((0, 2)), "terminals": []}, "received float64 (0, 2)"),
    ({"obs": ROWS[0], "terminals": [0, 1]}, "the shape (6,) of obs; received (2,)"),
    ({"obs": ROWS, "terminals": SINGLE, "lengths": [6, 0]}, "lengths has 2 rows"),
    (
        {"obs": ROWS, "terminals": SINGLE, "lengths": [7, 0, 4]},
        "but obs has 3 rows of 6",
    ),
    ({"obs": ROWS[0], "terminals": SINGLE[0], "lengths": [3, 2]}, "lengths sum up to 5"),
    ({"obs": ROWS[0], "terminals": SINGLE[0], "lengths": [[6]]}, "received int64 (1, 1)"),
    ({"obs": [[0.0], [np.nan], [np.inf]], "terminals": [0, 0, 1]}, "2 of 3 observations are not"),
    ({"obs": ROWS[0], "terminals": SINGLE[0], "weights": -np.ones(6)}, "weights must be finite"),
    ({"obs": ROWS[0], "terminals": SINGLE[0], "weights": np.zeros(6)}, "not all 0"),
    ({"obs": ROWS[0], "terminals": np.ones(6)}, "row 0"),
]


@pytest.mark.parametrize(("arrays", "message"), BAD, ids=[message for _, message in BAD])
def test_what_cannot_be_learned_from_is_said(arrays, message, save):
    with pytest.raises(BadConfig) as told:
        read_trajectories(save(**arrays), "single", "transition")
    assert message in str(told.value)


def test_single_marks_read_as_double_are_refused_with_advice(save):
    with pytest.raises(BadConfig, match="--terminals says how ends are marked"):
        read_trajectories(save(**FORMS["padded"]), "double", "transition")


@pytest.mark.parametrize("text", ["no zip", ""])
def test_what_is_no_npz_is_said(text, tmp_path):
    (tmp_path / "mine.npz").write_text(text)
    with pytest.raises(BadConfig, match="cannot read"):
        read_trajectories(tmp_path / "mine.npz", "single", "transition")
    np.save(tmp_path / "mine.npy", np.zeros(3))
    with pytest.raises(BadConfig, match=r"is not a whole \.npz"):
        read_trajectories(tmp_path / "mine.npy", "single", "transition")


@pytest.mark.parametrize("wrong", [np.ones(11), np.full(12, np.nan), -np.ones(12), np.zeros(12)])
def test_weights_of_another_kind_are_refused(wrong, tmp_path):
    np.save(tmp_path / "w.npy", wrong)
    with pytest.raises(BadConfig, match=r"must hold .12. finite numbers of at least 0"):
        read_source(tiny(weights=str(tmp_path / "w.npy")))


# --- by which law --------------------------------------------------------------------------------


def drawn(config, source, count=40_000):
    """How often each state was a start."""
    sampler, (data, *_) = move_to_device(config, source)
    words = random_words(jax.random.key(1), (3, count))
    states, later = jax.jit(sampler.pairs)(data, words)
    return np.bincount(states, minlength=len(source.table)), np.asarray(later)


@pytest.mark.slow
def test_states_are_drawn_as_often_as_they_were_visited_or_alike_or_by_weights(tmp_path):
    given = np.arange(1.0, 13.0)
    np.save(tmp_path / "w.npy", given)
    plain = read_source(tiny())
    buffer = plain.buffers[0]
    visits = np.bincount(buffer["obs"][buffer._arena.pairs[: buffer.starts, 0]], minlength=12)
    laws = {
        "visits": visits, "uniform": visits / plain.truth.weights,
        str(tmp_path / "w.npy"): visits * given,
    }  # fmt: skip
    for weights, law in laws.items():
        config = tiny(weights=weights)
        counts, _ = drawn(config, read_source(config))
        assert stats.chisquare(counts, law / law.sum() * counts.sum()).pvalue > 1e-4
        told = move_to_device(config, read_source(config))[1][0].law
        np.testing.assert_allclose(told, law / law.sum(), rtol=1e-5)


def test_by_episodes_rows_are_drawn_alike(save):
    path = save(**FORMS["flat, in rows"])
    config = tiny(
        data=path, grid="GridRoom-4", terminals="single", law="episode", components=2, batch_size=7
    )
    source = read_source(config)
    law = np.zeros(len(source.table))
    starts = np.array([0, 1, 3, 4, 6, 7, 8])
    np.add.at(law, source.buffers[0]["obs"][starts], [1 / 8] * 4 + [1 / 6] * 3)
    np.testing.assert_allclose(move_to_device(config, source)[1][0].law, law, rtol=1e-6)
    counts, _ = drawn(config, source)
    kept = law > 0
    assert stats.chisquare(counts[kept], law[kept] * counts.sum()).pvalue > 1e-4


def test_the_truth_follows_the_weights():
    uniform = read_source(tiny(weights="uniform", grid="....\n.XX.\nS...\n")).truth
    visits = read_source(tiny(grid="....\n.XX.\nS...\n")).truth
    np.testing.assert_allclose(uniform.weights, 0.1)
    assert visits.weights.max() > 0.15
    assert np.abs(uniform.values - visits.values).max() > 1e-3


def test_weights_of_a_file_s_steps_are_followed(save):
    weights = np.where(np.arange(10) == 3, 1.0, 0.0)
    path = save(**FORMS["flat"], weights=weights)
    config = tiny(data=path, grid="GridRoom-4", terminals="single", components=2, batch_size=7)
    source = read_source(config)
    counts, later = drawn(config, source, 100)
    start = source.buffers[0]["obs"][3]
    assert counts[start] == 100
    assert set(later) <= set(source.buffers[0]["obs"][4:6])


def test_a_fingerprint_tells_other_data():
    one, same, other = (read_source(tiny(seed=seed)).digest for seed in (0, 0, 1))
    assert (one == same).all()
    assert (one != other).any()
    assert (read_source(tiny(doors=1)).digest != one).any()
