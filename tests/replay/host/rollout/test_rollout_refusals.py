"""Wrong calls: each is refused with all that is wrong, and leaves the buffer as it was."""

import numpy as np
import pytest
import torch
from support.rollouts import (
    FINISH,
    LAST_VALUES,
    STEP,
    as_bytes,
    both_libraries,
    fill,
    make,
)

from loopless import process
from loopless.replay.casts import NumPyLibrary

WRONG_ARRAYS = {
    "a missing name": ({"row": None}, ValueError, "row is missing"),
    "an unknown name": ({"reward": 1.0}, ValueError, r"reward is unknown \(did you mean rewards\?"),
    "a wrong shape": ({"rewards": np.zeros((3, 1))}, ValueError, r"rewards has shape \(3, 1\)"),
    "a shape that would spread": (
        {"rewards": np.zeros(1, np.float32)},
        ValueError,
        r"rewards has shape \(1,\), expected \(3,\)",
    ),
    "a flattened name": ({"obs/near": 1.0}, ValueError, 'obs/near contains "/"'),
    "rows that differ": ({"rewards": [[1], [2, 3], []]}, ValueError, "parts differ in length"),
    "wide floats": (
        {"obs": {"near": np.zeros((3, 2)), "far": np.zeros(3)}},
        TypeError,
        "obs/near has dtype float64, expected float32",
    ),
    "wide tensors": (
        {"obs": {"near": torch.zeros(3, 2, dtype=torch.float64), "far": torch.zeros(3)}},
        TypeError,
        "obs/near has dtype float64, expected float32",
    ),
    "integers that floats round": (
        {"obs": {"near": np.zeros((3, 2), np.float32), "far": np.arange(3)}},
        TypeError,
        "obs/far has dtype int64, expected float64",
    ),
    "floats for integers": ({"row": np.full(3, 0.5)}, ValueError, "row contains 0.5"),
    "NaN for an integer": ({"row": np.full(3, np.nan)}, ValueError, "row contains nan"),
    "a float beyond its integer": ({"row": np.full(3, 1e19)}, ValueError, "row contains 1e"),
    "text": ({"row": ["a", "b", "c"]}, TypeError, "row has dtype str"),
    "boolean rewards": ({"rewards": [True] * 3}, TypeError, "rewards has dtype bool"),
    "huge rewards": ({"rewards": [1e300] * 3}, ValueError, "rewards contains numbers too large"),
    "complex flags": ({"terminated": np.zeros(3, complex)}, TypeError, "flags are booleans"),
    "float flags": ({"terminated": [0.0, 1.0, 0.5]}, ValueError, "numbers other than 0 and 1"),
    "NaN flags": ({"terminated": [0.0, 1.0, np.nan]}, ValueError, "numbers other than 0 and 1"),
    "integer flags": ({"truncated": [0, 1, 2]}, ValueError, "numbers other than 0 and 1"),
    "env and envs": ({"env": 0, "envs": [0]}, ValueError, "env or envs, not both"),
    "no such env": ({"env": 3}, ValueError, r"from 0 to 2; received 3"),
    "a negative env": ({"env": -1}, ValueError, r"from 0 to 2; received -1"),
    "an env twice": ({"envs": [1, 1, 2]}, ValueError, r"distinct indices \[k\]"),
    "a mask of envs": ({"envs": [True, False, True]}, ValueError, r"distinct indices \[k\]"),
}


def refuses(library, call, error, message, **options):
    """`call(buffer)` raises, and the buffer is as before."""
    buffer = make(library, **options)
    fill(buffer, 2)
    before = as_bytes(buffer.state())
    with pytest.raises(error, match=message) as caught:
        call(buffer)
    assert str(caught.value).startswith("RolloutBuffer")
    assert as_bytes(buffer.state()) == before


@both_libraries
@pytest.mark.parametrize("case", WRONG_ARRAYS)
def test_add_refuses_and_leaves_the_buffer_alone(library, case):
    change, error, message = WRONG_ARRAYS[case]
    step = {name: value for name, value in (STEP | change).items() if value is not None}
    refuses(library, lambda buffer: buffer.add(**step), error, message)


@both_libraries
def test_add_lists_all_that_is_wrong_at_once(library):
    step = STEP | {"rewards": np.zeros(2), "row": np.full(3, 0.5), "extra": 1}
    del step["values"]
    message = "values is missing; extra is unknown; row contains 0.5.*; rewards has shape"
    refuses(library, lambda buffer: buffer.add(**step), ValueError, message)


WRONG_CALLS = {
    "no last values": (lambda b: b.finish(**FINISH), ValueError, "env 0, 1, 2 has not ended"),
    "few last values": (lambda b: b.finish([1.0], **FINISH), ValueError, r"last_values has shape"),
    "text last values": (
        lambda b: b.finish(["a"] * 3, **FINISH),
        TypeError,
        "last_values has dtyp",
    ),
    "bootstraps for nobody": (lambda b: b.bootstrap([1.0]), ValueError, "0 rows are pending"),
    "estimates unknown": (lambda b: b.advantages, RuntimeError, r"Call finish\(\)"),
    "size and count": (lambda b: b.minibatches(2, count=2), ValueError, "not both"),
    "no size": (lambda b: b.minibatches(0), ValueError, "must be at least 1; received 0"),
    "many batches": (lambda b: b.minibatches(count=7), ValueError, "do not make 7 batches"),
    "nothing left": (lambda b: b.minibatches(7, drop_last=True), ValueError, "no batch of 7"),
    "penalty for nobody": (lambda b: b.end_with_penalty(9, 0.0), ValueError, "received 9"),
    "text penalty": (lambda b: b.end_with_penalty(0, "a"), TypeError, "rewards has dtype str"),
    "clear of nobody": (lambda b: b.clear(env=9), ValueError, "received 9"),
    "another shape": (lambda b: b.restore(make(steps=5).state()), ValueError, "has 5 steps, the"),
    "other envs": (lambda b: b.restore(make(envs=2).state()), ValueError, "has 2 envs, the"),
    "other fields": (lambda b: b.restore(make(fields={}).state()), ValueError, "row is missing"),
    "other floats": (
        lambda b: b.restore(make(float_dtype="float64").state()),
        TypeError,
        "rewards has dtype float64, expected float32",
    ),
    "other autoreset": (
        lambda b: b.restore(make(autoreset="next_step").state()),
        ValueError,
        "data/final_values is missing",
    ),
    "broken lengths": (
        lambda b: b.restore(b.state() | {"lengths": np.array([9, 9, 9])}),
        ValueError,
        "lengths must be from 0 to 6",
    ),
}


@both_libraries
@pytest.mark.parametrize("case", WRONG_CALLS)
def test_a_wrong_call_is_refused_and_leaves_the_buffer_alone(library, case):
    refuses(library, *WRONG_CALLS[case])


@both_libraries
def test_final_values_are_refused_where_rows_hold_them(library):
    step = STEP | {"final_values": np.zeros(3)}
    message = "not used with next-step autoreset"
    refuses(library, lambda b: b.add(**step), ValueError, message, autoreset="next_step")


@both_libraries
def test_ends_in_reset_rows_are_refused(library):
    buffer = make(library, autoreset="next_step")
    fill(buffer, 2, end="terminated")
    with pytest.raises(RuntimeError, match=r"row 1 of env 0 .* use autoreset=\"same_step\""):
        buffer.finish(LAST_VALUES, **FINISH)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"steps": 0}, "steps must be an integer of at least 1; received 0"),
        ({"envs": 2.5}, "envs must be an integer of at least 1; received 2.5"),
        ({"seed": -1}, "seed must be an integer of at least 0"),
        (
            {"steps": True, "library": "jax"},
            "steps must be .* True; library='jax' is unkno",
        ),
        ({"library": "jax"}, "library='jax' is unknown; choose numpy or torch"),
        ({"autoreset": "disabled"}, "choose same_step or next_step"),
        ({"device": "cuda"}, "device='cuda' needs library=\"torch\""),
        ({"float_dtype": "int32"}, "float_dtype='int32' is not a floating dtype"),
        ({"fields": {"rewards": ((), "f4")}}, "rewards is a name that the buffer uses itself"),
        ({"fields": {"a": "f4", "b": ((), None)}}, "a is 'f4'.*; b is "),
        ({"fields": {"a": ((), "bfloat16")}}, "a is .* not .shape, dtype."),
        ({"fields": {"a": ((-1,), "f4")}}, "negative size"),
        ({"fields": {"a/b": ((), "f4")}}, "a/b contains"),
    ],
)
def test_a_wrong_declaration_is_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        make(**arguments)


def test_what_does_not_fit_is_refused_before_it_is_allocated(monkeypatch):
    monkeypatch.setattr(process, "free_memory_bytes", lambda: 10**6)
    monkeypatch.setattr(NumPyLibrary, "zeros", lambda *_: pytest.fail("allocated"))
    message = r"1,000 steps × 8 envs need 226.0 MB, of which pixels \(4, 84, 84\) uint8 takes"
    with pytest.raises(ValueError, match=message):
        make(steps=1000, envs=8, fields={"pixels": ((4, 84, 84), np.uint8)})
