"""Case 25: what a kernel cannot take is refused in one clear message, and nothing is written to.

A message starts with the function's name and holds the argument's name and what was received.
Wrong values raise ValueError, wrong types TypeError.

On NumPy every argument of every kernel is spoilt. The checks are shared, so on PyTorch and JAX one
kernel stands for all that take their arguments by `returns.check`.
"""

import functools
import inspect
import re
from dataclasses import dataclass, field
from itertools import product

import numpy as np
import pytest
import torch
from support.backends import BACKENDS, JAX, NUMPY, TORCH
from support.situations import rollout

import loopless as ll

STEPS, COLUMNS = SHAPE = (4, 3)


@functools.cache
def _good() -> dict:
    """Arguments that every kernel takes, by name."""
    rng = np.random.default_rng(0)
    return rollout(SHAPE, 1) | {
        "a": rng.random(SHAPE),
        "b": rng.standard_normal(SHAPE),
        "init": rng.standard_normal(COLUMNS),
        "x": rng.standard_normal(SHAPE),
        "last": rng.standard_normal(COLUMNS),
        "last_values": rng.standard_normal(COLUMNS),
        "final_values": rng.standard_normal(SHAPE),
        "previous_end": np.array([True, False, True]),
        "valid": rng.random(SHAPE) < 0.8,
        "lengths": np.array([0, 2, 4]),
        "mix": 0.5,
        "clip_rho": 1.0,
        "clip_c": 1.0,
        "clip_pg_rho": 1.0,
    }


@dataclass(frozen=True)
class Kernel:
    """One way to call a kernel, its arguments sorted by what they hold."""

    label: str
    floats: tuple[str, ...] = ()  # [T, B], all of one shape, the first argument among them
    flags: tuple[str, ...] = ()  # likewise
    rates: tuple[str, ...] = ()  # numbers in [0, 1], or arrays that spread over [T, B]
    rows: tuple[str, ...] = ()  # [B], without the time axis
    others: tuple[str, ...] = ()  # arrays with rules of their own
    options: dict = field(default_factory=dict)
    mistake: dict = field(default_factory=dict)  # found only after everything else was looked at

    @property
    def name(self) -> str:
        return self.label.split(",")[0]

    @property
    def function(self):
        return getattr(ll, self.name)

    @property
    def arrays(self) -> tuple[str, ...]:
        return self.floats + self.flags + self.rows + self.others

    def arguments(self, backend) -> dict:
        names = self.arrays + self.rates
        return {name: backend.array(_good()[name]) for name in names} | self.options

    def __call__(self, arguments: dict):
        bound = inspect.signature(self.function).bind(**arguments)
        return self.function(*bound.args, **bound.kwargs)


ENDS = ("terminated", "truncated", "valid")
BOTH = ("gamma", "lambda_")
TOO_LARGE = {"gamma": 2.0}
KERNELS = {
    kernel.label: kernel
    for kernel in (
        Kernel("gae", ("rewards", "values", "next_values"), ENDS, BOTH, mistake=TOO_LARGE),
        Kernel("lambda_returns", ("rewards", "next_values"), ENDS, BOTH, mistake=TOO_LARGE),
        Kernel("discounted_returns", ("rewards", "next_values"), ENDS, BOTH[:1], mistake=TOO_LARGE),
        Kernel(
            "n_step_returns",
            ("rewards", "next_values"),
            ENDS,
            BOTH[:1],
            options={"n": 2},
            mistake=TOO_LARGE,
        ),
        Kernel(
            "vtrace",
            ("log_ratios", "rewards", "values", "next_values"),
            ENDS,
            (*BOTH, "mix"),
            mistake={"clip_pg_rho": -1.0},
        ),
        Kernel(
            "retrace",
            ("rewards", "q_values", "next_values", "log_ratios"),
            ENDS,
            BOTH,
            mistake=TOO_LARGE,
        ),
        Kernel(
            "retrace, tree_backup",
            ("rewards", "q_values", "next_values", "log_policy"),
            ENDS,
            BOTH,
            options={"trace": "tree_backup"},
            mistake=TOO_LARGE,
        ),
        Kernel("upgo", ("rewards", "values", "next_values"), ENDS, BOTH[:1], mistake=TOO_LARGE),
        Kernel("token_gae", ("rewards", "values"), ("mask",), BOTH, mistake=TOO_LARGE),
        Kernel("normalize", ("x",), ("valid",), mistake={"valid": np.ones((9, 9), bool)}),
        Kernel("affine_scan", ("b",), others=("a", "init"), mistake={"init": np.ones(9)}),
        Kernel(
            "successor_values",
            ("values", "final_values"),
            ENDS[:2],
            rows=("last_values",),
            mistake={"final_values": np.ones((9, 9))},
        ),
        Kernel(
            "successor_values, next_step",
            ("values",),
            ENDS[:2],
            rows=("last_values", "previous_end"),
            options={"autoreset": "next_step"},
            mistake={"previous_end": np.ones(9, bool)},
        ),
        Kernel("unlag", others=("x",), rows=("last",), mistake={"last": np.ones(9)}),
        Kernel(
            "valid_mask",
            others=("lengths",),
            options={"steps": STEPS},
            mistake={"time_axis": 9},
        ),
    )
}


def first(kernel: Kernel) -> str:
    """The argument that the others are compared with."""
    return {"unlag": "x", "valid_mask": "lengths"}.get(kernel.name) or kernel.floats[0]


@dataclass(frozen=True)
class Cases:
    """Values of some of a test's parameters, by id."""

    names: tuple[str, ...]
    values: dict[str, tuple]


def pairs(pick, but_first: bool = False) -> Cases:
    """Every kernel with every argument that `pick` names, once where it has several entries."""
    values = {}
    for kernel in KERNELS.values():
        for name in pick(kernel):
            if not (but_first and name == first(kernel)):
                values.setdefault(f"{kernel.name}-{name}", (kernel, name))
    return Cases(("kernel", "argument"), values)


def some(labels) -> Cases:
    return Cases(("kernel",), {label: (KERNELS[label],) for label in labels})


def backends(*chosen) -> Cases:
    return Cases(("backend",), {str(backend): (backend,) for backend in chosen})


def backend_and(name: str, *mistakes) -> Cases:
    """Libraries beside the mistakes made in them: not the whole product, which would cost much."""
    return Cases(("backend", name), {f"{b}-{mistake!r}": (b, mistake) for b, mistake in mistakes})


# These check their arguments by `returns.check` like `gae`, which stands for them.
LIKE_GAE = {"lambda_returns", "discounted_returns", "n_step_returns", "vtrace", "retrace", "upgo"}


def across(*groups: Cases) -> pytest.MarkDecorator:
    """All combinations, but off NumPy only those of kernels with checks of their own."""
    names = tuple(name for group in groups for name in group.names)
    found = {}
    for combination in product(*[group.values.items() for group in groups]):
        values = tuple(value for _, part in combination for value in part)
        named = dict(zip(names, values, strict=True))
        kernel = named.get("kernel")
        if named.get("backend", NUMPY) is NUMPY or kernel is None or kernel.name not in LIKE_GAE:
            found["-".join(label for label, _ in combination)] = values
    return pytest.mark.parametrize(names, found.values(), ids=found)


def refused(error: type, kernel: Kernel, *parts):
    """Expect one error whose message starts with the kernel's name and holds all `parts`."""
    held = "".join(rf"(?=.*(?<!\w){re.escape(str(part))}(?!\w))" for part in parts)
    return pytest.raises(error, match=rf"(?s)\A{kernel.name}: {held}")


every_kernel = some(KERNELS)
timed = some(label for label in KERNELS if label != "normalize")
every_backend = backends(*BACKENDS)
aligned = pairs(lambda kernel: kernel.floats + kernel.flags, but_first=True)
every_flag = pairs(
    lambda kernel: kernel.flags + tuple(x for x in kernel.rows if x == "previous_end")
)
every_float = pairs(
    lambda kernel: (
        kernel.floats
        + tuple(x for x in kernel.rows if x == "last_values")
        + (kernel.others if kernel.name == "affine_scan" else ())
    )
)
every_rate = pairs(lambda kernel: kernel.rates)
every_array = pairs(lambda kernel: kernel.arrays)


@across(every_kernel, every_backend)
def test_the_arguments_that_these_tests_spoil_are_good(kernel, backend):
    kernel(kernel.arguments(backend))


# Shapes


@across(aligned, every_backend)
def test_case_25_transposed_data_is_pointed_to_time_axis(kernel, argument, backend):
    arguments = kernel.arguments(backend)
    arguments[argument] = backend.array(np.ascontiguousarray(_good()[argument].T))
    with refused(ValueError, kernel, f"{argument} has shape (3, 4)", "(4, 3)", "time_axis"):
        kernel(arguments)


@across(aligned, backends(NUMPY, JAX))
def test_case_25_a_missing_row_is_refused_with_both_shapes(kernel, argument, backend):
    arguments = kernel.arguments(backend)
    arguments[argument] = backend.array(_good()[argument][1:])
    remedy = f"must have the shape of {first(kernel)}"
    with refused(ValueError, kernel, f"{argument} has shape (3, 3)", "(4, 3)", remedy):
        kernel(arguments)


@across(aligned, backends(NUMPY, TORCH))
def test_case_25_a_trailing_axis_is_refused_with_the_shape_to_make(kernel, argument, backend):
    arguments = kernel.arguments(backend)
    arguments[argument] = backend.array(_good()[argument][..., None])
    remedy = f"reshape {argument} to (4, 3)"
    with refused(ValueError, kernel, f"{argument} has shape (4, 3, 1)", remedy):
        kernel(arguments)


@across(pairs(lambda kernel: kernel.rows), every_backend)
def test_case_25_a_row_of_the_wrong_shape_is_refused(kernel, argument, backend):
    arguments = kernel.arguments(backend)
    arguments[argument] = backend.array(np.resize(_good()[argument], STEPS))
    said = (f"{argument} has shape (4,)", "(4, 3)", "time on axis 0", "must be (3,)")
    with refused(ValueError, kernel, *said):
        kernel(arguments)


@across(every_backend)
@pytest.mark.parametrize(
    ("argument", "shape", "over"),
    [("a", (3, 4), (4, 3)), ("a", (4,), (4, 3)), ("init", (4,), (3,)), ("init", (1, 3), (3,))],
)
def test_case_25_what_does_not_spread_over_the_scan_is_refused(backend, argument, shape, over):
    kernel = KERNELS["affine_scan"]
    arguments = kernel.arguments(backend) | {argument: backend.array(np.full(shape, 0.5))}
    with refused(ValueError, kernel, f"{argument} has shape {shape}", over):
        kernel(arguments)


@across(
    every_rate, backend_and("shape", (NUMPY, (4,)), (NUMPY, (2, 1)), (TORCH, (3, 4)), (JAX, (3,)))
)
def test_case_25_a_rate_that_could_mean_either_axis_is_refused(kernel, argument, backend, shape):
    arguments = kernel.arguments(backend) | {argument: backend.array(np.full(shape, 0.5))}
    said = (f"{argument} has shape {shape}", "(4, 3)", "[T, 1]", "[1, B]")
    with refused(ValueError, kernel, *said):
        kernel(arguments)


@across(
    backend_and("number", (NUMPY, True), (NUMPY, "0.5"), (TORCH, False), (TORCH, 0.5j), (JAX, True))
)
@pytest.mark.parametrize("argument", ["a", "init"])
def test_case_25_coefficients_that_are_no_numbers_are_refused(backend, argument, number):
    kernel = KERNELS["affine_scan"]
    with refused(TypeError, kernel, f"{argument} is a {type(number).__name__}"):
        kernel(kernel.arguments(backend) | {argument: number})


@across(backend_and("kind", (NUMPY, np.float32), (NUMPY, np.float64), (TORCH, np.float32)))
@pytest.mark.parametrize("argument", ["a", "init"])
def test_case_21_coefficients_may_be_numbers_of_numpy(backend, argument, kind):
    kernel = KERNELS["affine_scan"]
    arguments = kernel.arguments(backend)
    expected = backend.numpy(kernel(arguments | {argument: 0.5}))
    got = backend.numpy(kernel(arguments | {argument: kind(0.5)}))
    np.testing.assert_array_equal(got, expected)


@across(every_backend)
def test_case_25_values_of_another_length_without_last_values_are_refused(backend):
    kernel = KERNELS["successor_values"]
    arguments = kernel.arguments(backend) | {"last_values": None}
    arguments["values"] = arguments["values"][:3]
    with refused(ValueError, kernel, "values has shape (3, 3)", "T + 1", "last_values"):
        kernel(arguments)


@across(timed, backend_and("time_axis", (NUMPY, 2), (NUMPY, -3), (TORCH, 2), (JAX, -3)))
def test_case_25_a_time_axis_that_does_not_exist_is_refused(kernel, backend, time_axis):
    arguments = kernel.arguments(backend) | {"time_axis": time_axis}
    shape = (COLUMNS, STEPS) if kernel.name == "valid_mask" else SHAPE
    with refused(ValueError, kernel, f"time_axis={time_axis}", shape):
        kernel(arguments)


@across(timed, backend_and("time_axis", (NUMPY, 0.5), (NUMPY, None), (TORCH, "0"), (JAX, 1.0)))
def test_case_25_a_time_axis_that_is_no_whole_number_is_refused(kernel, backend, time_axis):
    arguments = kernel.arguments(backend) | {"time_axis": time_axis}
    with refused(TypeError, kernel, "time_axis", time_axis):
        kernel(arguments)


@across(some(label for label in KERNELS if label not in ("normalize", "valid_mask")), every_backend)
def test_case_25_arrays_without_a_time_axis_are_refused(kernel, backend):
    arguments = kernel.arguments(backend)
    for name in kernel.arrays:
        arguments[name] = backend.array(_good()[name].reshape(-1)[0, ...])
    with refused(ValueError, kernel, first(kernel), "()", "[T, ...]"):
        kernel(arguments)


# Dtypes


@across(
    every_float,
    backend_and(
        "dtype",
        *((NUMPY, dtype) for dtype in ("int64", "bool", "complex128")),
        *((TORCH, dtype) for dtype in ("uint8", "complex64")),
        *((JAX, dtype) for dtype in ("int32", "bool")),
    ),
)
def test_case_25_values_that_are_not_floating_are_refused(kernel, argument, backend, dtype):
    arguments = kernel.arguments(backend)
    arguments[argument] = backend.array(np.ones(_good()[argument].shape, dtype))
    with refused(TypeError, kernel, argument, dtype):
        kernel(arguments)


@across(every_float)
def test_case_25_long_doubles_are_refused(kernel, argument):
    arguments = kernel.arguments(NUMPY)
    arguments[argument] = arguments[argument].astype(np.longdouble)
    with refused(TypeError, kernel, argument, np.dtype(np.longdouble)):
        kernel(arguments)


@across(
    every_rate,
    backend_and("dtype", (NUMPY, "int64"), (NUMPY, "complex128"), (TORCH, "bool"), (JAX, "int64")),
)
def test_case_25_arrays_of_rates_that_are_not_floating_are_refused(
    kernel, argument, backend, dtype
):
    arguments = kernel.arguments(backend)
    arguments[argument] = backend.array(np.ones((STEPS, 1), dtype))
    with refused(TypeError, kernel, argument, dtype):
        kernel(arguments)


@across(
    every_flag,
    backend_and("dtype", (NUMPY, "complex64"), (TORCH, "complex64"), (JAX, "complex64")),
)
def test_case_25_flags_that_are_no_numbers_are_refused(kernel, argument, backend, dtype):
    arguments = kernel.arguments(backend)
    arguments[argument] = backend.array(_good()[argument].astype(dtype))
    with refused(TypeError, kernel, argument, dtype, "0 and 1 as integers or floats"):
        kernel(arguments)


@across(every_flag, backend_and("dtype", (NUMPY, "float32"), (TORCH, "float64"), (JAX, "float32")))
def test_case_25_flags_may_be_floats(kernel, argument, backend, dtype):
    arguments = kernel.arguments(backend)
    expected = backend.numpy(kernel(arguments))
    arguments[argument] = backend.array(_good()[argument].astype(dtype))
    np.testing.assert_array_equal(backend.numpy(kernel(arguments)), expected)


@across(every_flag, backend_and("wrong", (NUMPY, 0.5), (NUMPY, np.nan), (TORCH, np.nan)))
def test_case_25_float_flags_are_0_or_1(kernel, argument, backend, wrong):
    arguments = kernel.arguments(backend)
    flags = _good()[argument].astype("float64")
    flags.flat[-1] = wrong
    arguments[argument] = backend.array(flags)
    with refused(ValueError, kernel, f"{argument} holds {wrong}", "0 or 1"):
        kernel(arguments)


def test_flags_of_tensors_with_gradients_are_looked_at_too():
    kernel = KERNELS["gae"]
    arguments = kernel.arguments(TORCH)
    arguments["values"].requires_grad_()
    arguments["truncated"] = TORCH.array(np.full(SHAPE, 0.5))
    with refused(ValueError, kernel, "truncated holds 0.5"):
        kernel(arguments)


@across(every_flag)
@pytest.mark.parametrize(("wrong", "dtype"), [(2, "int64"), (-1, "int8")])
def test_case_25_integer_flags_are_0_or_1(kernel, argument, wrong, dtype):
    arguments = kernel.arguments(NUMPY)
    flags = _good()[argument].astype(dtype)
    flags.flat[-1] = wrong
    arguments[argument] = flags
    with refused(ValueError, kernel, f"{argument} holds {wrong}", "0 or 1"):
        kernel(arguments)


@across(every_backend)
@pytest.mark.parametrize("dtype", ["float64", "bool", "complex128"])
def test_case_25_lengths_are_integers(backend, dtype):
    kernel = KERNELS["valid_mask"]
    arguments = kernel.arguments(backend) | {"lengths": backend.array(np.ones(3, dtype))}
    with refused(TypeError, kernel, "lengths", dtype):
        kernel(arguments)


@across(every_backend)
def test_case_25_unlag_does_not_mix_dtypes(backend):
    kernel = KERNELS["unlag"]
    arguments = kernel.arguments(backend) | {"last": backend.array(np.ones(3, bool))}
    with refused(TypeError, kernel, "last has dtype", "bool", "float64"):
        kernel(arguments)


# What is no array, or another library's


@across(every_array, every_backend)
def test_case_25_lists_are_refused(kernel, argument, backend):
    arguments = kernel.arguments(backend) | {argument: _good()[argument].tolist()}
    with refused(TypeError, kernel, f"{argument} is a list", "NumPy", "PyTorch", "JAX"):
        kernel(arguments)


OPTIONAL = ("valid", "init", "final_values", "last_values", "previous_end")


@across(
    pairs(
        lambda kernel: tuple(
            x for x in kernel.arrays if x not in (*OPTIONAL, "log_ratios", "log_policy")
        )
    ),
    every_backend,
)
def test_case_25_none_is_refused_where_an_array_is_needed(kernel, argument, backend):
    arguments = kernel.arguments(backend) | {argument: None}
    with refused(TypeError, kernel, f"{argument} is", "NoneType"):
        kernel(arguments)


@across(
    every_rate,
    backend_and("rate", (NUMPY, None), (NUMPY, [0.9]), (TORCH, "0.9"), (TORCH, True), (JAX, 0.5j)),
)
def test_case_25_rates_that_are_no_numbers_are_refused(kernel, argument, backend, rate):
    arguments = kernel.arguments(backend) | {argument: rate}
    with refused(TypeError, kernel, f"{argument} is a {type(rate).__name__}"):
        kernel(arguments)


@across(pairs(lambda kernel: kernel.arrays + kernel.rates, but_first=True))
@pytest.mark.parametrize(
    ("backend", "other"),
    [(NUMPY, TORCH), (TORCH, NUMPY), (TORCH, JAX), (JAX, NUMPY)],
    ids=lambda x: x.name,
)
def test_case_25_libraries_are_not_mixed(kernel, argument, backend, other):
    arguments = kernel.arguments(backend)
    good = np.full(SHAPE, 0.5) if argument in kernel.rates else _good()[argument]
    arguments[argument] = other.array(good)
    said = (f"{argument} is a {other.name} array", f"{backend.name} array", "Convert")
    with refused(TypeError, kernel, *said):
        kernel(arguments)


@across(pairs(lambda kernel: kernel.arrays, but_first=True))
def test_case_25_devices_are_not_mixed(kernel, argument):
    arguments = kernel.arguments(TORCH)
    arguments[argument] = arguments[argument].to("meta")
    with refused(ValueError, kernel, f"{argument} is on meta", "cpu", "one device"):
        kernel(arguments)


@across(some(label for label in KERNELS if label != "valid_mask"))
def test_case_25_the_first_array_alone_on_its_device_is_refused(kernel):
    arguments = kernel.arguments(TORCH)
    arguments[first(kernel)] = arguments[first(kernel)].to("meta")
    with pytest.raises((TypeError, ValueError), match=r"is on meta\. Move|on the device meta"):
        kernel(arguments)


@across(every_rate)
@pytest.mark.parametrize("shape", [(4, 3), (4, 1), ()], ids=str)
def test_case_25_rates_on_another_device_are_refused(kernel, argument, shape):
    arguments = kernel.arguments(TORCH)
    arguments[argument] = torch.full(shape, 0.5, device="meta", dtype=torch.float64)
    with refused(ValueError, kernel, f"{argument} is on meta", "cpu", "one device"):
        kernel(arguments)


# Numbers


@across(
    every_rate,
    backend_and(
        "rate",
        *((NUMPY, rate) for rate in (-0.1, float("nan"))),
        *((TORCH, rate) for rate in (2, float("nan"))),
        *((JAX, rate) for rate in (-1, float("inf"))),
    ),
)
def test_case_25_rates_outside_0_and_1_are_refused(kernel, argument, backend, rate):
    arguments = kernel.arguments(backend) | {argument: rate}
    with refused(ValueError, kernel, f"{argument} must be between 0 and 1", f"received {rate}"):
        kernel(arguments)


@across(every_rate)
@pytest.mark.parametrize(
    ("shape", "rate"), [((4, 3), float("nan")), ((4, 1), 1.5), ((1, 3), -0.1), ((), 1.5)], ids=str
)
def test_case_25_arrays_with_a_rate_outside_0_and_1_are_refused(kernel, argument, shape, rate):
    rates = np.full(shape, 0.5)
    rates.flat[-1] = rate
    arguments = kernel.arguments(NUMPY) | {argument: rates}
    with refused(ValueError, kernel, f"{argument} must be between 0 and 1", rate):
        kernel(arguments)


@across(
    every_rate, backend_and("kind", (NUMPY, np.float32), (TORCH, np.float64), (JAX, np.float32))
)
def test_case_25_numbers_of_numpy_are_looked_at_like_pythons(kernel, argument, backend, kind):
    arguments = kernel.arguments(backend) | {argument: kind(1.5)}
    with refused(ValueError, kernel, f"{argument} must be between 0 and 1", "received 1.5"):
        kernel(arguments)


@across(every_backend)
@pytest.mark.parametrize("argument", ["clip_rho", "clip_c", "clip_pg_rho"])
@pytest.mark.parametrize("clip", [-0.1, float("nan")])
def test_case_25_clips_below_0_are_refused(backend, argument, clip):
    kernel = KERNELS["vtrace"]
    with refused(ValueError, kernel, f"{argument} must be at least 0", f"received {clip}"):
        kernel(kernel.arguments(backend) | {argument: clip})


@across(every_backend)
@pytest.mark.parametrize("n", [0, -1])
def test_case_25_n_below_1_is_refused(backend, n):
    kernel = KERNELS["n_step_returns"]
    with refused(ValueError, kernel, "n must be", "at least 1", f"received {n}"):
        kernel(kernel.arguments(backend) | {"n": n})


@across(every_backend)
@pytest.mark.parametrize("n", [2.0, "2", None, True, [2]], ids=repr)
def test_case_25_n_that_is_no_whole_number_is_refused(backend, n):
    kernel = KERNELS["n_step_returns"]
    with refused(TypeError, kernel, "n must be", "whole number", repr(n)):
        kernel(kernel.arguments(backend) | {"n": n})


@across(every_backend)
@pytest.mark.parametrize("min_std", [0.0, -1.0, float("nan")])
def test_case_25_a_floor_that_is_not_positive_is_refused(backend, min_std):
    kernel = KERNELS["normalize"]
    with refused(ValueError, kernel, "min_std must be positive", f"received {min_std}"):
        kernel(kernel.arguments(backend) | {"min_std": min_std})


@across(every_backend)
@pytest.mark.parametrize("min_std", [None, "0.1", [0.1]], ids=repr)
def test_case_25_a_floor_that_is_no_number_is_refused(backend, min_std):
    kernel = KERNELS["normalize"]
    with refused(TypeError, kernel, "min_std", type(min_std).__name__):
        kernel(kernel.arguments(backend) | {"min_std": min_std})


@pytest.mark.parametrize("lengths", [[0, 5], [-1, 4]])
def test_case_25_lengths_beyond_the_steps_are_refused(lengths):
    kernel = KERNELS["valid_mask"]
    said = ("lengths", f"from {lengths[0]} to {lengths[1]}", "steps=4")
    with refused(ValueError, kernel, *said):
        kernel({"lengths": np.array(lengths), "steps": 4})


@across(every_backend)
@pytest.mark.parametrize("steps", [4.0, None, "4"], ids=repr)
def test_case_25_steps_that_are_no_whole_number_are_refused(backend, steps):
    kernel = KERNELS["valid_mask"]
    with refused(TypeError, kernel, "steps", steps):
        kernel(kernel.arguments(backend) | {"steps": steps})


@across(every_backend)
def test_case_25_steps_below_0_are_refused(backend):
    kernel = KERNELS["valid_mask"]
    with refused(ValueError, kernel, "steps", "-1"):
        kernel(kernel.arguments(backend) | {"steps": -1})


# Choices


@across(every_backend)
@pytest.mark.parametrize(
    ("label", "argument", "options"),
    [
        ("retrace", "trace", ("retrace", "q_lambda", "tree_backup", "importance_sampling")),
        ("token_gae", "gaps", ("skip", "reset")),
        ("successor_values", "autoreset", ("same_step", "next_step")),
    ],
)
@pytest.mark.parametrize("choice", ["Skip", "", "disabled"], ids=repr)
def test_case_25_an_unknown_choice_is_answered_with_the_known(
    label, argument, options, backend, choice
):
    kernel = KERNELS[label]
    with refused(ValueError, kernel, f"{argument}={choice!r}", *options):
        kernel(kernel.arguments(backend) | {argument: choice})


@across(every_backend)
@pytest.mark.parametrize(
    ("trace", "needed"),
    [
        ("retrace", "log_ratios"),
        ("importance_sampling", "log_ratios"),
        ("tree_backup", "log_policy"),
    ],
)
def test_case_25_a_trace_without_its_logarithms_is_refused(backend, trace, needed):
    kernel = KERNELS["retrace"]
    arguments = kernel.arguments(backend) | {"trace": trace, "log_ratios": None}
    with refused(ValueError, kernel, f"trace={trace!r}", needed):
        kernel(arguments)


@pytest.mark.parametrize(
    "wrong", [{"gamma": 2.0}, {"values": None}, {"next_values": np.ones(SHAPE)}], ids=repr
)
def test_case_25_an_error_stands_alone(wrong):
    """No other exception is shown above it: what the library tried first is none of the user's."""
    kernel = KERNELS["gae"]
    arguments = kernel.arguments(TORCH) | wrong
    arguments["rewards"].requires_grad_()
    with pytest.raises((TypeError, ValueError)) as caught:
        kernel(arguments)
    assert caught.value.__context__ is None or caught.value.__suppress_context__


# Inputs are never written to


def kept(backend, arguments: dict) -> dict:
    """What each array holds now, and PyTorch's count of writes to it."""
    return {
        name: (backend.numpy(x).copy(), getattr(x, "_version", None))
        for name, x in arguments.items()
        if backend.owns(x)
    }


def assert_untouched(backend, arguments: dict, before: dict) -> None:
    for name, (content, writes) in before.items():
        np.testing.assert_array_equal(backend.numpy(arguments[name]), content, err_msg=name)
        assert getattr(arguments[name], "_version", None) == writes, name


@across(every_kernel, every_backend)
def test_inputs_are_not_written_to(kernel, backend):
    arguments = kernel.arguments(backend)
    before = kept(backend, arguments)
    kernel(arguments)
    assert_untouched(backend, arguments, before)


@across(every_kernel)
def test_inputs_are_not_written_to_with_gradients(kernel):
    arguments = kernel.arguments(TORCH)
    for name in (*kernel.floats, "a", "init", "last", "last_values"):
        if name in arguments:
            arguments[name].requires_grad_()
    before = kept(TORCH, arguments)
    out = kernel(arguments)
    for x in out if isinstance(out, tuple) else (out,):
        if x.requires_grad:
            x.sum().backward(retain_graph=True)
    assert_untouched(TORCH, arguments, before)


@across(every_kernel, every_backend)
def test_inputs_are_not_written_to_on_an_error(kernel, backend):
    arguments = kernel.arguments(backend)
    arguments |= {name: backend.array(x) for name, x in kernel.mistake.items()}
    before = kept(backend, arguments)
    with refused(ValueError, kernel, *kernel.mistake):
        kernel(arguments)
    assert_untouched(backend, arguments, before)


@across(every_kernel)
def test_read_only_inputs_are_taken(kernel):
    arguments = kernel.arguments(NUMPY)
    expected = kernel(arguments)
    for x in arguments.values():
        if isinstance(x, np.ndarray):
            x.flags.writeable = False
    np.testing.assert_array_equal(kernel(arguments), expected)


@across(every_kernel, backends(NUMPY, TORCH))
def test_results_do_not_share_memory_with_inputs(kernel, backend):
    arguments = kernel.arguments(backend)
    before = kept(backend, arguments)
    out = kernel(arguments)
    for x in out if isinstance(out, tuple) else (out,):
        x[...] = 1
    for name, (content, _) in before.items():
        np.testing.assert_array_equal(backend.numpy(arguments[name]), content, err_msg=name)
