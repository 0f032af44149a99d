"""Laplacian losses: values and gradients equal the loops' on all libraries, edges included."""

import jax
import numpy as np
import pytest
import torch
from support.backends import BACKENDS, HALVES, JAX, NUMPY, TORCH
from support.compare import assert_close
from support.laplacian import SITUATIONS, assert_alike, step
from support.situations import call_ggdo, features

from loopless.kernels.laplacian.losses import allo_loss, ggdo_loss
from loopless.reference import laplacian as reference
from loopless.verify.cases.batches import ALLO, call_allo

each_situation = pytest.mark.parametrize("situation", SITUATIONS, ids=lambda s: s.name)
every_backend = pytest.mark.parametrize("backend", BACKENDS, ids=str)
PLAIN = features((5, 3), 20)


def expected(loss, gradients, call, data, backend):
    """What the loops say, gradients only where the library has them."""
    value, parts = call(loss, data)
    named = {"loss": value, **parts}
    if backend is NUMPY:
        return named
    return named | {f"by_{name}": x for name, x in call(gradients, data).items()}


COMPILED = (
    "half",
    "full, constraints on a third batch",
    "integral",
    "a gate half open",
    "one sample",
)
ROADS = [
    pytest.param(backend, situation, id=f"{situation.name}-{backend}")
    for situation in SITUATIONS
    for backend in BACKENDS
    if backend is not JAX or situation.name in COMPILED  # each is a program of its own
]


@pytest.mark.parametrize(("backend", "situation"), ROADS)
def test_allo_equals_the_loop(backend, situation):
    want = expected(
        reference.allo_loss, reference.allo_gradients, call_allo, situation.data, backend
    )
    assert_alike(step(backend, allo_loss, call_allo, situation.data), want)


@every_backend
@pytest.mark.parametrize("number", [2, 11])
def test_ggdo_equals_the_loop(backend, number):
    data = {k: x for k, x in SITUATIONS[number].data.items() if k not in ("duals", "scale")}
    want = expected(reference.ggdo_loss, reference.ggdo_gradients, call_ggdo, data, backend)
    got = step(backend, ggdo_loss, call_ggdo, data)
    if "by_barrier" in got:
        assert not got.pop("by_barrier").any()
    assert_alike(got, want)


@each_situation
def test_the_loops_gradients_are_finite_differences_with_stopped_operands_held(situation):
    """Each operand of the loss is moved alone, the copies of it that are stopped stay."""
    data = situation.data
    found = call_allo(reference.allo_gradients, data)
    rng = np.random.default_rng(1)
    for name in ("features", "next_features", "other_features"):
        direction = rng.standard_normal(data[name].shape)
        slope = differences(data, name, direction)
        assert slope == pytest.approx((found[name] * direction).sum(), rel=1e-6, abs=1e-7)


def differences(data, name, direction, h=1e-6):
    """The slope of the loss along `direction`, by the loss written with moved and frozen apart."""
    ends = [frozen_loss(data, data | {name: data[name] + s * h * direction}) for s in (1, -1)]
    return (ends[0] - ends[1]) / (2 * h)


def frozen_loss(old, new):
    scale, first = old.get("scale", "half"), "constraint_features"
    first = first if first in old else "features"
    _, parts = call_allo(reference.allo_loss, old)
    gate, (_, fresh) = parts["gate"], call_allo(reference.allo_loss, new)

    def errors(name):
        x, held = new[name], old[name]
        d = x.shape[-1]
        return np.tril(np.swapaxes(x, -1, -2) @ held / x.shape[-2] - np.eye(d))

    one, other = errors(first), errors("other_features")
    kept = gate[..., None]
    barrier = old["barrier"][..., None, None]
    if scale == "half":
        pull = old["duals"] * one + 2 * barrier * one * parts["other_errors"]
        weight = 0.5
    else:
        # a product of two moving errors: each moves while the other is held
        pull = old["duals"] * 0.5 * (one + other)
        pull = pull + barrier * (one * parts["other_errors"] + parts["errors"] * other)
        weight = 1.0
    steps = np.where(gate[..., None, :], new["features"] - new["next_features"], 0)
    graph = weight * (steps**2).mean(-2).sum()
    return graph + np.where(kept, pull, 0).sum() + np.sum(fresh["perturbation"])


@pytest.mark.parametrize("backend", [TORCH, JAX], ids=str)
def test_descent_on_the_multipliers_is_ascent(backend):
    got = step(backend, allo_loss, call_allo, PLAIN)
    assert_close(got["by_duals"], -got["errors"])
    assert_close(got["by_barrier"], -np.abs(got["q"]))


@every_backend
@pytest.mark.parametrize("scale", ["half", "full"])
def test_single_precision(backend, scale):
    data = PLAIN | {"scale": scale}
    want = expected(reference.allo_loss, reference.allo_gradients, call_allo, data, backend)
    assert_alike(step(backend, allo_loss, call_allo, data, "float32"), want, "float32")


@pytest.mark.parametrize(
    ("backend", "half"), [(b, half) for b in BACKENDS for half in HALVES[b.name]], ids=str
)
def test_half_precision_is_computed_in_single(backend, half):
    rounded = {k: backend.numpy(x) for k, x in backend.arguments(PLAIN, half).items()}
    loss, parts = call_allo(allo_loss, backend.arguments(rounded, half))
    want, want_parts = call_allo(reference.allo_loss, rounded)
    assert backend.dtype(loss) == half
    assert {backend.dtype(x) for x in parts[:-1]} == {"float32"}
    assert_close(backend.numpy(parts.errors), want_parts["errors"], "float32")
    np.testing.assert_allclose(backend.numpy(loss), want, rtol=1e-2)


@every_backend
def test_results_are_arrays_of_the_callers_library(backend):
    for call, function in ((call_allo, allo_loss), (call_ggdo, ggdo_loss)):
        loss, parts = call(function, backend.arguments(PLAIN))
        assert backend.owns(loss)
        assert all(backend.owns(x) for x in parts)


@every_backend
def test_the_upper_triangle_of_the_duals_is_never_read(backend):
    spoilt = PLAIN | {"duals": PLAIN["duals"] + np.triu(np.full((3, 3), np.nan), 1)}
    loss, _ = call_allo(allo_loss, backend.arguments(spoilt))
    assert_close(backend.numpy(loss), call_allo(reference.allo_loss, PLAIN)[0])


@every_backend
def test_a_barrier_of_zero_leaves_the_duals(backend):
    _, parts = call_allo(allo_loss, backend.arguments(PLAIN) | {"barrier": 0.0})
    assert backend.numpy(parts.barrier) == backend.numpy(parts.barrier_ascent) == 0


# The gate


@pytest.mark.parametrize(
    ("off", "gate"),
    [
        (None, [True, True, True, True]),
        (0, [True, False, False, False]),
        (2, [True, True, True, False]),
        (3, [True, True, True, True]),
    ],
)
@pytest.mark.parametrize("wrong", [2.0, np.nan], ids=["far", "nan"])
@every_backend
def test_a_component_waits_for_all_before_it(backend, off, gate, wrong):
    good = np.linalg.qr(np.random.default_rng(4).standard_normal((8, 4)))[0] * np.sqrt(8)
    spoilt = good.copy()
    if off is not None:
        spoilt[:, off] *= wrong
    data = features((8, 4), 21) | {"constraint_features": spoilt, "gate_threshold": 0.1}
    _, parts = call_allo(allo_loss, backend.arguments(data))
    assert backend.numpy(parts.gate).tolist() == gate
    if off == 0 and wrong == 2.0:
        silent = call_allo(reference.allo_loss, data)[1]
        assert_close(backend.numpy(parts.graph), silent["graph"])


@each_situation
def test_a_perturbation_leaves_the_first_component_alone(situation):
    kind = situation.data.get("perturbation", "exponential")
    data = situation.data | {"perturbation": kind, "perturbation_scale": 1e3}
    data = {k: x for k, x in data.items() if k not in ("gate_threshold",)}
    lifted = step(TORCH, allo_loss, call_allo, data)["by_features"]
    plain = step(TORCH, allo_loss, call_allo, data | {"perturbation": "none"})["by_features"]
    assert_close(lifted[..., 0], plain[..., 0])


# Other people's machinery


@pytest.mark.slow
def test_torch_compiles_whole():
    options = {"gate_threshold": 0.3, "perturbation": "exponential"}
    torch._dynamo.reset()

    @torch.compile(fullgraph=True, backend="aot_eager")
    def compiled(arrays):
        half, parts = allo_loss(*arrays, **options)
        return half + allo_loss(*arrays, scale="full")[0], parts.errors

    tensors = [TORCH.array(PLAIN[name]) for name in ALLO]
    phi = tensors[0].requires_grad_()
    loss, errors = compiled(tensors)
    loss.backward()
    both = [PLAIN | options, PLAIN | {"scale": "full"}]
    assert_close(loss.detach().numpy(), sum(call_allo(reference.allo_loss, x)[0] for x in both))
    want = sum(call_allo(reference.allo_gradients, x)["features"] for x in both)
    assert_close(phi.grad.numpy(), want)
    assert not errors.requires_grad


@pytest.mark.parametrize("backend", [TORCH, JAX], ids=str)
def test_vmap_equals_a_leading_axis(backend):
    arguments = backend.arguments(features((2, 5, 3), 22))
    vmap = torch.vmap if backend is TORCH else jax.vmap
    whole, _ = call_allo(allo_loss, arguments)
    mapped = vmap(lambda a: call_allo(allo_loss, a)[0])(arguments)
    assert_close(backend.numpy(mapped), backend.numpy(whole))


@pytest.mark.parametrize("scale", ["half", "full"])
def test_the_second_batch_runs_forward_only_in_half(scale):
    data = TORCH.arguments(PLAIN)
    other = data["other_features"].requires_grad_()
    data["features"].requires_grad_()
    loss, _ = call_allo(allo_loss, data | {"scale": scale})
    (gradient,) = torch.autograd.grad(loss, [other], allow_unused=True)
    assert (gradient is None) == (scale == "half")
