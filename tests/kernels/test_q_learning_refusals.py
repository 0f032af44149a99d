"""What the kernels cannot take is refused in one clear message: what was wrong, what to do.

Actions out of range are in `test_q_learning_cases`, case E13.
"""

import re

import numpy as np
import pytest
import torch
from support.backends import BACKENDS, JAX, NUMPY, TORCH
from support.situations import transitions

import loopless as ll
from loopless.verify.cases.batches import MEMBERS

KERNELS = {
    "q_targets": ("rewards", "terminated", "next_q"),
    "q_loss": ("q", "actions", "targets"),
}
OPTIONAL = {"next_q_online": "q_targets", "next_actions": "q_targets", "weights": "q_loss"}
FLOATS = ("rewards", "next_q", "next_q_online", "q", "targets", "weights")
ACTIONS = ("actions", "next_actions")
every_backend = pytest.mark.parametrize("backend", BACKENDS, ids=str)


def kernel_of(argument: str) -> str:
    found = [name for name, names in KERNELS.items() if argument in names]
    return found[0] if found else OPTIONAL.get(argument, "q_targets")


def call(kernel: str, backend, changed: dict, shape=(2, 4), options=()):
    """The kernel on good arguments but for what is changed."""
    data = transitions(shape, 3, 0)
    names = [*KERNELS[kernel], *(name for name in OPTIONAL if name in changed)]
    arguments = {name: backend.array(data[name]) for name in names} | changed
    if kernel == "q_targets":
        arguments.setdefault("gamma", 0.9)
    arguments |= dict(options)
    placed = [arguments.pop(name) for name in KERNELS[kernel]]
    return getattr(ll, kernel)(*placed, **arguments)


def refused(error, kernel: str, *parts):
    held = "".join(rf"(?=.*(?<!\w){re.escape(str(part))}(?!\w))" for part in parts)
    return pytest.raises(error, match=rf"(?s)\A{kernel}: {held}")


ALL = [*KERNELS["q_targets"], *KERNELS["q_loss"], *OPTIONAL]
every_argument = pytest.mark.parametrize("argument", ALL)
but_first = pytest.mark.parametrize("argument", [x for x in ALL if x not in ("rewards", "q")])


@every_backend
@pytest.mark.parametrize("member", MEMBERS)
def test_the_arguments_that_these_tests_spoil_are_good(backend, member):
    data = transitions((2, 4), 3, 0)
    names = {"dqn": (), "double": ("next_q_online",), "sarsa": ("next_actions",)}[member]
    call("q_targets", backend, {name: backend.array(data[name]) for name in names})
    call("q_loss", backend, {"weights": backend.array(data["weights"])})


@every_backend
@but_first
def test_a_missing_sample_is_refused_with_both_shapes(backend, argument):
    kernel = kernel_of(argument)
    wrong = transitions((2, 3), 3, 0)[argument]
    with refused(ValueError, kernel, f"{argument} has shape {wrong.shape}", "4"):
        call(kernel, backend, {argument: backend.array(wrong)})


@every_backend
@pytest.mark.parametrize("argument", ["actions", "targets", "weights", "terminated"])
def test_a_column_is_refused_with_the_shape_that_it_must_have(backend, argument):
    """[B, 1] beside [B] would make [B, B]."""
    kernel = kernel_of(argument)
    column = transitions((4,), 3, 0)[argument][:, None]
    with refused(ValueError, kernel, f"{argument} has shape (4, 1)", "must be (4,)"):
        call(kernel, backend, {argument: backend.array(column)}, shape=(4,))


@every_backend
def test_values_without_an_axis_of_actions_are_refused(backend):
    with refused(ValueError, "q_targets", "next_q has shape (2, 4)", "must be (2, 4, A)"):
        call("q_targets", backend, {"next_q": backend.array(np.zeros((2, 4)))})
    with refused(ValueError, "q_loss", "q has shape (3,)", "[..., B, A]"):
        call("q_loss", backend, {"q": backend.array(np.zeros(3))})


@every_backend
def test_two_networks_of_different_actions_are_refused(backend):
    said = ("next_q_online has shape (2, 4, 5)", "next_q of shape (2, 4, 3)")
    with refused(ValueError, "q_targets", *said):
        call("q_targets", backend, {"next_q_online": backend.array(np.zeros((2, 4, 5)))})


@every_backend
def test_no_actions_and_no_samples_are_refused(backend):
    empty = backend.array(np.zeros((2, 4, 0)))
    with refused(ValueError, "q_targets", "next_q has shape (2, 4, 0)", "at least one action"):
        call("q_targets", backend, {"next_q": empty})
    with refused(ValueError, "q_loss", "q has shape (2, 4, 0)", "at least one action"):
        call("q_loss", backend, {"q": empty})
    with refused(ValueError, "q_loss", "q has shape (2, 0, 3)", "at least one sample"):
        call("q_loss", backend, {"q": backend.array(np.zeros((2, 0, 3)))})


@every_backend
def test_two_ways_to_choose_the_next_action_are_refused(backend):
    data = transitions((2, 4), 3, 0)
    both = {name: backend.array(data[name]) for name in ("next_q_online", "next_actions")}
    with refused(ValueError, "q_targets", "next_q_online", "next_actions", "double", "SARSA"):
        call("q_targets", backend, both)


@every_backend
@pytest.mark.parametrize("argument", FLOATS)
@pytest.mark.parametrize("dtype", ["int64", "bool"])
def test_values_that_are_not_floating_are_refused(backend, argument, dtype):
    kernel = kernel_of(argument)
    wrong = np.ones(transitions((2, 4), 3, 0)[argument].shape, dtype)
    with refused(TypeError, kernel, f"{argument} has dtype", dtype, "float32"):
        call(kernel, backend, {argument: backend.array(wrong)})


@every_backend
@pytest.mark.parametrize("argument", ACTIONS)
def test_e14_actions_that_are_no_numbers_are_refused(backend, argument):
    wrong = np.ones((2, 4), "complex64")
    kernel = kernel_of(argument)
    with refused(TypeError, kernel, f"{argument} has dtype", "complex64", "integers"):
        call(kernel, backend, {argument: backend.array(wrong)})


@every_backend
@pytest.mark.parametrize("argument", ACTIONS)
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_actions_may_be_whole_floats(backend, argument, dtype):
    kernel, actions = kernel_of(argument), transitions((2, 4), 3, 0)[argument]
    got = call(kernel, backend, {argument: backend.array(actions.astype(dtype))})
    expected = call(kernel, backend, {argument: backend.array(actions)})
    for x, y in zip(*((z if isinstance(z, tuple) else (z,)) for z in (got, expected)), strict=True):
        np.testing.assert_array_equal(backend.numpy(x), backend.numpy(y))


@every_backend
@pytest.mark.parametrize("argument", ACTIONS)
@pytest.mark.parametrize("wrong", [0.5, np.nan, np.inf])
def test_e14_actions_that_are_not_whole_are_refused(backend, argument, wrong):
    kernel, actions = kernel_of(argument), np.ones((2, 4))
    actions[1, 2] = wrong
    if backend is JAX:
        terminated = backend.array(np.zeros((2, 4), bool))
        changes = {"terminated": terminated} if kernel == "q_targets" else {}
        out = call(kernel, backend, {argument: backend.array(actions)} | changes)
        assert np.isnan(backend.numpy(out[1] if kernel == "q_loss" else out)[1, 2])
        return
    with refused(ValueError, kernel, f"{argument} holds", "whole numbers"):
        call(kernel, backend, {argument: backend.array(actions)})


@every_backend
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_float_flags_are_taken(backend, dtype):
    flags = backend.array(transitions((2, 4), 3, 0)["terminated"].astype(dtype))
    got = call("q_targets", backend, {"terminated": flags})
    np.testing.assert_array_equal(backend.numpy(got), backend.numpy(call("q_targets", backend, {})))


@every_backend
def test_integer_flags_are_taken(backend):
    data = transitions((2, 4), 3, 0)
    flags = backend.array(data["terminated"].astype(np.uint8))
    got, expected = (
        call("q_targets", backend, {"terminated": flags}),
        call("q_targets", backend, {}),
    )
    np.testing.assert_array_equal(backend.numpy(got), backend.numpy(expected))


@pytest.mark.parametrize("backend", [NUMPY, TORCH], ids=str)
def test_integer_flags_are_0_or_1(backend):
    flags = np.zeros((2, 4), np.int64)
    flags[1, 1] = 2
    with refused(ValueError, "q_targets", "terminated holds 2", "0 or 1"):
        call("q_targets", backend, {"terminated": backend.array(flags)})


@every_backend
@every_argument
def test_lists_are_refused(backend, argument):
    kernel = kernel_of(argument)
    wrong = transitions((2, 4), 3, 0)[argument].tolist()
    with refused(TypeError, kernel, f"{argument} is a list", "NumPy", "PyTorch", "JAX"):
        call(kernel, backend, {argument: wrong})


@every_backend
@pytest.mark.parametrize("argument", [x for x in ALL if x not in OPTIONAL])
def test_none_is_refused_where_an_array_is_needed(backend, argument):
    kernel = kernel_of(argument)
    with refused(TypeError, kernel, f"{argument} is a NoneType"):
        call(kernel, backend, {argument: None})


@but_first
@pytest.mark.parametrize(
    ("backend", "other"),
    [(NUMPY, TORCH), (TORCH, NUMPY), (TORCH, JAX), (JAX, NUMPY)],
    ids=lambda x: x.name,
)
def test_libraries_are_not_mixed(backend, other, argument):
    kernel = kernel_of(argument)
    wrong = other.array(transitions((2, 4), 3, 0)[argument])
    said = (f"{argument} is a {other.name} array", f"{backend.name} array", "Convert")
    with refused(TypeError, kernel, *said):
        call(kernel, backend, {argument: wrong})


@but_first
@pytest.mark.parametrize("gradients", [False, True])
def test_devices_are_not_mixed(argument, gradients):
    kernel = kernel_of(argument)
    wrong = TORCH.array(transitions((2, 4), 3, 0)[argument]).to("meta")
    changed = {argument: wrong}
    if gradients and kernel == "q_loss":
        changed["q"] = TORCH.array(transitions((2, 4), 3, 0)["q"]).requires_grad_()
    with refused(ValueError, kernel, f"{argument} is on meta", "cpu", "one device"):
        call(kernel, TORCH, changed)


# Numbers


@every_backend
@pytest.mark.parametrize("gamma", [-0.1, 1.5, float("nan"), np.float32(2)])
def test_a_discount_outside_0_and_1_is_refused(backend, gamma):
    with refused(ValueError, "q_targets", "gamma must be between 0 and 1", f"received {gamma}"):
        call("q_targets", backend, {"gamma": gamma})


@pytest.mark.parametrize("backend", [NUMPY, TORCH], ids=str)
def test_discounts_outside_0_and_1_are_refused_where_they_are_looked_at(backend):
    wrong = np.full((2, 4), 0.9)
    wrong[1, 2] = 1.5
    with refused(ValueError, "q_targets", "gamma must be between 0 and 1", "1.5"):
        call("q_targets", backend, {"gamma": backend.array(wrong)})


@every_backend
@pytest.mark.parametrize("shape", [(4,), (2,), (4, 2)], ids=str)
def test_discounts_that_could_mean_either_axis_are_refused(backend, shape):
    with refused(ValueError, "q_targets", f"gamma has shape {shape}", "(2, 4)"):
        call("q_targets", backend, {"gamma": backend.array(np.full(shape, 0.9))})


@every_backend
@pytest.mark.parametrize("gamma", [None, "0.9", True, [0.9]], ids=repr)
def test_a_discount_that_is_no_number_is_refused(backend, gamma):
    with refused(TypeError, "q_targets", f"gamma is a {type(gamma).__name__}"):
        call("q_targets", backend, {"gamma": gamma})


@every_backend
@pytest.mark.parametrize("delta", [0, 0.0, -1.0, float("nan")])
def test_a_delta_that_is_not_positive_is_refused(backend, delta):
    with refused(ValueError, "q_loss", "delta must be positive", f"received {delta}"):
        call("q_loss", backend, {}, options={"loss": "huber", "delta": delta}.items())


@every_backend
@pytest.mark.parametrize("delta", [None, "1", True, [1.0]], ids=repr)
def test_a_delta_that_is_no_number_is_refused(backend, delta):
    with refused(TypeError, "q_loss", f"delta is a {type(delta).__name__}"):
        call("q_loss", backend, {}, options={"delta": delta}.items())


@every_backend
@pytest.mark.parametrize("loss", ["MSE", "l1", "", None, ["mse"]], ids=repr)
def test_an_unknown_loss_is_answered_with_the_known(backend, loss):
    with refused(ValueError, "q_loss", f"loss={loss!r}", "mse", "huber"):
        call("q_loss", backend, {}, options={"loss": loss}.items())


@pytest.mark.parametrize("gradients", [False, True])
@pytest.mark.parametrize("backend", [NUMPY, TORCH], ids=str)
@pytest.mark.parametrize("weight", [-0.5, float("nan"), float("inf")])
def test_weights_that_can_be_none_are_refused_where_they_are_looked_at(backend, weight, gradients):
    weights = np.ones((2, 4))
    weights[0, 3] = weight
    changed = {"weights": backend.array(weights)}
    if gradients and backend is TORCH:
        changed["q"] = TORCH.array(transitions((2, 4), 3, 0)["q"]).requires_grad_()
    with refused(ValueError, "q_loss", f"weights holds {weight} at (0, 3)", "finite"):
        call("q_loss", backend, changed)


@pytest.mark.parametrize("wrong", [{"targets": None}, {"q": torch.ones(2, 0, 3)}], ids=str)
def test_an_error_stands_alone(wrong):
    """No other exception is shown above it: what the library tried first is none of the user's."""
    q = TORCH.array(transitions((2, 4), 3, 0)["q"]).requires_grad_()
    with pytest.raises((TypeError, ValueError)) as caught:
        call("q_loss", TORCH, {"q": q} | wrong)
    assert caught.value.__context__ is None or caught.value.__suppress_context__


def test_read_only_arrays_are_taken():
    data = transitions((2, 4), 3, 0)
    for x in data.values():
        if isinstance(x, np.ndarray):
            x.flags.writeable = False
    names = [*KERNELS["q_loss"], "weights"]
    got = call("q_loss", NUMPY, {name: data[name] for name in names})
    expected = call("q_loss", NUMPY, {"weights": data["weights"].copy()})
    np.testing.assert_array_equal(got[0], expected[0])


def test_arrays_that_are_more_than_arrays_are_refused():
    masked = np.ma.masked_array(np.zeros((2, 4, 3)))
    with pytest.raises(TypeError, match="MaskedArray"):
        call("q_loss", NUMPY, {"q": masked})
