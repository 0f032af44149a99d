"""Draws as PyTorch's or JAX's arrays: the same numbers, and in PyTorch the same memory."""

import jax
import numpy as np
import pytest
import torch

from loopless.replay.host.prioritized import PrioritizedReplayBuffer
from loopless.replay.host.uniform import ReplayBuffer

FIELDS = {
    "obs": {"near": ((3,), np.float32), "image": ((20, 20), np.uint8)},
    "action": ((), np.int64),
    "terminated": ((), np.bool_),
}
both = pytest.mark.parametrize("kind", [ReplayBuffer, PrioritizedReplayBuffer])


def filled(kind):
    generator = np.random.default_rng(0)
    buffer = kind(20, FIELDS)
    image = generator.integers(0, 256, (20, 20, 20)).astype(np.uint8)
    obs = {"near": generator.normal(size=(20, 3)).astype(np.float32), "image": image}
    buffer.add(obs=obs, action=np.arange(20), terminated=np.arange(20) % 3 == 0)
    return buffer


def leaves(tree, prefix=""):
    flat = {}
    for name, value in tree.items():
        path = f"{prefix}{name}"
        flat |= leaves(value, f"{path}/") if isinstance(value, dict) else {path: value}
    return flat


@both
@pytest.mark.parametrize(("library", "array"), [("torch", torch.Tensor), ("jax", jax.Array)])
def test_every_library_draws_the_same(kind, library, array):
    wanted = leaves(filled(kind).sample(7, 2))
    drawn = leaves(filled(kind).sample(7, 2, library=library))
    assert drawn.keys() == wanted.keys()
    for name, value in drawn.items():
        assert isinstance(value, array)
        assert np.asarray(value).dtype == wanted[name].dtype  # the tests run JAX with x64
        np.testing.assert_array_equal(np.asarray(value), wanted[name])


def test_tensors_stay_what_they_were_when_the_buffer_moves_on():
    buffer = filled(ReplayBuffer)
    tensors = leaves(buffer.sample(7, library="torch"))
    kept = {name: tensor.clone() for name, tensor in tensors.items()}
    obs = {"near": np.zeros((20, 3), np.float32), "image": np.zeros((20, 20, 20), np.uint8)}
    buffer.add(obs=obs, action=np.zeros(20, np.int64), terminated=np.zeros(20, bool))
    buffer.sample(7)
    assert all(torch.equal(tensors[name], kept[name]) for name in kept)


@pytest.mark.parametrize("library", ["torch", "jax"])
def test_priorities_are_taken_from_every_library(library):
    buffer = filled(PrioritizedReplayBuffer)
    batch = buffer.sample(7, library=library)
    buffer.update_priorities(batch["indices"], batch["weights"] * 0 + 4)
    assert (buffer.priorities[np.asarray(batch["indices"])] == 4**0.6).all()


@both
def test_an_unknown_library_is_refused_and_nothing_is_drawn(kind):
    buffer = filled(kind)
    before = buffer.state()["random"].tolist()
    with pytest.raises(ValueError, match="'tensorflow' is unknown; choose numpy, torch or jax"):
        buffer.sample(3, library="tensorflow")
    with pytest.raises(ValueError, match="out takes NumPy arrays"):
        buffer.sample(3, out={}, library="torch")
    assert buffer.state()["random"].tolist() == before
