"""A call for a batch: its arguments, its arrays, its groups, its library."""

import re

import jax
import numpy as np
import pytest
import torch
from support.episodes import FIELDS, assert_same, buffer_of

from loopless.replay.host.episodic.buffer import EpisodicReplayBuffer


def test_batches_go_into_the_callers_arrays():
    one, other = (buffer_of([0] * 9, seed=3).buffer for _ in range(2))
    fresh = one.sample(8, discount=0.9, batches=4)
    out = {name: np.empty_like(array) for name, array in fresh.items()}
    filled = other.sample(8, discount=0.9, batches=4, out=out)
    assert all(filled[name] is out[name] for name in out)
    assert_same(fresh, out)
    starts = other.sample_starts(5)
    assert other.sample_starts(5, out=starts)["obs"] is starts["obs"]


def test_wrong_out_arrays_are_refused_all_at_once_and_nothing_is_drawn():
    buffer = buffer_of([0] * 9).buffer
    out = buffer.sample(8, discount=0.9)
    before = buffer.state()
    out["obs"], out["gap"] = out["obs"][:4], out["gap"].astype(np.int32)
    out["next_obs"] = np.zeros(16, np.int64)[::2]
    del out["indices"]
    with pytest.raises(ValueError, match="sample: ") as refused:
        buffer.sample(8, discount=0.9, out=out)
    for said in ("indices is missing", "out['obs']", "out['gap']", "out['next_obs']"):
        assert said in str(refused.value)
    assert_same(before, buffer.state())


@pytest.mark.parametrize(
    ("call", "said"),
    [
        ({"discount": -0.1}, "discount must be from 0 to 1; received -0.1"),
        ({"discount": 1.1}, "discount must be from 0 to 1"),
        ({"discount": float("nan")}, "discount must be from 0 to 1; received nan"),
        ({"discount": "0.9"}, "discount must be from 0 to 1"),
        ({"batch_size": 0}, "batch_size must be an integer of at least 1; received 0"),
        ({"batches": 0}, "batches must be an integer of at least 1"),
        ({"max_horizon": 0}, "max_horizon must be an integer of at least 1"),
        ({"episodes": 3}, "batch_size=8 is not a multiple of episodes=3"),
        ({"episodes": 16}, "batch_size=8 is not a multiple of episodes=16"),
        ({"batches": 0, "discount": 2}, "at least 1; received 0; discount must be from 0 to 1"),
    ],
)
def test_wrong_arguments_are_refused(call, said):
    buffer = buffer_of([0] * 9).buffer
    with pytest.raises(ValueError, match=re.escape(said)):
        buffer.sample(**{"batch_size": 8, "discount": 0.9, **call})


def test_an_empty_buffer_says_so():
    buffer = EpisodicReplayBuffer(9, FIELDS)
    with pytest.raises(RuntimeError, match="the buffer is empty"):
        buffer.sample(1, discount=0.9)
    with pytest.raises(RuntimeError, match="the buffer is empty"):
        buffer.rows_of([0])


@pytest.mark.parametrize("dtype", ["bool", "uint8", "int16", "float32", "float64", "complex128"])
@pytest.mark.parametrize("shape", [(), (1,), (3,), (2, 3), (0,), (5, 8)])
def test_every_shape_and_dtype_comes_back_as_it_was(dtype, shape):
    rng = np.random.default_rng(0)
    fields = {"extra": (shape, dtype), "obs": {"a": (shape, dtype), "b": ((), np.int64)}}
    buffer = EpisodicReplayBuffer(20, fields, terminals="single")
    data = rng.integers(0, 100, (20, *shape)).astype(dtype)
    other = rng.integers(0, 100, (20, *shape)).astype(dtype)
    obs = {"a": data, "b": np.arange(20)}
    buffer.add_episode(obs=obs, extra=other, terminals=[0, 1] * 10)
    batch = buffer.sample(30, discount=1, batches=2)
    assert batch["obs"]["a"].dtype == dtype
    assert np.array_equal(batch["obs"]["a"], data[batch["obs"]["b"]])
    assert np.array_equal(batch["next_obs"]["a"], data[batch["next_obs"]["b"]])
    assert np.array_equal(batch["extra"], other[batch["indices"]])
    assert np.array_equal(buffer["extra"], other)


def test_grouped_draws_share_their_rows():
    beside = buffer_of(*[[0] * 5] * 8)
    batch = beside.buffer.sample(60, discount=0.9, batches=3, episodes=12)
    rows = beside.buffer.rows_of(batch["indices"]).reshape(3, 12, 5)
    assert (rows == rows[..., :1]).all()
    assert len(np.unique(rows)) > 4
    assert beside.wrong_pairs(batch) == 0


OBS = {"near": ((3,), np.float32), "image": ((20, 20), np.uint8)}


def nested(seed=0):
    """A buffer with small and large fields, 30 steps in three rows."""
    rng = np.random.default_rng(0)
    buffer = EpisodicReplayBuffer(30, {"obs": OBS, "flag": ((), np.bool_)}, seed=seed)
    for _ in range(3):
        image = rng.integers(0, 256, (10, 20, 20)).astype(np.uint8)
        obs = {"near": rng.random((10, 3)).astype(np.float32), "image": image}
        marks = [0, 0, 0, 1, 1, 0, 0, 0, 0, 0]
        buffer.add_episode(obs=obs, flag=rng.random(10) < 0.5, terminals=marks)
    return buffer


def leaves(tree, prefix=""):
    flat = {}
    for name, value in tree.items():
        path = f"{prefix}{name}"
        flat |= leaves(value, f"{path}/") if isinstance(value, dict) else {path: value}
    return flat


CALLS = {
    "pairs": lambda b, **o: b.sample(7, discount=0.9, batches=2, **o),
    "goals": lambda b, **o: b.sample_goals(6, discount=0.9, episodes=2, **o),
    "starts": lambda b, **o: b.sample_starts(7, **o),
}
every_call = pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)


@every_call
@pytest.mark.parametrize(("library", "array"), [("torch", torch.Tensor), ("jax", jax.Array)])
def test_every_library_draws_the_same(call, library, array):
    wanted, drawn = leaves(call(nested())), leaves(call(nested(), library=library))
    assert drawn.keys() == wanted.keys()
    for name, value in drawn.items():
        assert isinstance(value, array)
        assert np.asarray(value).dtype == wanted[name].dtype  # the tests run JAX with x64
        np.testing.assert_array_equal(np.asarray(value), wanted[name])


@every_call
def test_tensors_stay_what_they_were_when_the_buffer_moves_on(call):
    buffer = nested()
    tensors = leaves(call(buffer, library="torch"))
    kept = {name: tensor.clone() for name, tensor in tensors.items()}
    obs = {"near": np.zeros((30, 3), np.float32), "image": np.zeros((30, 20, 20), np.uint8)}
    buffer.add_episode(obs=obs, flag=np.zeros(30, bool), terminals=[0] * 30)
    call(buffer)
    assert all(torch.equal(tensors[name], kept[name]) for name in kept)


def test_tensors_share_the_memory_that_was_drawn_into(monkeypatch):
    buffer, block = nested(), np.empty(100_000, np.uint8)
    monkeypatch.setattr(np, "empty", lambda size, dtype: block[:size])
    tensors = leaves(buffer.sample(7, discount=0.9, library="torch"))
    start = block.ctypes.data
    assert all(start <= tensor.data_ptr() < start + 100_000 for tensor in tensors.values())


@every_call
def test_an_unknown_library_is_refused_and_nothing_is_drawn(call):
    buffer = nested()
    before = buffer.state()
    with pytest.raises(ValueError, match="'tensorflow' is unknown; choose numpy, torch or jax"):
        call(buffer, library="tensorflow")
    with pytest.raises(ValueError, match="out takes NumPy arrays"):
        call(buffer, out={}, library="torch")
    assert_same(before, buffer.state())


@every_call
def test_nested_and_large_fields_go_into_the_callers_arrays(call):
    fresh = call(nested())
    out = call(nested(seed=1))
    arrays = leaves(out)
    assert call(nested(), out=out) is out
    assert all(leaves(out)[name] is arrays[name] for name in arrays)
    assert_same(leaves(fresh), arrays)


def test_goals_are_successors_under_another_name():
    pairs, goals = nested().sample(50, discount=0.9), nested().sample_goals(50, discount=0.9)
    goals["next_obs"] = goals.pop("goal")
    assert_same(leaves(pairs), {name: leaves(goals)[name] for name in leaves(pairs)})


@pytest.mark.parametrize(
    "call",
    [{"batch_size": True}, {"batch_size": 8.0}, {"batches": True}, {"episodes": 1.0},
     {"max_horizon": True}, {"discount": np.array([0.9, 0.9])}, {"discount": None}],
)  # fmt: skip
def test_what_equals_a_count_and_is_none_is_refused_after_it_too(call):
    buffer = buffer_of([0] * 9).buffer
    for size in (1, 8):
        buffer.sample(size, discount=0.9, batches=1, episodes=1, max_horizon=1)
    usual = {"batch_size": 8, "discount": 0.9, "batches": 1, "episodes": 1, "max_horizon": 1}
    with pytest.raises(ValueError, match=r"must be an integer of at least 1|discount must be"):
        buffer.sample(**(usual | call))


def test_counts_and_discounts_of_numpy_are_as_good_as_pythons():
    one, other = (buffer_of([0] * 9, seed=1).buffer for _ in range(2))
    for discount in (0, 0.5, 1):
        wanted = one.sample(8, discount=discount, batches=2, episodes=4, max_horizon=3)
        counts = {"batches": np.int64(2), "episodes": np.uint8(4), "max_horizon": np.int32(3)}
        drawn = other.sample(np.int64(8), discount=np.float32(discount), **counts)
        assert_same(wanted, drawn)


def test_ever_new_shapes_are_drawn_and_forgotten():
    buffer = buffer_of([0] * 9).buffer
    for size in range(1, 150):
        assert len(buffer.sample(size, discount=0.9)["obs"]) == size
    assert len(buffer._draws._plans) <= 64
