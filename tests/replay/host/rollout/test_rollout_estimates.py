"""What `finish` estimates: worked numbers, both autoreset modes, normalisation, dtypes."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from support.rollouts import (
    ENVS,
    FINISH,
    LAST_VALUES,
    both_libraries,
    fill,
    host,
    make,
    row_of,
    step_of,
)

from loopless.replay.host.rollout import buffer as rollout


@both_libraries
@pytest.mark.parametrize(
    ("truncated", "expected"),
    [
        ([False, False, False, True], [1.0625, 0.75, 11.8575, 4.85]),
        ([False, True, False, True], [3.8975, 7.05, 11.8575, 4.85]),
    ],
)
def test_worked_example_with_truncation_at_the_end_and_inside(library, truncated, expected):
    buffer = make(library, steps=4, envs=1, fields={}, float_dtype="float64")
    rows = zip([1, 1, 10, 2], [0.5, 0.25, 1, 0.75], [0, 7 * truncated[1], 0, 4], strict=True)
    for t, (reward, value, final) in enumerate(rows):
        terminated = t == 1 and not truncated[1]
        step = {"rewards": reward, "values": value, "final_values": final}
        buffer.add(env=0, terminated=terminated, truncated=truncated[t], **step)
    buffer.finish(gamma=0.9, lambda_=0.5)
    np.testing.assert_allclose(host(buffer.advantages)[:, 0], expected, rtol=1e-12)


@both_libraries
@settings(max_examples=25, deadline=None)
@given(
    ends=st.lists(st.sampled_from(["", "", "terminated", "truncated"]), min_size=1, max_size=10),
    window=st.integers(1, 7),
)
def test_next_step_rows_equal_the_same_episodes_in_same_step_rows(library, ends, window):
    """One stream, window by window, with a reset row after each end and without."""
    stream = []
    for t, end in enumerate(ends):
        stream.append(row_of(t, end))
        if end:  # the reset row: its observation is the final one, the rest means nothing
            stream.append(row_of(100 + t) | {"values": stream[-1]["final"], "reset": True})
    same_step = make(library, steps=window, envs=1)
    next_step = make(library, steps=window, envs=1, autoreset="next_step")
    for first in range(0, len(stream), window):
        rows = stream[first : first + window]
        after = stream[first + window :] or [{"values": stream[-1]["final"]}]
        for row in rows:
            next_step.add(env=0, **step_of(row))
            if not row["reset"]:
                same_step.add(env=0, final_values=row["final"], **step_of(row))
        next_step.finish([after[0]["values"]], **FINISH)
        valid = host(next_step.valid)
        assert valid[:, 0].tolist() == [not row["reset"] for row in rows]
        if valid.any():
            same_step.finish([after[0]["values"]], **FINISH)
            for name in ("row", "advantages", "returns"):
                real = host(next_step[name])[valid]
                np.testing.assert_allclose(real, host(same_step[name])[:, 0], atol=1e-5)
        next_step.clear()
        same_step.clear()


@both_libraries
def test_after_a_reset_by_hand_the_first_row_is_a_step(library):
    buffer = make(library, autoreset="next_step")
    fill(buffer, 1, end="terminated")
    buffer.clear(after_reset=True)
    fill(buffer, 1)
    assert len(buffer) == ENVS


def check_normalized_over_valid_rows(library):
    buffer = make(library)
    fill(buffer, 3)
    buffer.add(env=0, **step_of(row_of(20)))
    buffer.finish(LAST_VALUES, **FINISH, normalize_advantages=True)
    kept = host(buffer.advantages)[host(buffer.valid)]
    assert kept.size == 10
    np.testing.assert_allclose([kept.mean(), kept.std()], [0, 1], atol=1e-5)
    assert not host(buffer.advantages)[~host(buffer.valid)].any()


@both_libraries
def test_advantages_are_normalized_over_valid_rows(library):
    check_normalized_over_valid_rows(library)


@both_libraries
def test_normalizing_over_padding_is_caught(library, monkeypatch):
    right = rollout.normalize
    monkeypatch.setattr(rollout, "normalize", lambda x, valid, **options: right(x, **options))
    with pytest.raises(AssertionError):
        check_normalized_over_valid_rows(library)


@both_libraries
def test_min_std_is_the_floor_of_the_deviation(library):
    buffer = make(library)
    fill(buffer, 3)
    buffer.finish(LAST_VALUES, **FINISH)
    plain = host(buffer.advantages).copy()
    options = {"normalize_advantages": True, "min_std": 100.0}
    buffer.finish(LAST_VALUES, **FINISH, **options)
    np.testing.assert_allclose(host(buffer.advantages), (plain - plain.mean()) / 100, atol=1e-6)


@pytest.mark.parametrize("dtype", ["bfloat16", torch.float16, np.float64])
def test_half_and_double_floats_are_stored_in_pytorch(dtype):
    buffer = make("torch", fields={"x": ((), dtype)}, float_dtype=dtype)
    step = {"rewards": [1.0] * 3, "values": [0.5] * 3, "terminated": [1, 1, 1]}
    x = torch.ones(3, dtype=buffer["x"].dtype)
    buffer.add(x=x, truncated=[0, 0, 0], **step)
    buffer.finish(gamma=0.5, lambda_=0.5)
    assert buffer.advantages.tolist() == [[0.5] * 3]
    assert buffer.advantages.dtype == x.dtype
