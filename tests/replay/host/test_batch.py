"""What `sample` returns: a dict whose fields are attributes, and a tree to JAX and PyTorch."""

import copy
import pickle

import jax
import numpy as np
import pytest
import torch
from torch.utils import _pytree

from loopless.replay import (
    EpisodicReplayBuffer,
    PrioritizedReplayBuffer,
    ReplayBuffer,
    RolloutBuffer,
)
from loopless.replay.sampling import Batch

FIELDS = {"obs": {"near": ((2,), np.float32)}, "values": ((), np.float64), "number": ((), "int64")}


def filled(kind=ReplayBuffer, count=10, **options):
    buffer = kind(8, FIELDS, **options)
    number = np.arange(count)
    near = np.stack([number, -number], 1).astype(np.float32)
    buffer.add(obs={"near": near}, values=number / 3, number=number)
    return buffer


@pytest.mark.parametrize("library", ["numpy", "torch", "jax"])
def test_fields_are_attributes_and_win_over_methods_of_dict(library):
    batch = filled().sample(4, library=library)
    assert isinstance(batch, dict)
    assert batch.number is batch["number"]
    assert batch.obs.near is batch["obs"]["near"]
    assert batch.values is batch["values"]  # the field, not the method
    assert set(batch.keys()) == {"obs", "values", "number", "indices"}
    assert {"number", "items"} <= set(dir(batch))
    with pytest.raises(AttributeError, match="rewards"):
        _ = batch.rewards


def test_a_batch_can_be_copied_and_pickled():
    batch = filled().sample(4)
    for twin in (copy.copy(batch), copy.deepcopy(batch), pickle.loads(pickle.dumps(batch))):
        assert type(twin) is Batch
        np.testing.assert_array_equal(twin.number, batch.number)


def test_a_batch_is_a_tree_of_jax():
    batch = filled().sample(4, library="jax")
    doubled = jax.jit(lambda batch: jax.tree.map(lambda x: 2 * x, batch))(batch)
    assert type(doubled) is Batch
    np.testing.assert_array_equal(doubled.obs.near, 2 * batch.obs.near)
    paths = [jax.tree_util.keystr(path) for path, _ in jax.tree_util.tree_leaves_with_path(batch)]
    assert "['obs']['near']" in paths
    by_row = jax.vmap(lambda batch: batch.number + batch.values)(batch)
    np.testing.assert_array_equal(by_row, batch.number + batch.values)


def test_a_batch_is_a_tree_of_pytorch():
    batch = filled().sample(4, library="torch")
    doubled = _pytree.tree_map(lambda x: 2 * x, batch)
    assert type(doubled) is Batch
    assert torch.equal(doubled.number, 2 * batch.number)
    total = torch.func.vmap(lambda batch: batch.number + batch.values)(batch)
    assert torch.equal(total, batch.number + batch.values)


def test_rollouts_and_episodes_give_batches_too():
    rollout = RolloutBuffer(2, 3, {"number": ((), "int64")})
    flags = np.zeros(3, bool)
    step = {"rewards": np.ones(3), "values": np.ones(3), "terminated": flags, "truncated": flags}
    rollout.add(number=np.arange(3), **step)
    rollout.finish(np.zeros(3), gamma=0.9, lambda_=0.9)
    (batch,) = rollout.minibatches(3, shuffle=False)
    np.testing.assert_array_equal(batch.values, 1)
    np.testing.assert_array_equal(batch.number, [0, 1, 2])
    episodes = EpisodicReplayBuffer(9, {"obs": ((), "int64")}, terminals="none")
    episodes.add_episode(obs=np.arange(9))
    batch = episodes.sample(5, discount=0.9)
    np.testing.assert_array_equal(batch.next_obs - batch.obs, batch.gap)


# The newest transitions


def test_head_and_added_count_what_was_added():
    buffer = filled(count=0)
    for count in (1, 3, 6, 20):
        before = buffer.added
        number = np.arange(count)
        near = np.zeros((count, 2), np.float32)
        buffer.add(obs={"near": near}, values=number / 3, number=number)
        assert buffer.added == before + count
        assert buffer.head == buffer.added % 8
        assert len(buffer) == min(buffer.added, 8)
    twin = filled(count=0)
    twin.restore(buffer.state())
    assert (twin.head, twin.added) == (buffer.head, buffer.added)


def add_one(buffer, number):
    near = np.zeros(2, np.float32)
    buffer.add(obs={"near": near}, values=0.0, number=number)


@pytest.mark.parametrize("kind", [ReplayBuffer, PrioritizedReplayBuffer])
def test_all_that_came_since_the_last_sample_is_in_the_next(kind):
    buffer = filled(kind, count=8)
    assert buffer.sample(8, newest="since_last_sample").number.tolist() == list(range(8))
    for number in (100, 101, 102):
        add_one(buffer, number)
    twin = filled(kind, count=8)
    twin.restore(buffer.state())
    for each in (buffer, twin):
        batch = each.sample(6, batches=3, newest="since_last_sample")
        assert batch.number[:, -3:].tolist() == [[100, 101, 102]] * 3
        add_one(each, 103)
        assert each.sample(2, newest="since_last_sample").number[-1] == 103
    for number in range(9):
        add_one(buffer, number)
    assert buffer.sample(4, newest="since_last_sample").number.tolist() == [5, 6, 7, 8]


def test_newest_transitions_have_the_weights_of_their_priorities():
    buffer = filled(PrioritizedReplayBuffer, count=8, alpha=0.5, seed=3)
    buffer.update_priorities(np.arange(8), [1.0, 4.0, 9.0, 16.0, 1.0, 4.0, 0.0, 25.0])
    batch = buffer.sample(5, batches=4, beta=0.7, newest=3)
    assert batch.indices[:, -3:].tolist() == [[5, 6, 7]] * 4
    for indices, weights in zip(batch.indices, batch.weights, strict=True):
        mass = [buffer.priorities[i] for i in indices]  # p^α
        least = min(x for x in mass if x > 0)
        expected = [1.0 if x == 0 else (least / x) ** 0.7 for x in mass]
        np.testing.assert_allclose(weights, expected, rtol=1e-6)
    np.testing.assert_array_equal(batch.number, batch.indices)


@pytest.mark.parametrize("kind", [ReplayBuffer, PrioritizedReplayBuffer])
def test_a_newest_that_makes_no_sense_is_refused(kind):
    buffer = filled(kind)
    with pytest.raises(ValueError, match="newest must be from 0 to batch_size=4; received 5"):
        buffer.sample(4, newest=5)
    with pytest.raises(ValueError, match="newest"):
        buffer.sample(4, newest="since_yesterday")


# Initial values, columns that are no numbers, padding that is not at the end


@pytest.mark.parametrize("library", ["numpy", "torch"])
def test_rows_that_were_never_added_hold_initial_values(library):
    fields = {"masks": ((2,), "bool"), "obs": {"near": ((2,), "float32")}}
    initial = {"masks": True, "obs": {"near": np.array([1.0, 2.0], np.float32)}}
    buffer = RolloutBuffer(3, 2, fields, library=library, initial=initial)
    step = {"rewards": 0.0, "values": 0.0, "terminated": False, "truncated": False}
    row = {"masks": np.zeros(2, bool), "obs": {"near": np.full(2, 7, np.float32)}}
    for _ in range(2):
        for env in (0, 0, 1):
            buffer.add(env=env, **row, **step)
        masks, near = np.asarray(buffer["masks"]), np.asarray(buffer["obs"]["near"])
        assert masks[:, :, 0].tolist() == [[False, False], [False, True]]
        assert near[1].tolist() == [[7.0, 7.0], [1.0, 2.0]]
        for env in (0, 1):  # longer columns, whose remains must not show
            buffer.add(env=env, **row, **step)
        buffer.clear()


@pytest.mark.parametrize(
    ("initial", "text"),
    [
        ({"mask": 1}, "initial has mask, which is no field"),
        ({"masks": 0.5}, "masks contains numbers other than 0 and 1"),
        ({"masks": np.ones(3, bool)}, r"masks has shape \(3,\), expected \(2,\)"),
    ],
)
def test_initial_values_that_do_not_fit_are_refused(initial, text):
    with pytest.raises(ValueError, match=text):
        RolloutBuffer(3, 2, {"masks": ((2,), "bool")}, initial=initial)


@pytest.mark.parametrize("dtype", ["U8", object, "S3", "datetime64[s]"])
def test_columns_that_are_no_numbers_are_refused_with_the_way_out(dtype):
    with pytest.raises((TypeError, ValueError), match="store a number for each text or object"):
        RolloutBuffer(3, 2, {"name": ((), dtype)})


def test_padded_rows_may_say_which_steps_are_valid():
    obs = np.arange(10).reshape(2, 5)
    valid = np.array([[1, 1, 0, 1, 1], [1, 1, 1, 0, 0]], bool)
    buffer = EpisodicReplayBuffer.from_padded(obs, valid=valid, convention="none")
    assert buffer.lengths.tolist() == [5, 3]
    batch = buffer.sample(200, discount=0.9)
    pairs = {(int(a), int(b)) for a, b in zip(batch.obs, batch.next_obs, strict=True)}
    assert pairs == {(0, 1), (3, 4), (5, 6), (5, 7), (6, 7)}
    with pytest.raises(ValueError, match="valid"):
        EpisodicReplayBuffer.from_padded(obs, valid=valid[:1], convention="none")
