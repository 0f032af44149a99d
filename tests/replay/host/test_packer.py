"""Single transitions, packed in one call: bytes and refusals are those of the casts."""

import copy
import math
import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from loopless.replay.host.packer import CODES, Packer
from loopless.replay.host.prioritized import PrioritizedReplayBuffer
from loopless.replay.host.uniform import ReplayBuffer

VALUES = [True, False, 0, 1, -3, 255, 256, 2**31, 2**53 + 1, 2**63, 0.1, -2.5, 3.5e38, 1e300,
          math.inf, math.nan, np.float32(0.1), np.float64(0.1), np.int64(-7), np.int32(7),
          np.uint8(200), np.bool_(True), np.array(0.5, np.float32),
          np.zeros(2), None, "1"]  # fmt: skip
CARTPOLE = {
    "obs": ((4,), np.float32), "action": ((), np.int64), "reward": ((), np.float32),
    "next_obs": ((4,), np.float32), "terminated": ((), bool), "truncated": ((), bool),
}  # fmt: skip


def step(number):
    obs = np.arange(number, number + 4, dtype=np.float32)
    return {"obs": obs, "action": number % 2, "reward": 1.5 * number, "next_obs": obs + 1,
            "terminated": number % 5 == 4, "truncated": False}  # fmt: skip


def outcome(buffer, **transition):
    """Return the state after adding, or the error."""
    try:
        buffer.add(**transition)
    except (TypeError, ValueError) as error:
        return type(error), str(error)
    return {name: np.asarray(value).tobytes() for name, value in buffer.state().items()}


@pytest.mark.filterwarnings("ignore:invalid value")
@pytest.mark.parametrize("dtype", [*CODES, "int16", "float16"])
@pytest.mark.parametrize("value", VALUES, ids=lambda v: f"{type(v).__name__} {v}")
def test_a_number_is_stored_or_refused_as_by_a_cast(dtype, value):
    packed, cast = (ReplayBuffer(3, {"x": ((), dtype), "y": ((2,), dtype)}) for _ in range(2))
    cast._packer = None
    y = np.ones(2, dtype)
    assert outcome(packed, x=value, y=y) == outcome(cast, x=value, y=y)


@given(numbers=st.lists(st.floats(width=64), max_size=4))
def test_floats_round_as_numpy_rounds_them(numbers):
    packed, cast = (ReplayBuffer(2, {"x": ((), "float32")}) for _ in range(2))
    cast._packer = None
    for number in numbers:
        assert outcome(packed, x=number) == outcome(cast, x=number)


@pytest.mark.parametrize("kind", [ReplayBuffer, PrioritizedReplayBuffer])
def test_steps_go_around_the_ring_as_in_blocks(kind):
    single, block = kind(7, CARTPOLE), kind(7, CARTPOLE)
    rows = [step(number) for number in range(17)]
    for row in rows:
        assert single._packer.pack(row) is not None
        single.add(**row)
    casts = {name: np.dtype(pair[1]) for name, pair in CARTPOLE.items()}
    block.add(**{name: np.array([r[name] for r in rows], casts[name]) for name in CARTPOLE})
    assert single.state().keys() == block.state().keys()
    for name in (f"data/{field}" for field in CARTPOLE):
        ages = [np.roll(b.state()[name], -b.state()["head"], 0) for b in (single, block)]
        np.testing.assert_array_equal(*ages)


def test_any_layout_of_an_array_is_stored_in_order():
    buffer = ReplayBuffer(2, {"x": ((2, 3), np.float32)})
    x = np.arange(6, dtype=np.float32).reshape(3, 2).T
    assert buffer._packer.pack({"x": x}) is not None
    buffer.add(x=x)
    np.testing.assert_array_equal(buffer.sample(1)["x"][0], x)


@pytest.mark.parametrize(
    "options",
    [{"envs": 2}, {"single_copy": "obs"}, {"storage": "memmap"}],
    ids=["streams", "single copy", "files"],
)
def test_what_needs_more_than_bytes_is_left_to_the_ring(options, tmp_path):
    if "storage" in options:
        options["path"] = tmp_path / "buffer"
    assert ReplayBuffer(8, CARTPOLE, **options)._packer is None
    assert ReplayBuffer(8, CARTPOLE | {"image": ((300,), np.uint8)})._packer is None
    assert ReplayBuffer(8, {"obs": {"near": ((), "bool")}})._packer is None


@pytest.mark.parametrize(
    "duplicate", [copy.copy, copy.deepcopy, lambda b: pickle.loads(pickle.dumps(b))]
)
def test_a_copy_writes_to_its_own_rows(duplicate):
    buffer = ReplayBuffer(5, CARTPOLE)
    buffer.add(**step(1))
    other = duplicate(buffer)
    assert isinstance(other._packer, Packer)
    other.add(**step(2))
    other.add(**step(3))
    assert (len(buffer), len(other)) == (1, 3)
    assert other.sample(1, newest=1)["reward"] == 4.5
    buffer.add(**step(4))
    assert other.state()["data/reward"].tolist() == [1.5, 3.0, 4.5]
