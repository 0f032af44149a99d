"""What the buffer shows of its rows: views, and nothing of an earlier rollout."""

import numpy as np
from support.rollouts import (
    ENVS,
    FIELDS,
    FINISH,
    LAST_VALUES,
    STEPS,
    both_libraries,
    fill,
    host,
    make,
    row_of,
    step_of,
)

from loopless.replay.fields import flatten


@both_libraries
def test_access_is_a_view(library):
    buffer = make(library)
    fill(buffer, 2)
    buffer["rewards"][1, 2] = 7.0
    assert buffer["rewards"].tolist()[1][2] == 7.0


@both_libraries
def test_bytes_are_counted_and_printed(library):
    buffer = make(library, steps=100)
    assert buffer.nbytes == 100 * ENVS * (8 + 8 + 8 + 5 * 4 + 3)
    assert "100 steps × 3 envs" in repr(buffer)
    assert "14.1 kB" in repr(buffer)


@both_libraries
def test_poison_of_an_earlier_rollout_is_never_handed_out(library):
    buffer = make(library)
    poison = {"obs": {"near": np.full((3, 2), np.nan, "f4"), "far": np.full(3, np.nan)}}
    poison |= {"row": np.full(3, -9), "rewards": [np.nan] * 3, "values": [np.nan] * 3}
    for _ in range(STEPS):
        buffer.add(terminated=[True] * 3, truncated=[True] * 3, final_values=[np.nan] * 3, **poison)
    buffer.finish(**FINISH)
    buffer.clear()
    buffer.add(env=1, **step_of(row_of(0)))
    buffer.add(envs=[1, 2], **step_of([row_of(1), row_of(2)]))
    buffer.finish(LAST_VALUES, **FINISH)
    (batch,) = buffer.minibatches()
    (sequence,) = buffer.sequences()
    views = {name: buffer[name] for name in (*flatten("", FIELDS), "final_values", "returns")}
    for arrays in (flatten("", batch), flatten("", sequence), views, buffer.state()):
        for name, array in arrays.items():
            assert np.isfinite(host(array)).all(), name
            assert not (host(array) == -9).any(), name
    assert sequence["row"].shape == (STEPS, 2)  # env 0 has nothing to train on
    assert sequence["valid"].sum() == 3
    assert not host(sequence["row"])[~host(sequence["valid"])].any()


@both_libraries
def test_scrubbing_touches_no_row_that_is_filled_again(library):
    buffer = make(library)
    fill(buffer, STEPS)
    buffer.clear()
    fill(buffer, STEPS)
    buffer._columns.scrub()
    np.testing.assert_array_equal(host(buffer["row"]).ravel(), np.arange(STEPS * ENVS) + 1)


@both_libraries
def test_rows_of_the_rollout_before_the_last_are_not_handed_out_either(library):
    buffer = make(library)
    fill(buffer, STEPS)
    buffer.clear()
    fill(buffer, 2)
    buffer.clear()
    buffer.add(env=0, **step_of(row_of(0)))
    (sequence,) = buffer.sequences()
    assert host(sequence["row"])[:, 0].tolist() == [1] + [0] * (STEPS - 1)
