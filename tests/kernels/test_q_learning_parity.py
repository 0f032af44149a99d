"""The kernels against their loops, on batches of every kind."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.backends import DTYPES
from support.q_learning import LOSSES, ROADS, assert_alike
from support.situations import call_loss, transitions

import loopless as ll
from loopless import reference
from loopless.verify.cases.batches import MEMBERS, call_targets

every_road = pytest.mark.parametrize("road", ROADS.values(), ids=ROADS)
every_dtype = pytest.mark.parametrize("dtype", DTYPES)

# JAX compiles every shape anew, so shapes come from a short list.
SHAPES = (((1,), 2), ((7,), 1), ((3, 5), 4), ((2, 1, 4), 3))


@st.composite
def batches(draw) -> dict:
    """Arguments of both kernels: ties, unread infinities, weights of 0, discounts of any shape."""
    shape, actions = draw(st.sampled_from(SHAPES))
    seed = draw(st.integers(0, 2**16))
    data = transitions(
        shape,
        actions,
        seed,
        terminated=draw(st.sampled_from((0.0, 0.3, 1.0))),
        gamma=draw(st.sampled_from((0.0, 0.5, 0.99, 1.0))),
    )
    rng = np.random.default_rng(seed + 1)
    if draw(st.booleans()):
        data["gamma"] = rng.random(draw(st.sampled_from((shape, (1,) * len(shape)))))
    if draw(st.booleans()):
        data["next_q_online"] = np.round(data["next_q_online"])
    if draw(st.booleans()):
        fill = draw(st.sampled_from((np.nan, np.inf, -np.inf)))
        data["next_q"][data["terminated"]] = fill
        data["next_q_online"][data["terminated"]] = fill
    kind = draw(st.sampled_from(("none", "all", "some")))
    if kind == "some":
        data["weights"][rng.random(shape) < 0.4] = 0.0
        data["targets"][data["weights"] == 0] = np.nan
    elif kind == "none":
        del data["weights"]
    return data


def rounded(data: dict, dtype: str) -> dict:
    """What the kernel is given, in float64: the loop must start from the same numbers."""
    return {
        name: x.astype(dtype).astype(np.float64)
        if isinstance(x, np.ndarray) and x.dtype.kind == "f"
        else x
        for name, x in data.items()
    }


@every_road
@every_dtype
@pytest.mark.parametrize("member", MEMBERS)
@settings(max_examples=15)
@given(data=batches())
def test_targets_equal_their_loop(road, dtype, member, data):
    expected = call_targets(reference.q_targets, rounded(data, dtype), member)
    assert_alike(road.numpy(road.targets(data, member, dtype)), expected, dtype)


@every_road
@every_dtype
@pytest.mark.parametrize("options", LOSSES, ids=str)
@settings(max_examples=15)
@given(data=batches())
def test_losses_and_errors_equal_their_loop(road, dtype, options, data):
    expected = call_loss(reference.q_loss, rounded(data, dtype), **options)
    for x, y in zip(road.loss(data, dtype, **options), expected, strict=True):
        assert_alike(road.numpy(x), y, dtype)


@every_road
@settings(max_examples=10)
@given(data=batches())
def test_inputs_are_not_written_to(road, data):
    arguments = road.arguments(data)
    before = {k: road.numpy(x).copy() for k, x in arguments.items() if road.backend.owns(x)}
    road.call(call_targets, ll.q_targets, arguments)
    road.call(call_loss, ll.q_loss, arguments)
    for name, x in before.items():
        np.testing.assert_array_equal(road.numpy(arguments[name]), x, err_msg=name)
