"""`reference.rollouts`: successor values in both autoreset modes, lagged storage, ragged masks."""

import math

import numpy as np
import pytest

from loopless import reference

NAN = math.nan


@pytest.mark.parametrize(
    ("terminated", "truncated", "final_values", "expected"),
    [
        ([0, 0, 0], [0, 0, 0], None, [2.0, 3.0, 4.0]),
        ([0, 1, 0], [0, 0, 0], None, [2.0, 0.0, 4.0]),
        ([0, 1, 0], [0, 1, 0], None, [2.0, 0.0, 4.0]),
        ([0, 0, 0], [0, 1, 0], [NAN, 9.0, NAN], [2.0, 9.0, 4.0]),
        ([0, 0, 0], [0, 0, 1], [NAN, NAN, 9.0], [2.0, 3.0, 9.0]),
        ([0, 0, 1], [1, 0, 1], [9.0, NAN, NAN], [9.0, 3.0, 0.0]),
    ],
)
def test_same_step_takes_final_values_where_truncated(
    terminated, truncated, final_values, expected
):
    next_values, valid = reference.successor_values(
        [1.0, 2.0, 3.0], 4.0, terminated, truncated, final_values=final_values
    )
    np.testing.assert_array_equal(next_values, expected)
    np.testing.assert_array_equal(valid, [True, True, True])
    assert next_values.dtype == np.float64
    assert valid.dtype == np.bool_


def test_same_step_needs_final_values_where_truncated():
    with pytest.raises(ValueError, match=r"row \(1,\) is truncated but final_values is None"):
        reference.successor_values([1.0, 2.0], 3.0, [0, 0], [0, 1])


@pytest.mark.parametrize(
    ("terminated", "truncated", "previous_end", "next_values", "valid"),
    [
        ([0, 0, 0], [0, 0, 0], None, [2.0, 3.0, 4.0], [1, 1, 1]),
        ([1, 0, 0], [0, 0, 0], None, [0.0, 3.0, 4.0], [1, 0, 1]),
        ([0, 0, 0], [1, 0, 0], None, [2.0, 3.0, 4.0], [1, 0, 1]),
        ([0, 0, 0], [0, 0, 1], None, [2.0, 3.0, 4.0], [1, 1, 1]),
        ([0, 0, 0], [0, 0, 0], True, [2.0, 3.0, 4.0], [0, 1, 1]),
        (
            [0, 1, 0],
            [1, 0, 0],
            None,
            [2.0, 3.0, 4.0],
            [1, 0, 1],
        ),  # flags of a dummy count for nothing
        ([1, 0, 0], [0, 1, 0], True, [2.0, 3.0, 4.0], [0, 1, 0]),
    ],
)
def test_next_step_marks_the_row_after_an_end(
    terminated, truncated, previous_end, next_values, valid
):
    result = reference.successor_values(
        [1.0, 2.0, 3.0],
        4.0,
        terminated,
        truncated,
        autoreset="next_step",
        previous_end=previous_end,
    )
    np.testing.assert_array_equal(result[0], next_values)
    np.testing.assert_array_equal(result[1], np.array(valid, dtype=bool))


@pytest.mark.parametrize("autoreset", ["same_step", "next_step"])
@pytest.mark.parametrize("time_axis", [0, 1, -1])
def test_values_may_hold_one_row_more_instead_of_last_values(time_axis, autoreset):
    rng = np.random.default_rng(0)
    values = rng.normal(size=(5, 3))
    flags = rng.random(size=(2, 4, 3)) < 0.3
    final_values = rng.normal(size=(4, 3))
    previous_end = np.array([False, True, False])
    options = {"autoreset": autoreset, "previous_end": previous_end}
    expected = reference.successor_values(
        values[:-1], values[-1], *flags, final_values=final_values, **options
    )
    result = reference.successor_values(
        np.moveaxis(values, 0, time_axis),
        None,
        *np.moveaxis(flags, 1, range(1, 3)[time_axis]),
        final_values=np.moveaxis(final_values, 0, time_axis),
        time_axis=time_axis,
        **options,
    )
    np.testing.assert_array_equal(np.moveaxis(result[0], time_axis, 0), expected[0])
    np.testing.assert_array_equal(np.moveaxis(result[1], time_axis, 0), expected[1])


def test_a_wrong_number_of_values_is_refused():
    with pytest.raises(ValueError, match=r"values has shape \(4,\), expected \(3,\)"):
        reference.successor_values([1.0, 2.0, 3.0, 4.0], None, [0, 0], [0, 0])


def test_an_unknown_autoreset_is_refused():
    with pytest.raises(ValueError, match="unknown autoreset 'disabled'"):
        reference.successor_values([1.0], 2.0, [0], [0], autoreset="disabled")


@pytest.mark.parametrize("previous_end", [False, True])
def test_both_autoreset_modes_give_the_same_advantages(previous_end):
    """Two episodes, the first truncated at value 7, the second terminated, then a fresh start."""
    rewards = np.array([1.0, 2.0, 3.0, 4.0, 5.0])
    values = np.array([0.1, 0.2, 0.3, 0.4, 0.5])
    terminated = np.array([0, 0, 0, 1, 0], dtype=bool)
    truncated = np.array([0, 1, 0, 0, 0], dtype=bool)
    final_values = np.array([NAN, 7.0, NAN, NAN, NAN])
    next_values, valid = reference.successor_values(
        values, 0.6, terminated, truncated, final_values=final_values
    )
    same_step, _ = reference.gae(
        rewards, values, next_values, terminated, truncated, gamma=0.9, lambda_=0.7, valid=valid
    )

    # The same stream with a dummy row, poisoned, after each end, valued as the final observation.
    real = np.array([0, 1, 3, 4, 6]) + previous_end
    rows = 7 + previous_end
    stream = {name: np.full(rows, NAN) for name in ("rewards", "values")}
    stream |= {name: np.ones(rows, dtype=bool) for name in ("terminated", "truncated")}
    originals = (rewards, values, terminated, truncated)
    for name, x in zip(("rewards", "values", "terminated", "truncated"), originals, strict=True):
        stream[name][real] = x
    stream["values"][2 + previous_end] = 7.0
    next_values, valid = reference.successor_values(
        stream["values"],
        0.6,
        stream["terminated"],
        stream["truncated"],
        autoreset="next_step",
        previous_end=previous_end,
    )
    np.testing.assert_array_equal(np.flatnonzero(valid), real)
    next_step, _ = reference.gae(
        **stream, next_values=next_values, gamma=0.9, lambda_=0.7, valid=valid
    )
    np.testing.assert_array_equal(next_step[real], same_step)
    np.testing.assert_array_equal(next_step[~valid], 0.0)


@pytest.mark.parametrize(
    ("x", "last", "time_axis", "expected"),
    [
        ([1, 2, 3], 4, 0, [2, 3, 4]),
        ([True, False], True, 0, [False, True]),
        ([[1, 2], [3, 4]], [5, 6], 0, [[3, 4], [5, 6]]),
        ([[1, 2], [3, 4]], [5, 6], 1, [[2, 5], [4, 6]]),
        ([[1, 2], [3, 4]], 0, -1, [[2, 0], [4, 0]]),
        ([1.5], 2.5, 0, [2.5]),
    ],
)
def test_unlag_moves_rows_one_step_earlier(x, last, time_axis, expected):
    result = reference.unlag(x, last, time_axis=time_axis)
    np.testing.assert_array_equal(result, expected)
    assert result.dtype == np.asarray(x).dtype


def test_a_lagged_rollout_unlagged_gives_the_same_advantages():
    rng = np.random.default_rng(0)
    rewards, values, next_values = rng.normal(size=(3, 6, 4))
    terminated, truncated = rng.random(size=(2, 6, 4)) < 0.2
    expected = reference.gae(
        rewards, values, next_values, terminated, truncated, gamma=0.9, lambda_=0.7
    )
    stored = [np.concatenate([x[-1:], x[:-1]]) for x in (rewards, terminated, truncated)]
    rewards, terminated, truncated = (
        reference.unlag(late, x[-1])
        for late, x in zip(stored, (rewards, terminated, truncated), strict=True)
    )
    result = reference.gae(
        rewards, values, next_values, terminated, truncated, gamma=0.9, lambda_=0.7
    )
    np.testing.assert_array_equal(result, expected)


@pytest.mark.parametrize(
    ("lengths", "steps", "time_axis", "expected"),
    [
        ([0, 1, 3], 3, 0, [[0, 1, 1], [0, 0, 1], [0, 0, 1]]),
        ([0, 1, 3], 3, 1, [[0, 0, 0], [1, 0, 0], [1, 1, 1]]),
        ([0, 1, 3], 2, -1, [[0, 0], [1, 0], [1, 1]]),
        (2, 3, 0, [1, 1, 0]),
        ([5], 0, 1, np.zeros((1, 0))),
        ([[1], [2]], 2, 1, [[[1], [0]], [[1], [1]]]),
    ],
)
def test_valid_mask_is_true_before_the_length(lengths, steps, time_axis, expected):
    result = reference.valid_mask(lengths, steps, time_axis=time_axis)
    np.testing.assert_array_equal(result, np.array(expected, dtype=bool))
    assert result.dtype == np.bool_
