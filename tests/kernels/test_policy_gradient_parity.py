"""The policy-gradient losses against their loops, on batches of every kind."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.backends import DTYPES
from support.compare import assert_close
from support.policy_gradient import CALLS, KERNELS_OF, ROADS, SITUATIONS, TWINS_OF, scalars
from support.situations import padded_rows, policy_rows

from loopless.verify.cases.batches import ROWS

every_road = pytest.mark.parametrize("road", ROADS.values(), ids=ROADS)
every_loss = pytest.mark.parametrize("name", CALLS)
every_dtype = pytest.mark.parametrize("dtype", DTYPES)

SHAPES = ((12,), (4, 6))  # those of the situations: JAX compiles every shape anew


@st.composite
def batches(draw) -> dict:
    """Arguments of both losses: any clips, near and far ratios, rows masked out over anything."""
    shape = draw(st.sampled_from(SHAPES))
    seed = draw(st.integers(0, 2**16))
    data = policy_rows(shape, seed, moved=draw(st.sampled_from((0.0, 0.3, 2.0))))
    data["clip"] = draw(st.sampled_from((0.0, 0.1, 0.2, np.inf)))
    data["value_coefficient"] = draw(st.sampled_from((0.0, 0.5, 1.0)))
    data["entropy_coefficient"] = draw(st.sampled_from((0.0, 0.01, 1.0)))
    if draw(st.booleans()):
        data["value_clip"] = draw(st.sampled_from((0.0, 0.3, np.inf)))
    if draw(st.booleans()):
        share = draw(st.sampled_from((0.0, 0.6, 1.0)))
        fill = draw(st.sampled_from((np.nan, np.inf, -np.inf, 1e6)))
        data = padded_rows(data, np.random.default_rng(seed + 1).random(shape) < share, fill)
    return data


def rounded(data: dict, dtype: str) -> dict:
    """What the kernel is given, in float64: the loop must start from the same numbers."""
    return data | {name: data[name].astype(dtype).astype(np.float64) for name in ROWS}


@every_road
@every_dtype
@every_loss
@settings(max_examples=15)
@given(data=batches())
def test_loss_and_parts_equal_their_loop(road, dtype, name, data):
    expected = scalars(CALLS[name](TWINS_OF[name], rounded(data, dtype)))
    got = road.loss(name, data, dtype)
    assert len(got) == len(expected)
    for x, y in zip(got, expected, strict=True):
        assert np.shape(x) == ()
        assert_close(road.numpy(x), y, dtype)


@every_road
@every_loss
@pytest.mark.parametrize("situation", SITUATIONS, ids=lambda s: s.name)
def test_situations_equal_their_loop(road, name, situation):
    expected = scalars(CALLS[name](TWINS_OF[name], situation.data))
    for x, y in zip(road.loss(name, situation.data), expected, strict=True):
        assert_close(road.numpy(x), y)


@every_road
@every_loss
def test_inputs_are_not_written_to(road, name):
    data = padded_rows(policy_rows((4, 6), 0), np.arange(24).reshape(4, 6) % 3 > 0, np.nan)
    arguments = road.arguments(data)
    before = {k: road.numpy(x).copy() for k, x in arguments.items() if road.backend.owns(x)}
    CALLS[name](KERNELS_OF[name], arguments)
    for key, x in before.items():
        np.testing.assert_array_equal(road.numpy(arguments[key]), x, err_msg=key)
