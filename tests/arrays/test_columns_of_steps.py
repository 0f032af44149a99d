"""Arrays whose steps lie side by side, and single columns: walked in blocks, eight at a time."""

import numpy as np
import pytest
import torch

import loopless as ll
from loopless.reference import returns

SHAPES = [(1, 7), (1, 2500), (3, 1100), (8, 1024), (19, 300)]  # [envs, steps]
NUMBERS = {"gamma": 0.99, "lambda_": 0.95}


def rollout(shape, seed=0):
    generator = np.random.default_rng(seed)
    floats = [generator.standard_normal(shape) for _ in range(3)]
    ends = generator.random(shape)
    return [*floats, ends < 0.02, ends > 0.98]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("masked", [False, True])
def test_steps_side_by_side_equal_the_loop(shape, masked):
    arrays = rollout(shape)
    valid = np.random.default_rng(1).random(shape) > 0.1 if masked else None
    outs = ll.gae(*arrays, **NUMBERS, valid=valid, time_axis=1)
    tensors = [torch.from_numpy(x) for x in arrays]
    mask = None if valid is None else torch.from_numpy(valid)
    same = ll.gae(*tensors, **NUMBERS, valid=mask, time_axis=1)
    right = returns.gae(*arrays, **NUMBERS, valid=valid, time_axis=1)
    for x, y, z in zip(outs, same, right, strict=True):
        np.testing.assert_allclose(x, z, rtol=1e-12, atol=1e-12)
        np.testing.assert_array_equal(x, y.numpy())


@pytest.mark.parametrize("shape", SHAPES)
def test_gradients_of_steps_side_by_side_are_those_of_steps_apart(shape):
    arrays = [torch.from_numpy(x) for x in rollout(shape)]
    weights = [torch.from_numpy(x) for x in rollout(shape, 1)[:2]]

    def gradients(turn, time_axis):
        # One more column keeps the transposed arrays from being single columns too.
        fields = [turn(torch.cat([x, x[:1]])).contiguous() for x in (*arrays, *weights)]
        leaves = [x.requires_grad_() for x in fields[:3]]
        outs = ll.gae(*leaves, *fields[3:5], **NUMBERS, time_axis=time_axis)
        return [turn(x)[:-1] for x in torch.autograd.grad(outs, leaves, fields[5:])]

    for x, y in zip(gradients(lambda x: x, 1), gradients(lambda x: x.mT, 0), strict=True):
        np.testing.assert_allclose(x.numpy(), y.numpy(), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("shape", [(1, 40), (9, 40)])
@pytest.mark.parametrize("poison", [np.nan, np.inf, 1e300])
def test_what_an_end_cuts_off_is_not_felt_before_it(shape, poison):
    arrays = rollout(shape)
    arrays[3][:] = arrays[4][:] = False
    arrays[3][:, 20] = True
    clean = ll.gae(*arrays, **NUMBERS, time_axis=1)
    arrays[0][:, 30] = poison
    felt = ll.gae(*arrays, **NUMBERS, time_axis=1)
    for x, y in zip(clean, felt, strict=True):
        np.testing.assert_allclose(x[:, :21], y[:, :21], rtol=1e-12)
        assert not np.isclose(x[:, 21:31], y[:, 21:31]).any()


def test_a_mask_of_another_shape_or_dtype_is_refused_for_small_tensors():
    arrays = [torch.from_numpy(x) for x in rollout((5, 4))]
    with pytest.raises(ValueError, match="valid has shape"):
        ll.gae(*arrays, **NUMBERS, valid=torch.ones(4, 5, dtype=torch.bool))


def test_negative_views_of_memory_are_read_with_their_sign():
    arrays = [torch.from_numpy(x) for x in rollout((6, 4))]
    views = [torch._neg_view(-arrays[0]), *arrays[1:]]
    for x, y in zip(ll.gae(*arrays, **NUMBERS), ll.gae(*views, **NUMBERS), strict=True):
        torch.testing.assert_close(x, y)
