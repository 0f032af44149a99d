"""What the losses cannot take is refused in one clear message: what was wrong, what to do."""

import re

import numpy as np
import pytest
from support.backends import BACKENDS, JAX, NUMPY, TORCH
from support.policy_gradient import CALLS, KERNELS_OF
from support.situations import policy_rows

import loopless as ll
from loopless.verify.cases.batches import POLICY_GRADIENT, PPO, ROWS, call_ppo

ARRAYS = {"ppo_loss": (*ROWS, "valid"), "policy_gradient_loss": (*POLICY_GRADIENT, "valid")}
COEFFICIENTS = ("value_coefficient", "entropy_coefficient")
NUMBERS = {"ppo_loss": (*COEFFICIENTS, "clip", "value_clip"), "policy_gradient_loss": COEFFICIENTS}
every_backend = pytest.mark.parametrize("backend", BACKENDS, ids=str)
every_argument = pytest.mark.parametrize(
    ("name", "argument"), [(name, x) for name, arrays in ARRAYS.items() for x in arrays]
)
but_first = pytest.mark.parametrize(
    ("name", "argument"),
    [(name, x) for name, arrays in ARRAYS.items() for x in arrays if x != "log_probs"],
)
every_number = pytest.mark.parametrize(
    ("name", "argument"), [(name, x) for name, numbers in NUMBERS.items() for x in numbers]
)


def good(backend) -> dict:
    data = policy_rows((4, 6), 0) | {"value_clip": 0.3, "valid": np.ones((4, 6), bool)}
    return backend.arguments(data)


def call(name, backend, changed: dict):
    """The kernel on good arguments but for what is changed."""
    return CALLS[name](KERNELS_OF[name], good(backend) | changed)


def refused(error, kernel: str, *parts):
    held = "".join(rf"(?=.*(?<!\w){re.escape(str(part))}(?!\w))" for part in parts)
    return pytest.raises(error, match=rf"(?s)\A{kernel}: {held}")


@every_backend
@pytest.mark.parametrize("name", CALLS)
def test_the_arguments_that_these_tests_spoil_are_good(backend, name):
    call(name, backend, {})


@every_backend
@but_first
@pytest.mark.parametrize("shape", [(4, 5), (6, 4), (4, 6, 1), (24,), ()], ids=str)
def test_another_shape_is_refused_with_both(backend, name, argument, shape):
    wrong = backend.array(np.ones(shape, bool if argument == "valid" else float))
    with refused(ValueError, name, f"{argument} has shape {shape}", "log_probs, (4, 6)"):
        call(name, backend, {argument: wrong})


@every_backend
def test_all_misfits_are_named_at_once(backend):
    wrong = {"returns": np.ones((6, 4)), "valid": np.ones(3, bool), "old_values": np.ones(2)}
    said = ("returns has shape (6, 4)", "valid has shape (3,)", "old_values has shape (2,)")
    with refused(ValueError, "ppo_loss", *said, "log_probs, (4, 6)"):
        call("ppo_loss", backend, backend.arguments(wrong))


@every_backend
@pytest.mark.parametrize("dtype", ["int64", "bool", "complex64"])
@every_argument
def test_rows_that_are_not_floating_are_refused(backend, name, argument, dtype):
    if argument == "valid":
        dtype, said = "complex64", "0 and 1"
    else:
        said = "float32"
    wrong = backend.array(np.ones((4, 6), dtype))
    with refused(TypeError, name, f"{argument} has dtype", dtype, said):
        call(name, backend, {argument: wrong})


@pytest.mark.parametrize("backend", [NUMPY, TORCH], ids=str)
@pytest.mark.parametrize("name", CALLS)
def test_integer_flags_are_0_or_1(backend, name):
    flags = np.ones((4, 6), np.int64)
    flags[1, 1] = 2
    with refused(ValueError, name, "valid holds 2", "0 or 1"):
        call(name, backend, {"valid": backend.array(flags)})


@every_backend
@every_argument
def test_lists_are_refused(backend, name, argument):
    with refused(TypeError, name, f"{argument} is a list", "NumPy", "PyTorch", "JAX"):
        call(name, backend, {argument: [[1.0] * 6] * 4})


@every_backend
@pytest.mark.parametrize(
    ("name", "argument"),
    [("ppo_loss", x) for x in PPO] + [("policy_gradient_loss", x) for x in POLICY_GRADIENT],
)
def test_none_is_refused_where_an_array_is_needed(backend, name, argument):
    with refused(TypeError, name, f"{argument} is a NoneType"):
        call(name, backend, {argument: None})


@every_backend
def test_a_value_clip_without_old_values_is_refused(backend):
    with refused(
        ValueError, "ppo_loss", "value_clip=0.3", "needs old_values", "leave value_clip out"
    ):
        call("ppo_loss", backend, {"old_values": None})


@but_first
@pytest.mark.parametrize(
    ("backend", "other"),
    [(NUMPY, TORCH), (TORCH, NUMPY), (TORCH, JAX), (JAX, NUMPY)],
    ids=lambda x: x.name,
)
def test_libraries_are_not_mixed(backend, other, name, argument):
    said = (f"{argument} is a {other.name} array", f"{backend.name} array", "Convert")
    with refused(TypeError, name, *said):
        call(name, backend, {argument: good(other)[argument]})


@but_first
@pytest.mark.parametrize("gradients", [False, True])
def test_devices_are_not_mixed(name, argument, gradients):
    arguments = good(TORCH)
    arguments["log_probs"].requires_grad_(gradients)
    changed = arguments | {argument: arguments[argument].to("meta")}
    with refused(ValueError, name, f"{argument} is on meta", "cpu", "one device"):
        call(name, TORCH, changed)


# Numbers


@every_backend
@every_number
@pytest.mark.parametrize("wrong", [-0.1, -1, float("nan"), np.float32(-2)], ids=str)
def test_a_negative_number_is_refused(backend, name, argument, wrong):
    with refused(ValueError, name, argument, "at least 0", f"received {wrong}"):
        call(name, backend, {argument: wrong})


@pytest.mark.parametrize("backend", [NUMPY, TORCH], ids=str)
@every_number
def test_a_negative_0d_array_is_refused_where_it_is_looked_at(backend, name, argument):
    with refused(ValueError, name, argument, "at least 0", "received -0.5"):
        call(name, backend, {argument: backend.array(np.array(-0.5))})


@every_backend
@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("argument", COEFFICIENTS)
def test_an_infinite_coefficient_is_refused(backend, name, argument):
    with refused(ValueError, name, argument, "finite", "received inf"):
        call(name, backend, {argument: float("inf")})


@every_backend
@every_number
def test_numbers_for_each_row_are_refused(backend, name, argument):
    with refused(ValueError, name, f"{argument} has shape (4, 6)", "one number"):
        call(name, backend, {argument: backend.array(np.full((4, 6), 0.5))})


@every_backend
@every_number
@pytest.mark.parametrize("wrong", ["0.2", True, [0.2], np.array(True)], ids=repr)
def test_what_is_no_number_is_refused(backend, name, argument, wrong):
    with refused(TypeError, name, f"{argument} is a"):
        call(name, backend, {argument: wrong})


@every_backend
@pytest.mark.parametrize(
    ("name", "argument"),
    [("ppo_loss", "clip"), *[(name, x) for name in CALLS for x in COEFFICIENTS]],
)
def test_none_is_no_number(backend, name, argument):
    with refused(TypeError, name, f"{argument} is a NoneType"):
        call(name, backend, {argument: None})


@pytest.mark.parametrize("other", [TORCH, JAX], ids=str)
@every_number
def test_numbers_of_another_library_are_refused(other, name, argument):
    with refused(TypeError, name, f"{argument} is a {other.name} array", "numpy"):
        call(name, NUMPY, {argument: other.array(np.array(0.5))})


def test_an_error_stands_alone():
    """No other exception is shown above it: what the library tried first is none of the user's."""
    arguments = good(TORCH)
    arguments["log_probs"].requires_grad_()
    with pytest.raises(TypeError) as caught:
        call_ppo(ll.ppo_loss, arguments | {"returns": None})
    assert caught.value.__context__ is None or caught.value.__suppress_context__


def test_arrays_that_are_more_than_arrays_are_refused():
    with pytest.raises(TypeError, match="MaskedArray"):
        call("ppo_loss", NUMPY, {"log_probs": np.ma.masked_array(np.zeros((4, 6)))})
