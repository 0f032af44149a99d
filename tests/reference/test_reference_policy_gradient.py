"""The loops of the policy-gradient losses, checked without the kernels: by hand, by differences."""

import math

import numpy as np
import pytest
from support.situations import padded_rows, policy_rows

from loopless import reference
from loopless.verify.cases.batches import INPUTS, call_policy_gradient, call_ppo

LOSSES = {
    "ppo_loss": (call_ppo, reference.ppo_loss, reference.ppo_loss_gradients),
    "policy_gradient_loss": (
        call_policy_gradient,
        reference.policy_gradient_loss,
        reference.policy_gradient_loss_gradients,
    ),
}


def row(ratio=1.0, advantage=0.0, value=0.0, target=0.0, entropy=0.0, **options):
    """Loss and parts of a single row."""
    arrays = [math.log(ratio), 0.0, advantage, value, target, entropy]
    options = {k: np.array([x]) if k == "old_values" else x for k, x in options.items()}
    return reference.ppo_loss(*[np.array([float(x)]) for x in arrays], **options)


@pytest.mark.parametrize(
    ("ratio", "advantage", "expected"),
    [
        (1.1, 2.0, 2.2),  # inside: ρ A
        (1.5, 2.0, 2.4),  # good and grown too far: held at 1 + ε
        (0.5, 2.0, 1.0),  # good and shrunk: as it is, so that it comes back
        (1.5, -2.0, -3.0),  # bad and grown: as it is
        (0.5, -2.0, -1.6),  # bad and shrunk too far: held at 1 − ε
        (7.0, 0.0, 0.0),
    ],
)
def test_surrogate_by_hand(ratio, advantage, expected):
    loss, parts = row(ratio, advantage)
    assert parts.policy_loss == pytest.approx(-expected, abs=1e-15)
    assert loss == parts.policy_loss


@pytest.mark.parametrize(
    ("value", "old", "target", "error"),
    [
        (1.0, 0.9, 3.0, -2.0),  # within the clip
        (1.0, 0.0, 3.0, -2.8),  # past it on the way to the target: the clipped value is farther
        (1.0, 0.0, -3.0, 4.0),  # past it away from the target: the value itself is farther
        (-1.0, 0.0, -3.0, 2.8),
    ],
)
def test_clipped_value_loss_by_hand(value, old, target, error):
    _, parts = row(value=value, target=target, value_clip=0.2, old_values=old)
    assert parts.value_loss == pytest.approx(0.5 * error * error)


def test_the_loss_is_the_weighted_sum_of_its_parts():
    loss, parts = row(
        1.5, 2.0, value=1.0, target=3.0, entropy=0.5, value_coefficient=0.5, entropy_coefficient=0.1
    )
    assert parts.entropy == 0.5
    assert parts.value_loss == 2.0
    assert loss == pytest.approx(-2.4 + 0.5 * 2.0 - 0.1 * 0.5)


@pytest.mark.parametrize(("ratio", "clipped"), [(1.1, 0), (1.5, 1), (0.5, 1), (1.0, 0)])
def test_measures_by_hand(ratio, clipped):
    _, parts = row(ratio, 1.0)
    assert parts.approximate_kl == pytest.approx(ratio - 1 - math.log(ratio), abs=1e-15)
    assert parts.clip_fraction == clipped


def test_the_plain_loss_by_hand():
    arrays = [[-1.0, -2.0], [3.0, -1.0], [1.0, 0.0], [0.0, 0.0], [0.5, 0.7]]
    loss, parts = reference.policy_gradient_loss(
        *map(np.array, arrays), value_coefficient=0.5, entropy_coefficient=1.0
    )
    assert parts == pytest.approx((0.5, 0.25, 0.6))
    assert loss == pytest.approx(0.5 + 0.125 - 0.6)


@pytest.mark.parametrize("name", LOSSES)
def test_rows_that_do_not_count_are_not_read(name):
    call, loss, gradients = LOSSES[name]
    data = policy_rows((4, 3), 1) | {"value_clip": 0.3}
    valid = np.arange(12).reshape(4, 3) % 3 > 0
    rest = {k: x[valid] if isinstance(x, np.ndarray) else x for k, x in data.items()}
    assert call(loss, padded_rows(data, valid, np.nan)) == call(loss, rest)
    for x, y in zip(
        call(gradients, padded_rows(data, valid, np.nan)), call(gradients, rest), strict=True
    ):
        np.testing.assert_array_equal(x[valid], y)
        np.testing.assert_array_equal(x[~valid], 0.0)


@pytest.mark.parametrize("name", LOSSES)
def test_without_a_valid_row_all_is_0(name):
    call, loss, gradients = LOSSES[name]
    data = padded_rows(policy_rows((3,), 2), np.zeros(3, bool), np.nan)
    value, parts = call(loss, data)
    assert value == 0
    assert not any(parts)
    assert not np.any(call(gradients, data))


@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize("value_clip", [None, 0.3])
@pytest.mark.parametrize("masked", [False, True])
def test_gradients_are_those_of_differences(name, value_clip, masked):
    call, loss, gradients = LOSSES[name]
    data = policy_rows((2, 6), 3)
    if value_clip is not None:
        data["value_clip"] = value_clip
    if masked:
        data["valid"] = np.arange(12).reshape(2, 6) % 3 > 0
    for key, found in zip(INPUTS, call(gradients, data), strict=True):
        expected = np.zeros((2, 6))
        for place in np.ndindex(2, 6):
            around = []
            for step in (1e-6, -1e-6):
                moved = data[key].copy()
                moved[place] += step
                around.append(call(loss, data | {key: moved})[0])
            expected[place] = (around[0] - around[1]) / 2e-6
        np.testing.assert_allclose(found, expected, atol=1e-8, err_msg=key)
        assert expected.any()


def test_a_spoilt_old_value_shows():
    _, parts = row(value=1.0, value_clip=0.2, old_values=math.nan)
    assert math.isnan(parts.value_loss)


def test_a_ratio_too_large_for_a_number_is_clipped_or_infinite():
    ones = np.ones(1)
    for advantage, expected in ((1.0, -1.2), (0.0, 0.0), (-1.0, math.inf)):
        arrays = (1e4 * ones, 0 * ones, advantage * ones, ones, ones, ones)
        assert reference.ppo_loss(*arrays)[1].policy_loss == expected


@pytest.mark.parametrize("key", ["advantages", "returns", "old_values", "valid"])
def test_what_does_not_fit_is_refused(key):
    data = padded_rows(policy_rows((4,), 4) | {"value_clip": 0.3}, np.ones(4, bool), 0.0)
    with pytest.raises(ValueError, match="shape"):
        call_ppo(reference.ppo_loss, data | {key: data[key][:, None]})
