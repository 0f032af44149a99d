"""Windows: a pure function of seed and step, each once an epoch, evenly spread."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from loopless.reference import text as loops
from loopless.text.windows import ORDERS, Windows, random_bits, shuffle

TOKENS = np.arange(1000, dtype=np.uint16)


@given(st.integers(1, 3000), st.integers(0, 2**64 - 1))
def test_shuffling_permutes(count, key):
    got = shuffle(np.arange(count, dtype=np.uint64), count, np.full(count, key, np.uint64))
    assert sorted(got.tolist()) == list(range(count))


@given(st.integers(1, 2**40), st.integers(0, 2**64 - 1), st.data())
def test_a_place_is_that_of_the_loop(count, key, data):
    place = data.draw(st.integers(0, count - 1))
    got = shuffle(np.array([place], np.uint64), count, np.array([key], np.uint64))
    assert got.tolist() == [loops.shuffled_place(place, count, key)]


@pytest.mark.parametrize("order", ORDERS)
@given(
    tokens=st.integers(2, 200), seed=st.integers(0, 2**64 - 1), step=st.integers(0, 10**9),
    batch=st.integers(1, 9), data=st.data(),
)  # fmt: skip
def test_starts_are_those_of_the_loop(order, tokens, seed, step, batch, data):
    block = data.draw(st.integers(1, tokens - 1))
    windows = Windows(TOKENS[:tokens], block, seed=seed, order=order)
    expected = [loops.window_starts(tokens, block, seed, order, step + i, batch) for i in range(2)]
    assert windows.starts(step, batch, 2).tolist() == expected


@pytest.mark.parametrize("batch", [1, 4, 7, 200])
def test_every_window_comes_once_an_epoch(batch):
    windows = Windows(TOKENS, 10, seed=3)
    assert windows.count == 99
    steps = -(-3 * 99 // batch)
    starts = windows.starts(0, batch, steps).reshape(-1)
    for epoch in range(3):
        own = starts[epoch * 99 : (epoch + 1) * 99]
        assert sorted(own.tolist()) == list(range(0, 990, 10))
    assert starts[:99].tolist() != starts[99:198].tolist()
    assert windows.tokens_per_epoch == 990
    assert windows.epoch(99, batch) == batch


@pytest.mark.parametrize("order", ORDERS)
def test_a_batch_is_its_windows_of_ids(order):
    windows = Windows(TOKENS[::-1].copy(), 10, seed=1, order=order)
    starts, got = windows.starts(5, 4, 3), windows.batches(5, 4, 3)
    assert got.shape == (3, 4, 11)
    assert got.dtype == np.int32
    np.testing.assert_array_equal(got, 999 - (starts[..., None] + np.arange(11)))
    np.testing.assert_array_equal(windows.batch(6, 4), got[1])


def test_seeds_and_steps_differ():
    one, other = (Windows(TOKENS, 10, seed=seed).starts(0, 50) for seed in (0, 1))
    assert (one != other).mean() > 0.9
    assert (one != Windows(TOKENS, 10, seed=0).starts(1, 50)).all()


def test_random_windows_begin_anywhere_equally_often():
    windows = Windows(TOKENS[:30], 10, seed=1, order="random")
    counts = np.bincount(windows.starts(0, 4000).reshape(-1), minlength=20)
    assert len(counts) == 20
    assert ((counts - 200) ** 2 / 200).sum() < 45  # χ² with 19 degrees: 1 in 1,000 is above 43.8


@pytest.mark.parametrize("count", [7, 12, 60])
def test_over_many_epochs_every_window_is_everywhere_equally_often(count):
    epochs = 4000
    keys = np.repeat(random_bits(9, np.arange(epochs, dtype=np.uint64)), count)
    got = shuffle(np.tile(np.arange(count, dtype=np.uint64), epochs), count, keys)
    got = got.reshape(epochs, count)
    for place in (0, count // 2, count - 1):
        counts = np.bincount(got[:, place].astype(int), minlength=count)
        expected = epochs / count
        degrees = count - 1
        # Five deviations of χ².
        assert ((counts - expected) ** 2 / expected).sum() < degrees + 5 * (2 * degrees) ** 0.5
    follows = np.mean(got[:, 1:] == got[:, :-1] + 1)
    assert follows == pytest.approx(1 / count, rel=0.2)


def test_validation_windows_are_spread_and_always_the_same():
    windows = Windows(TOKENS, 10)
    assert windows.fixed(4)[:, 0].tolist() == [0, 240, 490, 740]
    assert windows.fixed(4).shape == (4, 11)
    assert windows.fixed(10**6).shape == (99, 11)


def test_all_that_is_wrong_is_said_at_once():
    with pytest.raises(ValueError, match=r"order='sorted' is unknown.*block must be an integer"):
        Windows(TOKENS, 0, order="sorted")
    with pytest.raises(ValueError, match="received float64 of shape"):
        Windows(np.zeros(9), 3)


@pytest.mark.parametrize(("tokens", "fits"), [(0, False), (10, False), (11, True)])
def test_a_text_shorter_than_a_window_is_refused(tokens, fits):
    if fits:
        assert Windows(TOKENS[:tokens], 10).count == 1
    else:
        with pytest.raises(ValueError, match=f"{tokens} tokens are too few for a window of 10"):
            Windows(TOKENS[:tokens], 10)
