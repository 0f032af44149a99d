"""The n-gram model: equal to counting in a loop, and a probability."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.compare import assert_close

from loopless.reference import text as loops
from loopless.text.ngram import NgramModel

TEXT = np.random.default_rng(0).integers(0, 5, 60) % 4  # 4 never occurs


@given(
    tokens=st.lists(st.integers(0, 4), min_size=3, max_size=40),
    window=st.lists(st.integers(0, 4), min_size=2, max_size=8),
    order=st.integers(1, 3),
    alpha=st.floats(0.1, 10),
    delta=st.floats(0.1, 3),
)
def test_probabilities_are_those_of_the_loop(tokens, window, order, alpha, delta):
    options = {"order": order, "alpha": alpha, "delta": delta}
    got = NgramModel(np.array(tokens), 5, **options).log_probabilities(window)
    expected = [
        loops.ngram_log_probability(tokens, 5, window[:t], window[t], **options)
        for t in range(1, len(window))
    ]
    assert_close(got, expected)


@pytest.mark.parametrize("order", [1, 2, 3, 4])
def test_probabilities_sum_to_one_after_any_context(order):
    model = NgramModel(TEXT, 5, order=order)
    contexts = np.array([[0, 1, 2], [3, 3, 3], [4, 4, 4], [0, 4, 1]])
    windows = np.stack([np.c_[contexts, np.full(4, token)] for token in range(5)])
    totals = np.exp(model.log_probabilities(windows)[..., -1]).sum(0)
    assert_close(totals, np.ones(4))


def test_windows_may_have_any_leading_axes():
    model, windows = NgramModel(TEXT, 5), TEXT[:48].reshape(2, 3, 8)
    got = model.log_probabilities(windows)
    assert got.shape == (2, 3, 7)
    assert_close(got[1, 2], model.log_probabilities(windows[1, 2]))
    assert model.cross_entropy(windows) == pytest.approx(-got.mean())


def test_a_rule_of_three_is_learnt_and_noise_is_not():
    periodic = np.tile([0, 1, 2, 0, 2, 1], 500)
    assert NgramModel(periodic, 5).cross_entropy(periodic[:300]) < 0.05
    noise = np.random.default_rng(1).integers(0, 4, 20_000)
    fresh = np.random.default_rng(2).integers(0, 4, 20_000)
    assert NgramModel(noise, 4).cross_entropy(fresh) == pytest.approx(np.log(4), abs=0.02)


def test_ids_of_a_token_file_are_taken_as_they_are():
    small = NgramModel(TEXT.astype(np.uint16), 60_000).log_probabilities(TEXT.astype(np.uint16))
    assert_close(small, NgramModel(TEXT, 60_000).log_probabilities(TEXT))


def test_all_that_is_wrong_is_said_at_once():
    with pytest.raises(ValueError, match=r"^ngram: ") as error:
        NgramModel(np.array([0, 7, 1]), 5, order=30, alpha=0)
    for part in ("order 30 over 5 tokens", "received 0 and 1.0", "n ≥ 30; received shape (3,)"):
        assert part in str(error.value)
    with pytest.raises(ValueError, match="tokens go from 0 to 7, but the vocabulary from 0 to 4"):
        NgramModel(np.array([0, 7, 1]), 5)
