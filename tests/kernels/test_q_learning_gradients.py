"""Where gradients go: to the taken actions by the closed form, and nowhere else, exactly."""

import jax
import jax.numpy as jnp
import jax.test_util
import numpy as np
import pytest
import torch
from support.backends import JAX, TORCH
from support.compare import assert_close
from support.q_learning import LOSSES, SITUATIONS, Elsewhere
from support.situations import call_loss, transitions
from torch.autograd import forward_ad

import loopless as ll
from loopless import reference
from loopless.verify.cases.batches import MEMBERS, call_targets

# The floating arguments of each kernel, the first of `q_loss` being the only one with a gradient.
INTO_TARGETS = ("rewards", "next_q", "next_q_online", "gamma")
INTO_LOSS = ("q", "targets", "weights")
every_loss = pytest.mark.parametrize("options", LOSSES, ids=str)
every_situation = pytest.mark.parametrize("situation", SITUATIONS, ids=lambda s: s.name)


def eager(loss, variables):
    for x in variables.values():
        x.requires_grad_()
    found = torch.autograd.grad(
        loss(variables), list(variables.values()), allow_unused=True, materialize_grads=True
    )
    return dict(zip(variables, found, strict=True))


def transformed(loss, variables):
    return torch.func.grad(loss)(variables)


def elsewhere(loss, variables):
    """As on a device that NumPy does not see."""
    wrapped = {name: x.as_subclass(Elsewhere) for name, x in variables.items()}
    return eager(loss, wrapped)


DIFFERENTIATE = {
    "torch": (TORCH, eager),
    "torch, transformed": (TORCH, transformed),
    "torch, elsewhere": (TORCH, elsewhere),
    "jax": (JAX, lambda loss, variables: jax.jit(jax.grad(loss))(variables)),
}
every_road = pytest.mark.parametrize("road", DIFFERENTIATE)


def gradients(road, data, names, loss):
    """The gradients of `loss(arguments)` by the floating arguments `names`, as NumPy arrays."""
    backend, differentiate = DIFFERENTIATE[road]
    arguments = backend.arguments(data)
    variables = {name: arguments[name] for name in names if backend.owns(arguments.get(name))}
    found = differentiate(lambda variables: loss(arguments | variables), variables)
    return {name: backend.numpy(x) for name, x in found.items()}


def scaled_sum(losses):
    """A sum with a factor for each batch, so that no batch can stand for another."""
    flat = losses.reshape(-1)
    return sum((k + 1) * flat[k] for k in range(flat.shape[0]))


@every_road
@every_loss
@every_situation
def test_gradient_is_the_closed_form_and_0_into_targets_and_weights(road, options, situation):
    data = situation.data
    found = gradients(
        road, data, INTO_LOSS, lambda x: scaled_sum(call_loss(ll.q_loss, x, **options)[0])
    )
    expected = call_loss(reference.q_loss_gradients, data, **options)
    batches = expected.shape[:-2]
    factors = 1.0 + np.arange(np.prod(batches, dtype=int)).reshape((*batches, 1, 1))
    assert_close(found["q"], factors * expected)
    others = np.arange(data["q"].shape[-1]) != data["actions"][..., None]
    assert not found["q"][others].any()
    for name in found.keys() & {"targets", "weights"}:
        np.testing.assert_array_equal(found[name], 0.0, err_msg=name)


@every_road
@pytest.mark.parametrize("member", MEMBERS)
def test_targets_pass_no_gradient_to_anything(road, member):
    data = transitions((3, 4), 3, 1)
    data["gamma"] = np.full((3, 4), 0.9)
    backend, _ = DIFFERENTIATE[road]

    def loss(arguments):  # something with a gradient of its own, so that there is a graph at all
        return (call_targets(ll.q_targets, arguments, member) * arguments["q"][..., 0]).sum()

    found = gradients(road, data, (*INTO_TARGETS, "q"), loss)
    for name in INTO_TARGETS:
        np.testing.assert_array_equal(found[name], 0.0, err_msg=name)
    targets = backend.numpy(call_targets(ll.q_targets, backend.arguments(data), member))
    assert_close(found["q"][..., 0], targets)


@every_road
def test_errors_pass_no_gradient(road):
    data = transitions((5,), 3, 2)

    def loss(arguments):
        value, errors = call_loss(ll.q_loss, arguments)
        return value + (errors * errors).sum()

    found = gradients(road, data, INTO_LOSS, loss)
    assert_close(found["q"], call_loss(reference.q_loss_gradients, data))
    np.testing.assert_array_equal(found["targets"], 0.0)


@every_road
@every_loss
@pytest.mark.parametrize("poison", [np.nan, np.inf])
def test_e17_a_sample_of_weight_0_has_a_gradient_of_0_whatever_it_holds(road, options, poison):
    data = transitions((6,), 3, 3)
    data["weights"][2] = 0.0
    data["targets"][2] = poison
    found = gradients(road, data, ("q",), lambda x: call_loss(ll.q_loss, x, **options)[0])["q"]
    np.testing.assert_array_equal(found[2], 0.0)
    assert np.isfinite(found).all()


@every_road
def test_e02_unread_infinities_leave_the_gradient_finite(road):
    data = transitions((8,), 3, 4, terminated=0.5)
    data["next_q"][data["terminated"]] = np.inf

    def loss(arguments):
        targets = call_targets(ll.q_targets, arguments)
        return call_loss(ll.q_loss, arguments | {"targets": targets})[0]

    found = gradients(road, data, ("q", "next_q"), loss)
    assert np.isfinite(found["q"]).all()
    np.testing.assert_array_equal(found["next_q"], 0.0)


@every_road
@pytest.mark.parametrize("delta", [0.5, 2.0])
def test_e11_hubers_gradient_is_bounded_by_weight_delta_over_samples(road, delta):
    data = transitions((6,), 3, 5)
    data["targets"] = data["targets"] * 1e8
    found = gradients(
        road, data, ("q",), lambda x: call_loss(ll.q_loss, x, loss="huber", delta=delta)[0]
    )["q"]
    bound = data["weights"] * delta / 6
    assert_close(np.abs(found).max(-1), bound)


@every_road
def test_e29_the_mean_of_the_batches_gradients_is_the_mega_batchs(road):
    data = transitions((4, 5), 3, 6)
    flat = {k: x.reshape(20, *x.shape[2:]) for k, x in data.items() if isinstance(x, np.ndarray)}
    several = gradients(road, data, ("q",), lambda x: call_loss(ll.q_loss, x)[0].mean())["q"]
    mega = gradients(road, flat, ("q",), lambda x: call_loss(ll.q_loss, x)[0])["q"]
    assert_close(several.reshape(20, 3), mega)


# A network in front: the gradient by its parameters


SIZES = {"hidden": (4, 5), "out": (5, 3)}


def parameters(seed):
    rng = np.random.default_rng(seed)
    return {name: rng.standard_normal(shape) for name, shape in SIZES.items()}


def network(tanh, theta, states):
    return tanh(states @ theta["hidden"]) @ theta["out"]


@pytest.mark.parametrize("road", ["torch", "torch, transformed", "jax"])
@every_loss
@pytest.mark.parametrize("member", MEMBERS)
def test_e35_central_differences_by_the_parameters_and_0_by_the_targets(road, options, member):
    data = transitions((7,), 3, 7)
    rng = np.random.default_rng(8)
    data["states"], data["next_states"] = rng.standard_normal((2, 7, 4))
    online, target = parameters(9), parameters(10)
    tanh = torch.tanh if road != "jax" else jnp.tanh

    def update(arguments, tanh=tanh, kernels=ll, targets=None):
        online = {name: arguments[f"online {name}"] for name in SIZES}
        target = {name: arguments[f"target {name}"] for name in SIZES}
        values = arguments | {
            "q": network(tanh, online, arguments["states"]),
            "next_q": network(tanh, target, arguments["next_states"]),
            "next_q_online": network(tanh, online, arguments["next_states"]),
        }
        if targets is None:
            targets = call_targets(kernels.q_targets, values, member)
        return call_loss(kernels.q_loss, values | {"targets": targets}, **options)[0], targets

    data |= {f"online {name}": x for name, x in online.items()}
    data |= {f"target {name}": x for name, x in target.items()}
    names = [name for name in data if name.startswith(("online", "target "))]
    found = gradients(road, data, names, lambda x: update(x)[0])
    _, frozen = update(data, np.tanh, reference)
    for name in SIZES:
        np.testing.assert_array_equal(found[f"target {name}"], 0.0)
        key = f"online {name}"
        expected = np.zeros(SIZES[name])
        for place in np.ndindex(expected.shape):
            around = []
            for step in (1e-5, -1e-5):
                moved = data[key].copy()
                moved[place] += step
                around.append(update(data | {key: moved}, np.tanh, reference, frozen)[0])
            expected[place] = (around[0] - around[1]) / 2e-5
        error = np.abs(found[key] - expected).max() / np.abs(expected).max()
        assert error < 1e-6


# PyTorch's own checks


def away_from_kinks(data):
    """Errors that a numerical step does not take across Huber's δ."""
    taken = np.take_along_axis(data["q"], data["actions"][..., None], -1)[..., 0]
    errors = taken - data["targets"]
    for delta in (0.3, 1.0):
        assert (np.abs(np.abs(errors) - delta) > 1e-3).all()
    return data


@every_loss
@pytest.mark.parametrize("weighted", [False, True])
def test_torch_gradcheck(options, weighted):
    data = away_from_kinks(transitions((2, 4), 3, 11))
    if not weighted:
        del data["weights"]
    tensors = TORCH.arguments(data)

    def loss(q):
        return call_loss(ll.q_loss, tensors | {"q": q}, **options)[0]

    q = tensors["q"].requires_grad_()
    assert torch.autograd.gradcheck(loss, q, check_batched_grad=True)


def test_torch_loss_is_differentiable_once_and_says_so():
    data = transitions((4,), 3, 12)
    tensors = TORCH.arguments(data)
    q = tensors["q"].requires_grad_()
    loss, _ = call_loss(ll.q_loss, tensors)
    (gradient,) = torch.autograd.grad(loss, q, create_graph=True)
    assert_close(gradient.detach().numpy(), call_loss(reference.q_loss_gradients, data))
    # A penalty on the gradient beside other losses must not be left out in silence.
    with pytest.raises(RuntimeError, match="once_differentiable"):
        (q.sum() + gradient.square().sum()).backward()


@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated")  # PyTorch's own
@pytest.mark.parametrize("backend", [TORCH, JAX], ids=str)
def test_transforms_differentiate_the_loss_twice(backend):
    data = transitions((4,), 3, 12)
    arguments = backend.arguments(data)

    def loss(q):
        return call_loss(ll.q_loss, arguments | {"q": q})[0]

    hessian = torch.func.hessian(loss) if backend is TORCH else jax.jit(jax.hessian(loss))
    found = hessian(arguments["q"])
    taken = data["actions"][:, None] == np.arange(3)
    expected = np.where(taken, data["weights"][:, None] * 2 / 4, 0.0)
    assert_close(backend.numpy(found).reshape(12, 12), np.diag(expected.ravel()))


@every_loss
def test_jax_derivatives_of_both_modes(options):
    arrays = JAX.arguments(away_from_kinks(transitions((2, 4), 3, 11)))

    @jax.jit
    def loss(q):
        return call_loss(ll.q_loss, arrays | {"q": q}, **options)[0]

    jax.test_util.check_grads(loss, [arrays["q"]], order=1, rtol=1e-6, atol=1e-6)


@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated")  # PyTorch's own
def test_torch_forward_mode_stops_at_the_targets():
    tensors = TORCH.arguments(transitions((5,), 3, 13))
    direction = torch.randn_like(tensors["q"])
    with forward_ad.dual_level():
        dual = {
            name: forward_ad.make_dual(tensors[name], torch.randn_like(tensors[name]))
            for name in ("next_q", "rewards", "next_q_online")
        }
        targets = call_targets(ll.q_targets, tensors | dual, "double")
        assert forward_ad.unpack_dual(targets).tangent is None
        q = forward_ad.make_dual(tensors["q"], direction)
        value, errors = call_loss(ll.q_loss, tensors | {"q": q})
        assert forward_ad.unpack_dual(errors).tangent is None
        tangent = forward_ad.unpack_dual(value).tangent
    assert tangent is not None
    gradient = call_loss(reference.q_loss_gradients, transitions((5,), 3, 13))
    assert_close(tangent.numpy(), (direction.numpy() * gradient).sum())


# What eager PyTorch keeps


@pytest.mark.parametrize("name", ["q", "actions", "targets", "weights"])
def test_inputs_overwritten_before_backward_do_not_change_the_gradient(name):
    data = transitions((2, 4), 3, 14)
    tensors = TORCH.arguments(data)
    q = tensors["q"].requires_grad_()
    loss, _ = call_loss(ll.q_loss, tensors)
    with torch.no_grad():
        tensors[name].fill_(1)
    loss.sum().backward()
    assert q.grad is not None
    assert_close(q.grad.numpy(), call_loss(reference.q_loss_gradients, data))


def test_backward_can_be_run_again():
    tensors = TORCH.arguments(transitions((4,), 3, 15))
    q = tensors["q"].requires_grad_()
    loss, _ = call_loss(ll.q_loss, tensors)
    loss.backward(retain_graph=True)
    assert q.grad is not None
    once = q.grad.clone()
    loss.backward()
    assert torch.equal(q.grad, 2 * once)


def test_no_graph_is_kept_where_none_is_asked_for():
    tensors = TORCH.arguments(transitions((4,), 3, 16))
    assert not any(x.requires_grad for x in call_loss(ll.q_loss, tensors))
    for x in tensors.values():
        if TORCH.owns(x) and x.is_floating_point():
            x.requires_grad_()
    assert not call_targets(ll.q_targets, tensors, "double").requires_grad
    loss, errors = call_loss(ll.q_loss, tensors)
    assert loss.requires_grad
    assert not errors.requires_grad
    with torch.no_grad():
        assert not any(x.requires_grad for x in call_loss(ll.q_loss, tensors))


@pytest.mark.parametrize("half", ["float16", "bfloat16"])
def test_half_precision_gets_its_gradient_in_its_own_dtype(half):
    tensors = TORCH.arguments(transitions((4,), 3, 17), half)
    q = tensors["q"].requires_grad_()
    wide = {k: x.detach().double() if TORCH.owns(x) else x for k, x in tensors.items()}
    wide |= {"q": wide["q"].requires_grad_(), "actions": tensors["actions"]}
    for arguments in (tensors, wide):
        call_loss(ll.q_loss, arguments, loss="huber")[0].backward()
    assert q.grad is not None
    assert q.grad.dtype == q.dtype
    # one rounding to half precision, of numbers below 1
    atol = torch.finfo(q.dtype).eps
    np.testing.assert_allclose(q.grad.double().numpy(), wide["q"].grad.numpy(), atol=atol)
