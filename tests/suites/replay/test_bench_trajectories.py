"""The check of episodic pairs: right ones pass, each known mistake fails."""

import random

import numpy as np
import pytest

from loopless.reference import episodic as reference
from suites.replay.cases import DISCOUNT, SEGMENT, STEPS, Trajectories

CASE = Trajectories(3, 256)
HORIZONS = np.array(reference.horizons(CASE.terminals[0], "double"))


def pairs(rows, starts, gaps):
    flat = CASE.obs.reshape(-1, 2)
    first = rows * STEPS + starts
    return {"obs": flat[first], "next_obs": flat[first + gaps]}


def drawn(count=20_000, discount=DISCOUNT, off=0, seed=0, starts=None):
    """Pairs by the closed form, with horizons off by so much."""
    generator = np.random.default_rng(seed)
    rows = generator.integers(CASE.rows, size=count)
    places = generator.choice(np.flatnonzero(HORIZONS) if starts is None else starts, count)
    n = np.maximum(HORIZONS[places] + off, 1)
    u = generator.random(count)
    gaps = np.floor(np.log1p(-u * (1 - discount**n)) / np.log(discount)).astype(int) + 1
    last = CASE.size - 1 - (rows * STEPS + places)
    return rows, places, np.minimum(np.minimum(gaps, n), last)


def test_rows_have_thirteen_whole_segments_marked_twice():
    ends = reference.segment_ends(CASE.terminals[0], "double")
    assert np.flatnonzero(ends).tolist() == list(range(SEGMENT - 1, STEPS, SEGMENT))
    assert CASE.terminals[0].sum() == 26


def test_right_pairs_pass():
    assert CASE.problem(pairs(*drawn())) == ""


def test_the_twin_passes():
    found = reference.search_sample(CASE.terminals, "double", DISCOUNT, 300, random.Random(0))
    assert CASE.problem(pairs(*np.array(found).T)) == ""


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        ({"discount": 0.88}, "χ²"),
        ({"off": -1}, "χ²"),
        ({"off": 1}, "cross"),
        ({"off": 10}, "cross"),
        ({"starts": np.arange(STEPS - 1)}, "cross"),
        ({"starts": np.flatnonzero(HORIZONS)[: 12 * 76]}, "χ²"),
    ],
)
def test_wrong_pairs_fail(wrong, reason):
    assert reason in CASE.problem(pairs(*drawn(**wrong)))


def test_a_row_that_is_never_drawn_fails():
    rows, starts, gaps = drawn()
    assert "χ²" in CASE.problem(pairs(np.minimum(rows, 1), starts, gaps))


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"gap": np.ones(20_000, int)}, "gaps are not"),
        ({"indices": np.zeros(20_000, int)}, "indices are not"),
        ({"next_obs": np.zeros((20_000, 2), np.float32)}, "cross"),
        ({"obs": np.full((20_000, 2), 0.5, np.float32)}, "never stored"),
        ({"obs": np.full((20_000, 2), 9, np.float32)}, "cross"),
        ({"obs": np.tile(np.float32([1, 0]), (20_000, 1))}, "mixed up"),
    ],
)
def test_reports_that_do_not_fit_the_pairs_fail(change, reason):
    assert reason in CASE.problem(pairs(*drawn()) | change)


def test_right_reports_pass():
    rows, starts, gaps = drawn()
    beside = {"gap": gaps, "indices": rows * STEPS + starts}
    assert CASE.problem(pairs(rows, starts, gaps) | beside) == ""


def test_labels_say_what_is_done():
    assert CASE.label == "episodic, 256 of 3k"
