"""Where gradients go: to log-probabilities, values and entropies by the closed form, else nowhere.

The loops' closed forms are checked by differences in `test_reference_policy_gradient`.
"""

import functools
from types import SimpleNamespace

import jax
import jax.test_util
import numpy as np
import pytest
import torch
from support.backends import JAX, TORCH
from support.compare import assert_close
from support.policy_gradient import CALLS, KERNELS_OF, SITUATIONS, gradients_of
from support.q_learning import Elsewhere
from support.situations import padded_rows, policy_rows
from torch.autograd import forward_ad

import loopless as ll
from loopless.kernels import policy_gradient as kernels
from loopless.verify.cases.batches import INPUTS, ROWS, call_policy_gradient, call_ppo

every_loss = pytest.mark.parametrize("name", CALLS)
every_situation = pytest.mark.parametrize("situation", SITUATIONS, ids=lambda s: s.name)
CONSTANTS = tuple(name for name in ROWS if name not in INPUTS)


def eager(loss, variables, rest):
    for x in variables.values():
        x.requires_grad_()
    found = torch.autograd.grad(
        loss(variables, rest), list(variables.values()), allow_unused=True, materialize_grads=True
    )
    return dict(zip(variables, found, strict=True))


def elsewhere(loss, variables, rest):
    """As on a device that NumPy does not see."""
    return eager(loss, {name: x.as_subclass(Elsewhere) for name, x in variables.items()}, rest)


@functools.cache
def compiled(loss):
    """One program for all batches of a shape: these tests would else spend their time compiling."""
    return jax.jit(jax.grad(loss))


DIFFERENTIATE = {
    "torch": (TORCH, eager),
    "torch, transformed": (TORCH, lambda loss, *arguments: torch.func.grad(loss)(*arguments)),
    "torch, elsewhere": (TORCH, elsewhere),
    "jax": (JAX, lambda loss, *arguments: compiled(loss)(*arguments)),
}
every_road = pytest.mark.parametrize("road", DIFFERENTIATE)


def ppo(variables, rest):
    return call_ppo(ll.ppo_loss, rest | variables)[0]


def policy_gradient(variables, rest):
    return call_policy_gradient(ll.policy_gradient_loss, rest | variables)[0]


LOSSES = {"ppo_loss": ppo, "policy_gradient_loss": policy_gradient}


def gradients(road, name, data, names=ROWS, loss=None):
    """The gradients of a loss, or of `loss(variables, rest)`, by the arrays `names`, in NumPy."""
    backend, differentiate = DIFFERENTIATE[road]
    arguments = backend.arguments(data)
    variables = {key: arguments[key] for key in names}
    rest = {key: x for key, x in arguments.items() if key not in names}
    found = differentiate(loss or LOSSES[name], variables, rest)
    return {key: backend.numpy(x) for key, x in found.items()}


@every_road
@every_loss
@every_situation
def test_gradients_are_the_closed_form_and_exactly_0_into_constants(road, name, situation):
    found = gradients(road, name, situation.data)
    for key, expected in gradients_of(name, situation.data).items():
        assert_close(found[key], expected, what=key)
    for key in CONSTANTS:
        np.testing.assert_array_equal(found[key], 0.0, err_msg=key)


@every_road
@every_loss
def test_numbers_that_are_arrays_have_no_gradient(road, name):
    data = policy_rows((6,), 0) | {"value_clip": np.array(0.3)}
    numbers = ("clip", "value_coefficient", "entropy_coefficient", "value_clip")
    data |= {key: np.array(data[key]) for key in numbers}
    found = gradients(road, name, data, (*INPUTS, *numbers))
    for key in numbers:
        np.testing.assert_array_equal(found[key], 0.0, err_msg=key)
    assert_close(found["log_probs"], gradients_of(name, data)["log_probs"])


@every_road
@every_loss
def test_parts_pass_no_gradient(road, name):
    data = policy_rows((6,), 1)

    def loss(variables, rest):
        value, parts = CALLS[name](KERNELS_OF[name], rest | variables)
        return value + 3 * sum(parts)

    found = gradients(road, name, data, loss=loss)
    assert_close(found["log_probs"], gradients_of(name, data)["log_probs"])
    assert_close(found["values"], gradients_of(name, data)["values"])


@every_road
@every_loss
@pytest.mark.parametrize("poison", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("value_clip", [None, 0.3])
def test_rows_that_do_not_count_may_hold_anything(road, name, poison, value_clip):
    """Bit for bit what clean padding gives, forwards and backwards, and 0 in the padding."""
    valid = np.array([True, False, True, True, False, False])
    data = policy_rows((6,), 2)
    if value_clip is not None:
        data["value_clip"] = value_clip
    clean, dirty = padded_rows(data, valid, 0.0), padded_rows(data, valid, poison)
    backend, _ = DIFFERENTIATE[road]
    results = [CALLS[name](KERNELS_OF[name], backend.arguments(x)) for x in (clean, dirty)]
    for x, y in zip(*[(loss, *parts) for loss, parts in results], strict=True):
        np.testing.assert_array_equal(backend.numpy(x), backend.numpy(y))
    expected, found = (gradients(road, name, x) for x in (clean, dirty))
    for key in INPUTS:
        np.testing.assert_array_equal(found[key], expected[key], err_msg=key)
        np.testing.assert_array_equal(found[key][~valid], 0.0, err_msg=key)
        assert found[key][valid].any()


@every_loss
def test_every_gradient_is_written_whatever_the_memory_held(name, monkeypatch):
    def dirty(shape, dtype):
        return np.full(shape, np.nan, dtype)

    monkeypatch.setattr(kernels, "np", SimpleNamespace(**vars(np) | {"empty": dirty}))
    valid = np.array([True, False, True, True, False, False])
    data = padded_rows(policy_rows((6,), 2), valid, np.nan)
    found = gradients("torch", name, data)
    for key, expected in gradients_of(name, data).items():
        assert_close(found[key], expected)


@every_road
@pytest.mark.parametrize("poison", [np.nan, np.inf])
@pytest.mark.parametrize("key", ROWS)
def test_one_poisoned_array_is_as_harmless_as_all(road, poison, key):
    valid = np.array([True, False, True, True, False, False])
    data = policy_rows((6,), 2) | {"value_clip": 0.3, "valid": valid}
    found = gradients(road, "ppo_loss", data | {key: np.where(valid, data[key], poison)})
    for name, expected in gradients_of("ppo_loss", data).items():
        assert_close(found[name], expected)


@every_road
def test_at_the_first_step_the_gradient_is_the_plain_losss(road):
    data = policy_rows((6,), 3)
    data["old_log_probs"] = data["log_probs"].copy()
    found = gradients(road, "ppo_loss", data)
    expected = gradients(road, "policy_gradient_loss", data)
    for key in INPUTS:
        assert_close(found[key], expected[key])


def change(backend, log_ratio):
    """ρ − 1 as this library has it."""
    library = {"numpy": np, "torch": torch, "jax": jax.numpy}[backend.name]
    return float(library.expm1(backend.array(np.array([log_ratio])))[0])


@every_road
@pytest.mark.parametrize("sign", [1.0, -1.0])
@pytest.mark.parametrize("log_ratio", [0.25, -0.25, 0.0])
def test_at_the_edge_of_the_clip_the_gradient_is_the_unclipped_one(road, log_ratio, sign):
    """ρ = 1 ± ε to the last bit; beyond it there is none on the side that the clip holds."""
    backend, _ = DIFFERENTIATE[road]
    # eager PyTorch on the CPU computes with C's expm1
    edge = np.expm1(log_ratio) if road == "torch" else change(backend, log_ratio)
    data = policy_rows((1,), 4)
    data |= {"log_probs": np.array([log_ratio]), "old_log_probs": np.zeros(1)}
    data |= {"advantages": np.array([sign]), "clip": abs(edge)}
    found = gradients(road, "ppo_loss", data)["log_probs"]
    assert_close(found, [-sign * np.exp(log_ratio)])
    if log_ratio:
        within = data | {"clip": np.nextafter(abs(edge), 0)}
        found = gradients(road, "ppo_loss", within)["log_probs"]
        held = log_ratio * sign > 0
        assert_close(found, [0.0 if held else -sign * np.exp(log_ratio)])


@every_road
def test_where_both_errors_are_equal_the_gradient_is_the_unclipped_one(road):
    data = policy_rows((1,), 5) | {"value_clip": 0.25}
    # half a unit moved, a quarter allowed: errors of +1/8 and −1/8
    data |= {"values": np.array([0.5]), "old_values": np.zeros(1), "returns": np.array([0.375])}
    assert_close(gradients(road, "ppo_loss", data)["values"], [0.7 * 0.125])
    data["returns"] = np.array([0.5])
    np.testing.assert_array_equal(gradients(road, "ppo_loss", data)["values"], [0.0])


@every_road
def test_a_value_within_its_clip_has_its_gradient_whatever_rounding_does(road):
    """V_old + (V − V_old) is not V in floating point, and must not pass for a larger error."""
    rng = np.random.default_rng(6)
    data = policy_rows((4, 6), 6) | {"value_clip": 2.0}
    data["old_values"] = data["values"] + 1e3 * np.finfo(float).eps * rng.standard_normal((4, 6))
    expected = 0.7 * (data["values"] - data["returns"]) / 24
    assert_close(gradients(road, "ppo_loss", data)["values"], expected)


@every_road
@pytest.mark.parametrize("clip", [0.2, np.inf])
def test_ratios_beyond_all_numbers_give_no_nan(road, clip):
    """0·∞ lurks in the derivative of what is clipped, and in an advantage of 0."""
    data = policy_rows((6,), 7) | {"clip": clip}
    data["log_probs"] = np.array([800.0, 800.0, -800.0, -800.0, -np.inf, 0.0])
    data["old_log_probs"] = np.zeros(6)
    data["advantages"] = np.array([0.0, 0.5, 1.0, 0.0, -1.0, 1.0])
    found = gradients(road, "ppo_loss", data)
    for key in INPUTS:
        assert np.isfinite(found[key]).all(), key
    np.testing.assert_array_equal(found["log_probs"][:5], 0.0)
    backend, _ = DIFFERENTIATE[road]
    loss, parts = call_ppo(ll.ppo_loss, backend.arguments(data))
    assert np.isfinite(backend.numpy(loss))
    assert backend.numpy(parts.approximate_kl) == np.inf


@every_road
def test_a_bad_action_grown_beyond_all_numbers_is_infinitely_bad(road):
    data = policy_rows((6,), 8)
    data["log_probs"][1], data["advantages"][1] = 800.0, -1.0
    backend, _ = DIFFERENTIATE[road]
    assert backend.numpy(call_ppo(ll.ppo_loss, backend.arguments(data))[0]) == np.inf
    found = gradients(road, "ppo_loss", data)["log_probs"]
    assert found[1] == np.inf
    assert np.isfinite(np.delete(found, 1)).all()


# The libraries' own checks


def away_from_kinks(data):
    """Rows that a numerical step does not take across an edge."""
    changes = np.abs(np.expm1(data["log_probs"] - data["old_log_probs"]))
    away = np.abs(data["values"] - data["old_values"])
    assert (np.abs(changes - data["clip"]) > 1e-3).all()
    assert (np.abs(away - data["value_clip"]) > 1e-3).all()
    return data


def inputs_only(name, arguments):
    def loss(*inputs):
        return CALLS[name](KERNELS_OF[name], arguments | dict(zip(INPUTS, inputs, strict=True)))[0]

    return loss


@every_loss
@pytest.mark.parametrize("masked", [False, True])
def test_torch_gradcheck(name, masked):
    data = away_from_kinks(policy_rows((2, 4), 9) | {"value_clip": 0.3})
    if masked:
        data["valid"] = np.arange(8).reshape(2, 4) % 3 > 0
    tensors = TORCH.arguments(data)
    inputs = [tensors[key].requires_grad_() for key in INPUTS]
    assert torch.autograd.gradcheck(inputs_only(name, tensors), inputs, check_batched_grad=True)


@every_loss
def test_jax_derivatives_of_both_modes(name):
    arrays = JAX.arguments(away_from_kinks(policy_rows((2, 4), 9) | {"value_clip": 0.3}))
    loss = jax.jit(inputs_only(name, arrays))
    inputs = [arrays[key] for key in INPUTS]
    jax.test_util.check_grads(loss, inputs, order=1, rtol=1e-6, atol=1e-6)


@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated")  # PyTorch's own
def test_torch_forward_mode_stops_at_constants():
    tensors = TORCH.arguments(policy_rows((5,), 10))
    direction = torch.randn_like(tensors["log_probs"])
    with forward_ad.dual_level():
        dual = {
            key: forward_ad.make_dual(tensors[key], torch.randn_like(direction))
            for key in CONSTANTS
        }
        dual["log_probs"] = forward_ad.make_dual(tensors["log_probs"], direction)
        loss, parts = call_ppo(ll.ppo_loss, tensors | dual)
        assert all(forward_ad.unpack_dual(x).tangent is None for x in parts)
        tangent = forward_ad.unpack_dual(loss).tangent
    assert tangent is not None
    gradient = gradients_of("ppo_loss", policy_rows((5,), 10))["log_probs"]
    assert_close(tangent.numpy(), (direction.numpy() * gradient).sum())


@pytest.mark.parametrize("backend", [TORCH, JAX], ids=str)
@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated")  # PyTorch's own
def test_transforms_differentiate_the_loss_twice(backend):
    data = policy_rows((4,), 11)
    arguments = backend.arguments(data)

    def loss(values):
        return call_ppo(ll.ppo_loss, arguments | {"values": values})[0]

    hessian = torch.func.hessian(loss) if backend is TORCH else jax.jit(jax.hessian(loss))
    assert_close(backend.numpy(hessian(arguments["values"])), np.eye(4) * 0.7 / 4)


# What eager PyTorch keeps


@every_loss
def test_torch_loss_is_differentiable_once_and_says_so(name):
    data = policy_rows((4,), 12)
    tensors = TORCH.arguments(data)
    values = tensors["values"].requires_grad_()
    loss, _ = CALLS[name](KERNELS_OF[name], tensors)
    (gradient,) = torch.autograd.grad(loss, values, create_graph=True)
    assert_close(gradient.detach().numpy(), gradients_of(name, data)["values"])
    with pytest.raises(RuntimeError, match="once_differentiable"):
        (values.sum() + gradient.square().sum()).backward()


@pytest.mark.parametrize("key", ROWS)
def test_inputs_overwritten_before_backward_do_not_change_the_gradient(key):
    data = policy_rows((2, 4), 13) | {"value_clip": 0.3}
    tensors = TORCH.arguments(data)
    inputs = [tensors[name].requires_grad_() for name in INPUTS]
    loss, _ = call_ppo(ll.ppo_loss, tensors)
    with torch.no_grad():
        tensors[key].fill_(1)
    loss.backward()
    for x, expected in zip(inputs, gradients_of("ppo_loss", data).values(), strict=True):
        assert x.grad is not None
        assert_close(x.grad.numpy(), expected)


def test_backward_can_be_run_again():
    tensors = TORCH.arguments(policy_rows((4,), 14))
    values = tensors["values"].requires_grad_()
    loss, _ = call_ppo(ll.ppo_loss, tensors)
    loss.backward(retain_graph=True)
    assert values.grad is not None
    once = values.grad.clone()
    loss.backward()
    assert torch.equal(values.grad, 2 * once)


@every_loss
@pytest.mark.parametrize("asked", [(), *[(name,) for name in INPUTS], INPUTS], ids=str)
def test_a_graph_is_kept_only_where_one_is_asked_for(name, asked):
    data = policy_rows((4,), 15)
    tensors = TORCH.arguments(data)
    for key in (*asked, *CONSTANTS):
        tensors[key].requires_grad_()
    loss, parts = CALLS[name](KERNELS_OF[name], tensors)
    assert loss.requires_grad == bool(asked)
    assert not any(x.requires_grad for x in parts)
    with torch.no_grad():
        assert not CALLS[name](KERNELS_OF[name], tensors)[0].requires_grad
    if asked:
        loss.backward()
    for key in ROWS:
        assert (tensors[key].grad is not None) == (key in asked), key
    for key in asked:
        assert_close(tensors[key].grad.numpy(), gradients_of(name, data)[key])


@pytest.mark.parametrize("half", ["float16", "bfloat16"])
def test_half_precision_gets_its_gradients_in_its_own_dtype(half):
    tensors = TORCH.arguments(policy_rows((4,), 16), half)
    wide = {k: x.double() if TORCH.owns(x) else x for k, x in tensors.items()}
    for arguments in (tensors, wide):
        for key in INPUTS:
            arguments[key].requires_grad_()
        call_ppo(ll.ppo_loss, arguments)[0].backward()
    for key in INPUTS:
        assert tensors[key].grad.dtype == tensors[key].dtype
        # one rounding to half precision, of numbers of about 1 at most
        atol = 2 * torch.finfo(tensors[key].dtype).eps
        np.testing.assert_allclose(tensors[key].grad.double(), wide[key].grad, atol=atol)
