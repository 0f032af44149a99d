"""Identities and edge cases of the policy-gradient losses, on every road through the kernels."""

import numpy as np
import pytest
import torch
from support.backends import BACKENDS, HALVES, NUMPY, TORCH
from support.compare import assert_close
from support.policy_gradient import CALLS, KERNELS_OF, ROADS, TWINS_OF, scalars
from support.situations import padded_rows, policy_rows

import loopless as ll
from loopless.verify.cases.batches import ROWS, call_ppo

every_road = pytest.mark.parametrize("road", ROADS.values(), ids=ROADS)
every_loss = pytest.mark.parametrize("name", CALLS)
every_backend = pytest.mark.parametrize("backend", BACKENDS, ids=str)
PARTS = ("loss", *ll.ppo_loss(*[np.ones(1)] * 6)[1]._fields)


def ppo(road, data, dtype="float64", **options) -> dict:
    """Loss and parts by name, in NumPy."""
    found = map(road.numpy, road.loss("ppo_loss", data, dtype, **options))
    return dict(zip(PARTS, found, strict=True))


def test_parts_have_their_names():
    data = policy_rows((12,), 0)
    common = ("policy_loss", "value_loss", "entropy")
    assert call_ppo(ll.ppo_loss, data)[1]._fields == (*common, "approximate_kl", "clip_fraction")
    plain = CALLS["policy_gradient_loss"](ll.policy_gradient_loss, data)[1]
    assert plain._fields == common
    for name in CALLS:
        kernel, twin = (CALLS[name](f[name], data)[1] for f in (KERNELS_OF, TWINS_OF))
        assert kernel._fields == twin._fields


@every_road
@pytest.mark.parametrize("clip", [0.1, 0.3])
@pytest.mark.parametrize("value_clip", [None, 0.3])
def test_it_is_what_one_would_write_in_pytorch(road, clip, value_clip):
    data = policy_rows((12,), 1) | {"clip": clip}
    options = {} if value_clip is None else {"value_clip": value_clip}
    x = TORCH.arguments(data)
    ratio = (x["log_probs"] - x["old_log_probs"]).exp()
    surrogate = torch.min(
        ratio * x["advantages"], ratio.clamp(1 - clip, 1 + clip) * x["advantages"]
    )
    squares = (x["values"] - x["returns"]) ** 2
    if value_clip is not None:
        near = x["old_values"] + (x["values"] - x["old_values"]).clamp(-value_clip, value_clip)
        squares = torch.max(squares, (near - x["returns"]) ** 2)
    policy_loss, value_loss = -surrogate.mean(), 0.5 * squares.mean()
    expected = {
        "loss": policy_loss + 0.7 * value_loss - 0.05 * x["entropies"].mean(),
        "policy_loss": policy_loss,
        "value_loss": value_loss,
        "entropy": x["entropies"].mean(),
        "approximate_kl": (ratio - 1 - ratio.log()).mean(),
        "clip_fraction": ((ratio - 1).abs() > clip).double().mean(),
    }
    found = ppo(road, data, **options)
    for name, value in expected.items():
        assert_close(found[name], value.numpy(), what=name)


@every_road
def test_before_the_first_step_the_policy_loss_is_minus_the_mean_advantage(road):
    data = policy_rows((12,), 2)
    data["old_log_probs"] = data["log_probs"].copy()
    found = ppo(road, data)
    assert_close(found["policy_loss"], -data["advantages"].mean())
    assert found["approximate_kl"] == 0
    assert found["clip_fraction"] == 0


@every_road
def test_an_infinite_clip_clips_nothing(road):
    data = policy_rows((12,), 3, moved=2.0)
    found = ppo(road, data, clip=np.inf)
    ratio = np.exp(data["log_probs"] - data["old_log_probs"])
    assert_close(found["policy_loss"], -(ratio * data["advantages"]).mean())
    assert found["clip_fraction"] == 0


@every_road
@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("value_clip", [np.inf, 1e300])
def test_an_infinite_value_clip_is_none(road, dtype, value_clip):
    data = policy_rows((12,), 4)
    plain, clipped = ppo(road, data, dtype), ppo(road, data, dtype, value_clip=value_clip)
    assert plain == clipped


@every_road
def test_a_value_clip_of_0_takes_the_worse_of_old_and_new_value(road):
    data = policy_rows((12,), 5)
    errors = [np.abs(data[name] - data["returns"]) for name in ("values", "old_values")]
    found = ppo(road, data, value_clip=0.0)["value_loss"]
    assert_close(found, 0.5 * np.mean(np.maximum(*errors) ** 2))


@every_road
def test_old_values_are_not_read_without_a_value_clip(road):
    data = policy_rows((12,), 6)
    spoilt = data | {"old_values": np.full(12, np.nan)}
    assert ppo(road, data) == ppo(road, spoilt)


@every_road
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_the_divergence_keeps_its_digits_where_the_policy_hardly_moved(road, dtype):
    """ρ − 1 − log ρ is ½ (log ρ)² there, of which ρ rounded to 1 + log ρ knows nothing."""
    data = policy_rows((12,), 7)
    data["log_probs"] = np.linspace(1, 2, 12) * 2.0**-11
    data["old_log_probs"] = np.zeros(12)
    expected = np.mean(np.expm1(data["log_probs"]) - data["log_probs"])
    found = ppo(road, data, dtype)["approximate_kl"]
    # of numbers of 2⁻¹⁰ a digit is lost, relative to halves of their squares 2¹¹ of them
    rtol = 2.0**12 * np.finfo(dtype).eps
    np.testing.assert_allclose(found, expected, rtol=rtol)


@every_road
@every_loss
@pytest.mark.parametrize("fill", [0.0, np.nan])
def test_without_a_valid_row_all_is_0(road, name, fill):
    data = padded_rows(policy_rows((4, 6), 8), np.zeros((4, 6), bool), fill)
    for x in road.loss(name, data, value_coefficient=0.5):
        x = road.numpy(x)
        assert x == 0
        assert not np.signbit(x)


@every_road
@every_loss
def test_rows_that_do_not_count_are_as_if_they_were_not_there(road, name):
    valid = np.arange(24).reshape(4, 6) % 2 == 0
    data = padded_rows(policy_rows((4, 6), 9), valid, np.nan)
    rest = {key: x[valid] if isinstance(x, np.ndarray) else x for key, x in data.items()}
    del rest["valid"]
    for x, y in zip(road.loss(name, data), road.loss(name, rest), strict=True):
        assert_close(road.numpy(x), road.numpy(y))


@every_road
@every_loss
def test_the_axes_do_not_matter_and_neither_does_the_order(road, name):
    data = policy_rows((4, 6), 10)
    order = np.random.default_rng(11).permutation(24)
    other = {k: x.ravel()[order] if isinstance(x, np.ndarray) else x for k, x in data.items()}
    for x, y in zip(road.loss(name, data), road.loss(name, other), strict=True):
        assert_close(road.numpy(x), road.numpy(y))


@every_road
@every_loss
@pytest.mark.parametrize("shape", [(), (0,), (3, 0)], ids=str)
def test_one_row_without_axes_and_no_row_at_all(road, name, shape):
    data = {k: np.asarray(x) if k in ROWS else x for k, x in policy_rows(shape, 12).items()}
    expected = scalars(CALLS[name](TWINS_OF[name], data))
    got = road.loss(name, data)
    for x, y in zip(got, expected, strict=True):
        assert_close(road.numpy(x), y)
    if road.gradients:
        arguments = road.arguments(data)
        CALLS[name](KERNELS_OF[name], arguments)[0].backward()
        assert arguments["values"].grad.shape == shape


@every_road
@every_loss
def test_flags_may_be_integers(road, name):
    valid = np.arange(24).reshape(4, 6) % 2 == 0
    data = padded_rows(policy_rows((4, 6), 13), valid, np.nan)
    integers = data | {"valid": valid.astype(np.uint8)}
    for x, y in zip(road.loss(name, data), road.loss(name, integers), strict=True):
        assert road.numpy(x) == road.numpy(y)


NUMBERS = {
    "whole": int,
    "NumPy's": np.float64,
    "0-d arrays": np.array,
    "0-d arrays of integers": lambda x: np.array(int(x)),
}


@every_road
@pytest.mark.parametrize("kind", NUMBERS)
def test_numbers_of_every_kind_are_numbers(road, kind):
    data = policy_rows((12,), 14)
    names = ("clip", "value_clip", "value_coefficient", "entropy_coefficient")
    ones = ppo(road, data | dict.fromkeys(names, 1.0))
    others = ppo(road, data | {name: NUMBERS[kind](1.0) for name in names})
    assert ones.keys() == others.keys()
    for name, x in ones.items():
        assert_close(others[name], x, what=name)


@every_road
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_numbers_are_in_the_datas_precision(road, dtype):
    """A clip of another precision, such as a schedule's, changes neither dtype nor result."""
    data = policy_rows((12,), 15)
    other = "float32" if dtype == "float64" else "float64"
    arguments = road.arguments(data, dtype)
    clip = road.backend.array(np.array(0.25), other)
    got = scalars(call_ppo(ll.ppo_loss, arguments, clip=clip, value_clip=clip))
    expected = scalars(call_ppo(ll.ppo_loss, arguments, clip=0.25, value_clip=0.25))
    for x, y in zip(got, expected, strict=True):
        assert road.backend.dtype(x) == dtype
        assert_close(road.numpy(x), road.numpy(y), dtype)


@every_road
@pytest.mark.parametrize("key", ROWS)
def test_a_spoilt_row_shows(road, key):
    data = policy_rows((12,), 16) | {"value_clip": 0.1}
    data[key][5] = np.nan
    assert np.isnan(ppo(road, data)["loss"])


# Layouts and precision


@pytest.mark.parametrize("backend", [NUMPY, TORCH], ids=str)
@every_loss
def test_strided_views_are_taken_as_they_are(backend, name):
    data = padded_rows(policy_rows((4, 6), 17), np.arange(24).reshape(4, 6) % 2 == 0, np.nan)
    views = {
        key: backend.array(np.stack([x, x], -1))[..., 0] if isinstance(x, np.ndarray) else x
        for key, x in data.items()
    }
    expected = scalars(CALLS[name](TWINS_OF[name], data))
    for x, y in zip(scalars(CALLS[name](KERNELS_OF[name], views)), expected, strict=True):
        assert_close(backend.numpy(x), y)


def test_transposed_gradients_come_back_where_they_belong():
    data = policy_rows((4, 6), 18)
    straight = TORCH.arguments(data)
    turned = TORCH.arguments({k: x.T if k in ROWS else x for k, x in data.items()})
    for arguments in (straight, turned):
        arguments["values"].requires_grad_()
    views = {k: x.T if k in ROWS else x for k, x in turned.items()}
    for arguments in (straight, views):
        call_ppo(ll.ppo_loss, arguments)[0].backward()
    assert_close(turned["values"].grad.T.numpy(), straight["values"].grad.numpy())


def test_read_only_arrays_are_taken():
    data = policy_rows((12,), 19)
    expected = scalars(call_ppo(ll.ppo_loss, data))
    for name in ROWS:
        data[name].flags.writeable = False
    np.testing.assert_array_equal(scalars(call_ppo(ll.ppo_loss, data)), expected)


@pytest.mark.parametrize(
    ("backend", "half"), [(b, half) for b in BACKENDS for half in HALVES[b.name]], ids=str
)
@every_loss
def test_half_precision_is_computed_in_float32_and_rounded_once(backend, half, name):
    data = policy_rows((12,), 20) | {"value_clip": 0.3}
    halves = backend.arguments(data, half)
    floats = {
        key: (x.float() if backend is TORCH else x.astype("float32")) if key in ROWS else x
        for key, x in halves.items()
    }
    got, wide = (scalars(CALLS[name](KERNELS_OF[name], x)) for x in (halves, floats))
    for x, y in zip(got, wide, strict=True):
        assert backend.dtype(x) == half
        assert backend.dtype(y) == "float32"
        rounded = y.to(getattr(torch, half)) if backend is TORCH else y.astype(x.dtype)
        assert backend.numpy(x) == backend.numpy(rounded)


@every_backend
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@every_loss
def test_results_are_the_callers_kind(backend, dtype, name):
    arguments = backend.arguments(policy_rows((12,), 21), dtype)
    for x in scalars(CALLS[name](KERNELS_OF[name], arguments)):
        assert backend.owns(x)
        assert backend.dtype(x) == dtype
        assert tuple(x.shape) == ()


# In JAX each is a program of its own, so that two must do.
MIXED = [
    (road, key) for road in ROADS for key in ROWS if road != "jax" or key in ("values", "returns")
]


@pytest.mark.parametrize(("road", "key"), MIXED)
def test_mixed_precision_gives_the_widest(road, key):
    road = ROADS[road]
    data = policy_rows((12,), 22) | {"value_clip": 0.3}
    narrow, wide = road.arguments(data, "float32"), road.arguments(data, "float64")
    got = scalars(call_ppo(ll.ppo_loss, narrow | {key: wide[key]}))
    expected = scalars(call_ppo(TWINS_OF["ppo_loss"], data))
    for x, y in zip(got, expected, strict=True):
        assert road.backend.dtype(x) == "float64"
        assert_close(road.numpy(x), y, "float32")


def test_mixed_precision_gives_each_input_a_gradient_of_its_own():
    data = policy_rows((12,), 23)
    tensors = TORCH.arguments(data)
    tensors["log_probs"] = tensors["log_probs"].float()
    for key in ("log_probs", "values"):
        tensors[key].requires_grad_()
    call_ppo(ll.ppo_loss, tensors)[0].backward()
    assert tensors["log_probs"].grad.dtype == torch.float32
    assert tensors["values"].grad.dtype == torch.float64
