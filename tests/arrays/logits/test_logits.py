"""The engines over rows of logits: every way to the k largest, exponentials, chunks."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from loopless.arrays.logits import jax as jax_top_k
from loopless.arrays.logits import numpy as numpy_vocabulary
from loopless.compiled import logits as compiled


def rows(kind: str, shape, seed=0) -> np.ndarray:
    x = np.random.default_rng(seed).standard_normal(shape).astype(np.float32)
    if kind == "ties":
        return np.round(x)
    if kind == "equal":
        return np.zeros_like(x)
    if kind == "forbidden":  # more than half of them, so that they are among the largest
        return np.where(np.arange(shape[-1]) % 9 < 8, -np.inf, x).astype(np.float32)
    return x


pytestmark = pytest.mark.slow  # each of the kernels compiles for seconds
KINDS = ("plain", "ties", "equal", "forbidden")
ENGINES = {
    name: jax.jit(partial(getattr(jax_top_k, name), k=3))
    for name in ("select", "insert_in_order", "select_in_blocks")
}
every_kind = pytest.mark.parametrize("kind", KINDS)


@every_kind
@pytest.mark.parametrize("engine", ENGINES)
def test_jax_engines_agree_with_the_librarys_top_k(engine, kind):
    x = jnp.asarray(rows(kind, (5, 150)))
    value, tokens = ENGINES[engine](x)
    values, expected = lax.top_k(x, 3)
    np.testing.assert_array_equal(tokens, expected)
    np.testing.assert_array_equal(value, values[:, 0])


def test_jax_sorts_for_many():
    x = jnp.asarray(rows("ties", (2, 100)))
    np.testing.assert_array_equal(jax_top_k.top_k(x, 40)[1], lax.top_k(x, 40)[1])


@every_kind
@pytest.mark.parametrize(
    ("size", "k"),
    [
        (1, 1),
        (65, 16),
        (256, 30),
        (257, 5),
        (300, 300),
        (1024, 5),
        (4096, 3),
        (4161, 70),
        (9001, 4),
    ],
)
def test_numba_takes_the_largest_and_of_equals_the_first(kind, size, k):
    x = rows(kind, (3, size))
    x[:, -1] = 1.0  # not all of a row may be forbidden
    (top, peak, *_), wrong = numpy_vocabulary.survey(x, k, 1.0, 0.0, None)
    assert wrong == -1
    expected = np.argsort(-x, -1, kind="stable")[:, :k]
    np.testing.assert_array_equal(top, expected)
    np.testing.assert_array_equal(peak, x.max(-1))


@every_kind
@pytest.mark.parametrize(("count", "size", "k"), [(64, 1, 1), (300, 65, 16), (128, 256, 40)])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_short_rows_side_by_side_are_surveyed_as_long_rows_are(kind, count, size, k, dtype):
    x = rows(kind, (count, size)).astype(dtype)
    x[:, -1] = 1.0
    counted = np.arange(count) % 5 != 3
    x[~counted] = np.nan
    starts, tolerance = np.arange(count) * size, 1e-12 if dtype == np.float64 else 2e-6
    for rate in (1.0, 0.5):
        call = x.ravel(), starts, size, dtype(rate)
        short, long = (
            (np.zeros((k, count), int), np.zeros((k, count), dtype), np.zeros((3, count), dtype))
            for _ in range(2)
        )
        compiled._survey_short(*call, *short)
        compiled._survey_long(*call, counted, *long)
        short, long = ([field[:, counted] for field in fields] for fields in (short, long))
        np.testing.assert_array_equal(short[0], long[0])
        np.testing.assert_array_equal(short[1], long[1])
        np.testing.assert_allclose(short[2], long[2], tolerance, tolerance)


def test_rows_that_are_not_counted_are_not_read_and_come_out_0():
    x = rows("plain", (200, 20))
    counted = np.arange(200) % 5 != 3
    x[~counted] = np.nan
    for floor in (0.0, 1e-10):
        survey, unsound = numpy_vocabulary.survey(x, 3, 1.0, floor, counted)
        assert unsound == -1
        for field in survey:
            assert not field[~counted].any()
            assert np.isfinite(field[counted]).all()


@pytest.mark.parametrize("wrong", [np.nan, np.inf])
def test_a_short_row_that_is_no_distribution_is_named(wrong):
    x = rows("plain", (200, 20))
    x[150, 7] = x[190, 3] = wrong
    assert numpy_vocabulary.survey(x, 3, 1.0, 0.0, None)[1] == 150
    x[150] = -np.inf
    assert numpy_vocabulary.survey(x, 3, 1.0, 0.0, None)[1] == 150
    assert numpy_vocabulary.survey(x, 3, 1.0, 0.0, np.arange(200) < 150)[1] == -1


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("rate", [1.0, 0.5])
def test_numba_sums_are_those_of_numpy(dtype, rate):
    x = (30 * np.random.default_rng(1).standard_normal((4, 3001))).astype(dtype)
    (_, _, log_total, entropy, mean), _ = numpy_vocabulary.survey(x, 1, rate, 0.0, None)
    shifted = (x.astype(float) - x.max(-1, keepdims=True)) * rate
    total = np.log(np.exp(shifted).sum(-1))
    log_pi = shifted - total[:, None]
    tolerance = 1e-12 if dtype == np.float64 else 1e-6
    np.testing.assert_allclose(log_total, total, atol=tolerance)
    np.testing.assert_allclose(entropy, -(np.exp(log_pi) * log_pi).sum(-1), atol=10 * tolerance)
    np.testing.assert_array_equal(mean, -entropy)


@pytest.mark.parametrize("kind", ["sliced", "half", "read-only", "turned"])
def test_pieces_hold_every_row_once_in_order(kind, monkeypatch):
    monkeypatch.setattr(numpy_vocabulary, "CHUNK", 20)
    x = np.arange(4 * 3 * 5, dtype=np.float32).reshape(4, 3, 5)
    x = {
        "sliced": x[1:, :-1],
        "half": x.astype(np.float16),
        "read-only": np.frombuffer(x.tobytes(), np.float32).reshape(x.shape),
        "turned": x[::-1],
    }[kind]
    pieces = list(numpy_vocabulary._pieces(x, np.dtype(np.float32)))
    assert (len(pieces) == 1) == (kind == "sliced")
    found = [memory[s : s + 5] for _, memory, starts in pieces for s in starts]
    np.testing.assert_array_equal(found, x.reshape(-1, 5))
    assert [i for rows, _, _ in pieces for i in range(rows.start, rows.stop)] == list(
        range(len(found))
    )
