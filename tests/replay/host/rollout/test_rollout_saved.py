"""A restored buffer goes on as if nothing had happened; a wrong state changes nothing."""

import numpy as np
import pytest
from support.rollouts import (
    ENVS,
    FINISH,
    LAST_VALUES,
    STEPS,
    as_bytes,
    both_autoresets,
    both_libraries,
    fill,
    host,
    make,
    order,
    row_of,
    step_of,
)


@both_libraries
@both_autoresets
def test_a_restored_buffer_continues_byte_for_byte(library, autoreset):
    buffer, other = (make(library, autoreset=autoreset, seed=seed) for seed in (1, 2))
    fill(other, STEPS, end="truncated")
    fill(buffer, 2, end="terminated" if autoreset == "same_step" else "")
    buffer.add(env=1, **step_of(row_of(30, "truncated")))
    order(buffer)
    buffer.clear(env=1)
    other.restore(buffer.state())
    assert as_bytes(other.state()) == as_bytes(buffer.state())
    for both in (buffer, other):
        both.add(**step_of([row_of(40 + env) for env in range(ENVS)]))
        both.finish(LAST_VALUES, **FINISH)
    assert as_bytes(other.state()) == as_bytes(buffer.state())
    assert order(other).tolist() == order(buffer).tolist()
    np.testing.assert_array_equal(host(other.valid), host(buffer.valid))
    assert bool(host(buffer.valid)[0, 1]) == (autoreset == "same_step")


def test_a_state_moves_between_libraries_and_is_a_copy():
    first, second = make("numpy"), make("torch")
    fill(first, 2)
    state = first.state()
    second.restore(state)
    first["rewards"][:] = 9.0
    second["values"][:] = 9.0
    fresh = make("numpy")
    fill(fresh, 2)
    assert as_bytes(state) == as_bytes(fresh.state())


WRONG_NUMBERS = {
    "text": ({"seed": "x"}, "seed must be an integer of at least 0; received 'x'"),
    "a negative count": ({"draws": -1}, "draws must be an integer of at least 0; received -1"),
    "floats for flags": ({"previous_end": np.zeros(ENVS)}, r"end must be an array \(3,\) bool"),
    "few lengths": ({"lengths": np.zeros(2, np.int64)}, r"lengths must be an array \(3,\) int64"),
    "negative lengths": ({"lengths": np.array([0, -1, 2])}, "lengths must be from 0 to 6"),
    "many things": ({"steps": 7, "seed": 0.5, "seeds": 1}, "seeds is unknown.*7 steps.*seed must"),
}


@both_libraries
@pytest.mark.parametrize("case", WRONG_NUMBERS)
def test_a_state_with_wrong_numbers_changes_nothing(library, case):
    change, message = WRONG_NUMBERS[case]
    buffer = make(library)
    fill(buffer, 2)
    before = as_bytes(buffer.state())
    with pytest.raises(ValueError, match=rf"^RolloutBuffer.restore: .*{message}.* is unchanged\.$"):
        buffer.restore(buffer.state() | change)
    assert as_bytes(buffer.state()) == before
