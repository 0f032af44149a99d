"""What the episodic sampler draws, cell by cell: χ² over all (row, start, gap), and its mutants."""

import math
import random

import numpy as np
import pytest
from numba import njit
from support.episodes import HORIZONS, ROWS, cells, filled, fits, likely

from loopless.compiled import episodic
from loopless.reference import episodic as reference

DRAWS = 200_000
DISCOUNTS = [0.0, 0.2, 0.9, 0.99, 1.0]
MASK = 2**64 - 1


@pytest.mark.parametrize("discount", DISCOUNTS)
@pytest.mark.parametrize("law", ["episode", "transition"])
@pytest.mark.parametrize("episodes", [None, 1000])
def test_every_pair_is_as_likely_as_enumerated(law, discount, episodes):
    batch = filled(law=law, seed=1).sample(DRAWS, discount=discount, episodes=episodes)
    if episodes is None:
        assert fits(cells(batch), reference.pair_probabilities(HORIZONS, discount, law))
    else:  # items of one group share their row: only its first is an independent draw
        first = {name: array[:: DRAWS // episodes] for name, array in batch.items()}
        assert fits(cells(first), reference.pair_probabilities(HORIZONS, discount, law))
        groups = batch["obs"][:, 0].reshape(episodes, -1)
        assert (groups == groups[:, :1]).all()


@pytest.mark.parametrize("law", ["episode", "transition"])
@pytest.mark.parametrize("max_horizon", [1, 2, 3, 100])
def test_every_pair_is_as_likely_as_enumerated_under_a_cap(law, max_horizon):
    batch = filled(law=law, seed=2).sample(DRAWS, discount=0.9, max_horizon=max_horizon)
    assert fits(cells(batch), reference.pair_probabilities(HORIZONS, 0.9, law, max_horizon))


@pytest.mark.parametrize("discount", [0.2, 1.0])
def test_goals_follow_the_same_law(discount):
    batch = filled(seed=4).sample_goals(1000, discount=discount, batches=200)
    assert fits(cells(batch, "goal"), reference.pair_probabilities(HORIZONS, discount))


@pytest.mark.parametrize("law", ["episode", "transition"])
def test_starts_follow_the_law_of_starts(law):
    batch = filled(law=law, seed=5).sample_starts(DRAWS)
    rows, counts = np.unique(batch["obs"], axis=0, return_counts=True)
    found = {(int(r), int(t), 1): int(count) for (r, t), count in zip(rows, counts, strict=True)}
    assert fits(found, reference.pair_probabilities(HORIZONS, 0.0, law))


@pytest.mark.parametrize("law", ["episode", "transition"])
def test_starts_are_those_of_the_pairs_that_the_same_seed_draws(law):
    one, other = filled(law=law, seed=5), filled(law=law, seed=5)
    for _ in range(3):  # the generator moves on alike
        wanted = one.sample(50, discount=0.9)["indices"].tolist()
        assert other.sample_starts(50)["indices"].tolist() == wanted


def test_consecutive_calls_and_items_are_independent():
    buffer = filled([[0] * 9], convention="none", law="transition", seed=6)
    starts = buffer.sample(DRAWS, discount=0.5)["indices"]
    pairs = starts[:-1] * 8 + starts[1:]
    counts = np.bincount(pairs, minlength=64)
    statistic = ((counts - counts.sum() / 64) ** 2 / (counts.sum() / 64)).sum()
    assert likely(statistic, 63)


@pytest.mark.parametrize("discount", DISCOUNTS)
def test_the_twin_that_searches_follows_the_same_law(discount):
    drawn = reference.search_sample(ROWS, "double", discount, 20_000, random.Random(0))
    counts = {}
    for cell in drawn:
        counts[cell] = counts.get(cell, 0) + 1
    assert fits(counts, reference.pair_probabilities(HORIZONS, discount))


def with_horizons(change):
    """A buffer whose horizons went wrong: `change` makes them of marks, row by row."""
    buffer = filled(seed=7)
    wrong = [n for row in ROWS for n in change(row)]
    room = np.minimum(wrong, len(wrong) - 1 - np.arange(len(wrong)))
    starts = np.flatnonzero(room > 0)
    store = buffer._arena
    store.pairs[: len(starts), 0] = starts
    store.pairs[: len(starts), 1] = room[starts]
    before = np.searchsorted(starts, np.cumsum([0, *map(len, ROWS)]))
    store.queue.starts_before[:] = before
    return buffer


MUTANTS = {
    "the legacy crossing": reference.legacy_horizons,
    "one too far": lambda row: [n + 1 for n in reference.horizons(row, "double")],
    "one too few": lambda row: [max(n - 1, 0) for n in reference.horizons(row, "double")],
    "marks unseen": lambda row: reference.horizons([0] * len(row), "double"),
}


@pytest.mark.parametrize("discount", [0.9, 1.0])
@pytest.mark.parametrize("name", MUTANTS)
def test_the_chi_square_rejects_wrong_horizons(name, discount):
    law = reference.pair_probabilities(HORIZONS, discount)
    right = with_horizons(lambda row: reference.horizons(row, "double"))
    assert fits(cells(right.sample(DRAWS, discount=discount)), law)
    wrong = with_horizons(MUTANTS[name])
    assert not fits(cells(wrong.sample(DRAWS, discount=discount)), law)


@pytest.mark.parametrize(
    ("drawn", "claimed"), [("episode", "transition"), ("transition", "episode")]
)
def test_case_11_the_two_laws_are_told_apart_where_lengths_differ(drawn, claimed):
    counts = cells(filled(law=drawn, seed=8).sample(DRAWS, discount=0.9))
    assert fits(counts, reference.pair_probabilities(HORIZONS, 0.9, drawn))
    assert not fits(counts, reference.pair_probabilities(HORIZONS, 0.9, claimed))


@pytest.mark.parametrize("discount", [0.87, 0.93])
def test_the_chi_square_rejects_another_discount(discount):
    counts = cells(filled(seed=9).sample(DRAWS, discount=0.9))
    assert not fits(counts, reference.pair_probabilities(HORIZONS, discount))


@njit
def beyond(x, n, kind, log_discount):
    out = np.empty(x.size, np.int64)
    for i in range(x.size):
        k = x[i]
        if kind == episodic.GEOMETRIC:
            k = np.uint64(episodic.geometric(x[i], log_discount))
        out[i] = episodic.within(k, np.uint64(n), kind)
    return out


@njit
def logarithms(u):
    out = np.empty(u.size)
    for i in range(u.size):
        out[i] = episodic.natural_log(u[i])
    return out


def test_the_logarithm_is_right_to_a_few_units_in_the_last_place():
    rng = np.random.default_rng(0)
    roots = [math.sqrt(0.5), math.nextafter(math.sqrt(0.5), 0), math.sqrt(2)]
    ends = [2.0**-53, 2.0**-52, 0.5, 1 - 2.0**-53, 1.0, *roots]
    u = np.append(1 - rng.random(100_000), np.append(np.exp2(-53 * rng.random(100_000)), ends))
    error = np.abs(logarithms(u) - np.log(u))
    assert (error <= 4 * np.spacing(np.abs(np.log(u)))).all()
    assert logarithms(np.ones(1))[0] == 0


EXTREMES = [1e-320, 1e-6, 0.2, 0.5, 0.9, 0.99, 0.999999, np.nextafter(1.0, 0.0)]


@pytest.mark.parametrize("n", [1, 2, 10, 10**6, 2**31 - 2])
@pytest.mark.parametrize("discount", EXTREMES)
def test_case_14_the_ends_of_the_generators_range_stay_below_n(discount, n):
    ends = np.array([0, 1, 2**11 - 1, 2**11, MASK - 2**11, MASK], np.uint64)
    k = beyond(ends, n, episodic.GEOMETRIC, np.log(discount))
    assert ((k >= 0) & (k < n)).all()
    assert k[-1] == 0  # u = 1
    farthest = np.floor(np.log(2.0**-53) / np.log(discount))
    assert k[0] == int(farthest) % n  # u = 2⁻⁵³


@pytest.mark.parametrize("n", [1, 2, 10, 10**6, 2**31 - 2])
def test_case_14_uniform_gaps_reach_both_ends(n):
    ends = np.array([0, MASK], np.uint64)
    assert beyond(ends, n, episodic.UNIFORM, 0.0).tolist() == [0, n - 1]


@pytest.mark.parametrize("discount", [1e-6, 0.2, 0.9, 0.999999])
@pytest.mark.parametrize("n", [1, 3, 10**6])
def test_case_13_gaps_given_n_lie_close_to_their_distribution(discount, n):
    x = np.random.default_rng(0).integers(0, MASK, 50_000, np.uint64, endpoint=True)
    k = np.sort(beyond(x, n, episodic.GEOMETRIC, np.log(discount)))
    at_most = np.searchsorted(k, k, side="right") / k.size
    law = np.expm1((k + 1) * np.log(discount)) / np.expm1(n * np.log(discount))
    assert np.abs(at_most - law).max() < 2.5 / k.size**0.5


def test_one_seed_gives_one_sequence_and_another_gives_another():
    first, same, other = (filled(seed=s).sample(500, discount=0.9) for s in (1, 1, 2))
    assert first["indices"].tolist() == same["indices"].tolist()
    assert first["gap"].tolist() == same["gap"].tolist()
    assert first["indices"].tolist() != other["indices"].tolist()


def test_many_batches_in_one_call_are_the_batches_of_many_calls():
    one, many = filled(seed=1), filled(seed=1)
    whole = one.sample(7, discount=0.9, batches=5)
    parts = [many.sample(7, discount=0.9) for _ in range(5)]
    for name in whole:
        assert np.array_equal(whole[name], np.stack([part[name] for part in parts]))
