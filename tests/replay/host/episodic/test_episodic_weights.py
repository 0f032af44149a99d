"""Weighted rows and starts: χ² against enumeration, what comes and goes, and mutants."""

import numpy as np
import pytest
from support.episodes import HORIZONS, assert_same, buffer_of, cells, filled, fits

from loopless import process
from loopless.compiled.tree import balance
from loopless.reference import episodic as reference
from loopless.replay.host.episodic.arena import NO_ALIASES

DRAWS = 200_000
both_laws = pytest.mark.parametrize("law", ["episode", "transition"])
STEPS = [  # weights of the steps of ROWS; 9 stands where they must not matter
    [[2, 9], [1, 0, 9, 4, 9], [1, 2, 3, 9, 0.5, 9, 0, 1, 9], [3, 1, 4, 1, 5, 9, 2, 6, 9]],
    [[0, 9], [0, 1, 9, 1, 9], [0, 0, 5, 9, 0, 9, 0, 0, 9], [0, 0, 0, 0, 0, 0, 0, 1e-9, 9]],
    [[1, 9], [0, 0, 9, 0, 9], [0, 0, 0, 9, 0, 9, 0, 0, 9], [1e6, 1, 1e-6, 0, 7, 7, 7, 7, 9]],
    [[1, 1], [1] * 5, [1] * 9, [1] * 9],
]


def pairs_of(batch):
    """How often each (obs, next_obs) was drawn."""
    both = np.stack([batch["obs"].ravel(), batch["next_obs"].ravel()], 1)
    names, counts = np.unique(both, axis=0, return_counts=True)
    return {tuple(name): int(count) for name, count in zip(names.tolist(), counts, strict=True)}


@both_laws
@pytest.mark.parametrize("weights", [[1, 0, 2.5, 0.5], [0, 0, 3, 0], [0, 1, 1, 0]])
def test_every_pair_is_as_likely_as_enumerated_with_weighted_rows(law, weights):
    buffer = filled(law=law, seed=3)
    buffer.set_row_weights(weights)
    law_of_pairs = reference.pair_probabilities(HORIZONS, 0.9, law, weights=weights)
    assert fits(cells(buffer.sample(DRAWS, discount=0.9)), law_of_pairs)
    even = reference.pair_probabilities(HORIZONS, 0.9, law)
    assert not fits(cells(buffer.sample(DRAWS, discount=0.9)), even)
    buffer.set_row_weights(None)
    assert fits(cells(buffer.sample(DRAWS, discount=0.9)), even)


@both_laws
@pytest.mark.parametrize("rows", [None, [1, 2, 0.5, 3], [0, 1, 0, 1]])
@pytest.mark.parametrize("steps", STEPS)
def test_every_pair_is_as_likely_as_enumerated_with_weighted_steps(law, rows, steps):
    buffer = filled(law=law, seed=4)
    buffer.set_row_weights(rows)
    buffer.set_step_weights(np.concatenate(steps))
    law_of_pairs = reference.pair_probabilities(
        HORIZONS, 0.9, law, weights=rows, step_weights=steps
    )
    assert fits(cells(buffer.sample(DRAWS, discount=0.9)), law_of_pairs)
    buffer.set_step_weights(None)
    even = reference.pair_probabilities(HORIZONS, 0.9, law, weights=rows)
    assert fits(cells(buffer.sample(DRAWS, discount=0.9)), even)


@both_laws
def test_groups_of_weighted_starts_share_their_row_and_follow_the_law(law):
    buffer = filled(law=law, seed=5)
    buffer.set_step_weights(np.concatenate(STEPS[0]))
    batch = buffer.sample(DRAWS, discount=0.9, episodes=DRAWS // 4)
    groups = batch["obs"][:, 0].reshape(-1, 4)
    assert (groups == groups[:, :1]).all()
    law_of_pairs = reference.pair_probabilities(HORIZONS, 0.9, law, step_weights=STEPS[0])
    one_of_each = {name: array[3::4] for name, array in batch.items()}
    assert fits(cells(one_of_each), law_of_pairs)


@both_laws
def test_weights_go_with_their_rows_and_what_is_new_weighs_one(law):
    rng = np.random.default_rng(0)
    beside = buffer_of([0] * 4, [0, 1, 1, 0, 0, 0], [0] * 5, capacity=17, law=law)
    for turn in range(7):
        if turn in (1, 4):
            beside.weigh_steps(rng.integers(0, 4, len(beside.buffer)))
        if turn in (2, 5):
            beside.weigh_rows(rng.integers(1, 4, beside.buffer.rows))
        beside.check(draws=500)
        counts = pairs_of(beside.buffer.sample(50_000, discount=0.9))
        assert fits(counts, beside.law(0.9))
        beside.add([[0, 0, 0], [0, 1, 1, 0, 0]][turn % 2])


@pytest.mark.parametrize("skew", [1, 20, 100])
def test_alias_tables_hold_the_law_to_rounding_and_never_a_start_of_weight_0(skew):
    rng = np.random.default_rng(skew)
    before, first = np.cumsum([0, 1, 2, 3, 30, 300, 3000]), 1234
    weights = rng.random(before[-1]) ** skew * (rng.random(before[-1]) < 0.6)
    weights[before[:-1]] += 0.1  # none of the rows weighs 0
    size = before[-1] + 5
    places = (first + np.arange(before[-1])) % size  # around the seam
    pairs, aliases = np.zeros((size, 2), np.int32), np.full((size, 2), np.nan)
    pairs[places, 0] = np.arange(before[-1])
    totals = np.zeros(len(before) - 1)
    balance(weights, pairs, before + first, aliases, totals)
    kept, other = aliases[places].T
    rows = np.repeat(np.arange(len(totals)), np.diff(before))
    other = other.astype(int) + before[rows]
    kept = np.where(other == np.arange(len(kept)), 1, kept)
    assert ((kept >= 0) & (kept <= 1)).all()
    assert (rows[other] == rows).all()
    chance = kept.copy()
    np.add.at(chance, other, 1 - kept)
    chance /= np.diff(before)[rows]
    np.testing.assert_allclose(totals, np.add.reduceat(weights, before[:-1]), rtol=1e-12)
    np.testing.assert_allclose(chance, weights / totals[rows], rtol=1e-9, atol=0)
    assert (chance[weights == 0] == 0).all()


def ignored(arena):
    arena.aliases = NO_ALIASES  # every start alike, rows by weight


def of_the_next_step(arena):
    arena.weigh_steps(np.roll(arena.in_order(arena.step_weights), 1))


def stale(arena):
    arena.aliases[:] = np.roll(arena.aliases, 3, 0)


def other_law(arena):
    arena.by_row = not arena.by_row
    arena._changes += 1


def drawn_always(arena):
    arena.aliases[:, 0] = 1


@pytest.mark.parametrize("mutate", [ignored, of_the_next_step, stale, other_law, drawn_always])
@both_laws
def test_the_chi_square_rejects_wrong_weights(law, mutate):
    buffer = filled(law=law, seed=6)
    buffer.set_step_weights(np.concatenate(STEPS[0]))
    law_of_pairs = reference.pair_probabilities(HORIZONS, 0.9, law, step_weights=STEPS[0])
    assert fits(cells(buffer.sample(DRAWS, discount=0.9)), law_of_pairs)
    mutate(buffer._arena)
    assert not fits(cells(buffer.sample(DRAWS, discount=0.9)), law_of_pairs)


def test_the_list_catches_a_new_row_that_is_not_weighed(monkeypatch):
    beside = buffer_of([0] * 4, [0, 1, 1, 0], [0] * 4, law="transition")
    beside.weigh_steps([1, 0, 1, 1] * 3)
    monkeypatch.setattr(beside.buffer._arena, "_balance", lambda rows: None)  # a mutant
    beside.add([0] * 4)
    assert not fits(pairs_of(beside.buffer.sample(50_000, discount=0.9)), beside.law(0.9))


WRONG = [
    ([1, 2], "weights must be numbers [3]; received (2,) int64"),
    ([[1, 1, 1]], "weights must be numbers [3]; received (1, 3)"),
    (["a", "b", "c"], "weights must be numbers [3]"),
    ([True, True, False], "weights must be numbers [3]; received (3,) bool"),
    ([[1], [1, 2], 3], "weights must be numbers [3]"),
    ([1, -1, 1], "weights must be finite and at least 0; number 1 is -1.0"),
    ([1, 1, np.nan], "number 2 is nan"),
    ([1, np.inf, 1], "number 1 is inf"),
    ([0, 0, 0], "weights must not all be 0"),
    ([1e-250, 0, 0], "e-250, not to between 1e-200 and 1e+200"),
    ([1e250, 0, 0], "e+250, not to between 1e-200 and 1e+200"),
    ([1e308, 1e308, 0], "weights sum to inf, not to between 1e-200 and 1e+200"),
]


@both_laws
@pytest.mark.parametrize(("weights", "said"), WRONG)
@pytest.mark.parametrize("of", ["rows", "steps"])
def test_wrong_weights_are_refused_and_nothing_changes(law, of, weights, said):
    if of == "rows":
        buffer = buffer_of([0] * 2, [0] * 2, [0] * 2, law=law).buffer
        buffer.set_row_weights([1, 2, 3])
        buffer.set_step_weights([3, 2, 1, 2, 3, 4])
        setter = buffer.set_row_weights
    else:
        buffer = buffer_of([0] * 3, law=law).buffer
        buffer.set_step_weights([3, 2, 1])
        setter = buffer.set_step_weights
    before = buffer.state()
    with pytest.raises(ValueError, match=r"set_(row|step)_weights: ") as refused:
        setter(weights)
    assert said in str(refused.value)
    assert "The buffer is unchanged." in str(refused.value)
    assert_same(before, buffer.state())


def test_weights_that_leave_no_start_together_are_refused():
    buffer = buffer_of([0] * 3, [0] * 3).buffer
    buffer.set_step_weights([0, 0, 5, 1, 1, 0])
    with pytest.raises(ValueError, match="some start must have one, in a row that has one"):
        buffer.set_row_weights([1, 0])
    buffer.set_row_weights([1, 2])
    assert set(buffer.sample(100, discount=0)["indices"].tolist()) == {3, 4}


def test_an_empty_buffer_takes_no_weights():
    buffer = buffer_of(capacity=9).buffer
    for setter in (buffer.set_row_weights, buffer.set_step_weights):
        with pytest.raises(ValueError, match="weights must not all be 0"):
            setter(np.zeros(0))
        setter(None)


def test_weights_take_bytes_only_while_they_are_used(monkeypatch):
    buffer = buffer_of([0] * 5, capacity=1000).buffer
    bare = buffer.nbytes
    buffer.set_step_weights(np.ones(5))
    assert buffer.nbytes == bare + 24 * 1000
    buffer.set_step_weights(None)
    assert buffer.nbytes == bare
    monkeypatch.setattr(process, "free_memory_bytes", lambda: 10_000)
    before = buffer.state()
    with pytest.raises(ValueError, match=r"weights of 1,000 steps need 24\.0 kB"):
        buffer.set_step_weights(np.ones(5))
    assert_same(before, buffer.state())
