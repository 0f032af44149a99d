"""The estimators inside other people's machinery: transforms, traces, modes, overwritten inputs."""

import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from jax.sharding import PartitionSpec
from support.backends import JAX, TORCH
from support.compare import assert_close
from support.situations import rollout
from torch.autograd import forward_ad
from torch.fx.experimental.proxy_tensor import make_fx

import loopless as ll
from loopless import reference
from loopless.verify.contracts import ESTIMATORS

LABELS = ["gae", "lambda_returns", "discounted_returns", "n_step_returns", "vtrace", "upgo"]
some_estimators = pytest.mark.parametrize("estimator", [ESTIMATORS[x] for x in LABELS], ids=LABELS)
DISCOUNTS = {"gamma": 0.9, "lambda_": 0.8}


def tensors(seed=0, shape=(6, 3)):
    data = TORCH.arguments(rollout(shape, seed))
    return {k: x for k, x in data.items() if isinstance(x, torch.Tensor)}


@some_estimators
@pytest.mark.parametrize("name", ["terminated", "truncated"])
def test_flags_overwritten_before_backward_never_change_a_gradient_silently(estimator, name):
    def gradient(overwrite):
        arguments = tensors()
        rewards = arguments["rewards"].requires_grad_()
        out = estimator.call(estimator.kernel, arguments | DISCOUNTS)[0]
        if overwrite:
            arguments[name].fill_(True)
        return torch.autograd.grad(out.sum(), rewards)[0]

    message = ""
    try:
        got = gradient(overwrite=True)
    except RuntimeError as error:
        got, message = None, str(error)
    noticed = "modified by an inplace operation" in message
    assert noticed or torch.equal(got, gradient(overwrite=False))


def test_discounts_overwritten_before_backward_are_an_error():
    arguments = tensors()
    arguments["rewards"].requires_grad_()
    gamma = torch.full((6, 1), 0.9, dtype=torch.float64)
    out = ESTIMATORS["gae"].call(ll.gae, arguments | {"gamma": gamma, "lambda_": 0.8})[0]
    gamma.zero_()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        out.sum().backward()


@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated")  # PyTorch's own
@some_estimators
def test_torch_forward_mode_equals_reverse_mode(estimator):
    arguments = tensors(1)
    rewards, direction = arguments["rewards"], torch.randn_like(arguments["rewards"])

    def call(rewards):
        return estimator.call(estimator.kernel, arguments | {"rewards": rewards} | DISCOUNTS)[0]

    with forward_ad.dual_level():
        tangent = forward_ad.unpack_dual(call(forward_ad.make_dual(rewards, direction))).tangent
    assert tangent is not None
    # the estimators but upgo's choice are linear in rewards, so one small step is the tangent too
    step = 1e-6
    numerical = (call(rewards + step * direction) - call(rewards - step * direction)) / (2 * step)
    np.testing.assert_allclose(tangent.numpy(), numerical.numpy(), atol=1e-7)


@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated")
@pytest.mark.parametrize("reverse", [True, False])
def test_torch_jvp_and_hessian_of_the_scan(reverse):
    a, b = torch.rand(2, 5, 3, dtype=torch.float64)
    init = torch.rand(3, dtype=torch.float64)

    def call(a, b, init):
        return ll.affine_scan(a, b, init, reverse=reverse).square().sum()

    forward = torch.func.hessian(call, argnums=(0, 1, 2))(a, b, init)
    backward = torch.autograd.functional.hessian(call, (a, b, init))
    for row, other in zip(forward, backward, strict=True):
        for x, y in zip(row, other, strict=True):
            assert_close(x.numpy(), y.numpy())


@some_estimators
def test_make_fx_records_the_computation(estimator):
    arguments = tensors(2)

    def call(rewards):
        return estimator.call(estimator.kernel, arguments | {"rewards": rewards} | DISCOUNTS)[0]

    graph = make_fx(call)(arguments["rewards"])
    other = arguments["rewards"] + 1
    assert_close(graph(other).numpy(), call(other).numpy())


@some_estimators
@pytest.mark.parametrize("mapped", ["rewards", "next_values", "terminated"])
def test_torch_vmap_over_one_argument(estimator, mapped):
    arguments = tensors(3)
    many = torch.stack([arguments[mapped], arguments[mapped].flip(0)])

    def call(x):
        return estimator.call(estimator.kernel, arguments | {mapped: x} | DISCOUNTS)[0]

    expected = torch.stack([call(x) for x in many])
    assert_close(torch.vmap(call)(many).numpy(), expected.numpy())


@some_estimators
def test_torch_batched_gradients_equal_one_by_one(estimator):
    arguments = tensors(4, (4, 2))
    rewards = arguments["rewards"].requires_grad_()
    out = estimator.call(estimator.kernel, arguments | DISCOUNTS)[0]
    directions = torch.eye(8, dtype=torch.float64).reshape(8, 4, 2)
    one_by_one = [torch.autograd.grad(out, rewards, x, retain_graph=True)[0] for x in directions]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # PyTorch warns that its batching is slow
        (batched,) = torch.autograd.grad(out, rewards, directions, is_grads_batched=True)
    assert_close(batched.numpy(), torch.stack(one_by_one).numpy())


@some_estimators
def test_jax_shard_map(estimator):
    arguments = rollout((6, 4), 5)
    arrays = {k: x for k, x in JAX.arguments(arguments).items() if JAX.owns(x)}

    def call(arrays):
        return estimator.call(estimator.kernel, arrays | DISCOUNTS)[0]

    mesh = jax.make_mesh((1,), ("x",), axis_types=(jax.sharding.AxisType.Auto,))
    columns = PartitionSpec(None, "x")
    sharded = jax.shard_map(call, mesh=mesh, in_specs=(columns,), out_specs=columns)

    @jax.jit
    def compare(arrays):
        def values_and_gradient(function):
            def loss(rewards):
                out = function(arrays | {"rewards": rewards})
                return out.sum(), out

            return jax.grad(loss, has_aux=True)(arrays["rewards"])

        return values_and_gradient(sharded), values_and_gradient(call)

    for got, expected in zip(*compare(arrays), strict=True):
        assert_close(JAX.numpy(got), JAX.numpy(expected))


def test_jax_forward_mode_keeps_nan_in_its_episode():
    data = rollout((6, 2), 6, terminated=0.0, truncated=0.0)
    data["truncated"][2] = True
    data["rewards"][4] = np.nan
    arrays = JAX.arguments(data)

    def call(rewards):
        return ESTIMATORS["gae"].call(ll.gae, arrays | {"rewards": rewards})[0]

    primal, tangent = jax.jvp(call, (arrays["rewards"],), (jnp.ones((6, 2)),))
    assert np.isfinite(primal[:3]).all()
    assert np.isfinite(tangent[:3]).all()


@pytest.mark.parametrize("backend", ["numpy", "torch", "jax"])
def test_upgo_reads_no_successor_where_it_follows(backend):
    rewards, values = np.full(4, 10.0), np.zeros(4)
    successors = np.array([np.nan, np.inf, 0.5, 0.5])
    ends = np.zeros((2, 4), bool)
    convert = {"numpy": np.asarray, "torch": torch.from_numpy, "jax": jnp.asarray}[backend]
    _, returns = ll.upgo(*map(convert, (rewards, values, successors, *ends)), gamma=0.9)
    _, expected = reference.upgo(rewards, values, successors, *ends, gamma=0.9)
    assert_close(np.asarray(returns), expected)


@pytest.mark.parametrize("log_ratio", [100.0, 300.0])
def test_unclipped_ratios_are_exact_as_far_as_float64_goes(log_ratio):
    data = rollout((2, 1), 7, terminated=0.0, truncated=0.0)
    names = ("rewards", "q_values", "next_values", "terminated", "truncated")
    keywords = {"gamma": 0.9, "trace": "importance_sampling"}
    keywords["log_ratios"] = np.full((2, 1), log_ratio)
    got = ll.retrace(*(data[k] for k in names), **keywords)
    expected = reference.retrace(*(data[k] for k in names), **keywords)
    np.testing.assert_allclose(got, expected, rtol=1e-12)


def test_jax_differentiates_vtrace_in_mix_with_infinite_clips():
    arrays = JAX.arguments(rollout((5, 2), 8))

    def loss(mix):
        infinite = dict.fromkeys(("clip_rho", "clip_c", "clip_pg_rho"), np.inf)
        outs = ESTIMATORS["vtrace"].call(ll.vtrace, arrays, mix=mix, **infinite)
        return outs[0].sum()

    assert jax.grad(loss)(0.5) == 0.0  # nothing is clipped, so nothing depends on mix


@pytest.mark.parametrize("road", ["jax", "torch with gradients"])
def test_normalize_of_large_float32_does_not_overflow(road):
    x = np.array([1e20, -1e20, 0.0], np.float32)
    if road == "jax":
        got = np.asarray(ll.normalize(jnp.asarray(x)))
    else:
        got = ll.normalize(torch.from_numpy(x).requires_grad_()).detach().numpy()
    np.testing.assert_allclose(got, ll.normalize(x), rtol=1e-6)


def test_arrays_that_are_more_than_arrays_are_refused():
    wrong = np.ma.masked_array(np.ones((3, 2)))
    x, flags = np.ones((3, 2)), np.zeros((3, 2), bool)
    for arguments in ((wrong, x, x), (x, wrong, x)):
        with pytest.raises(TypeError, match="MaskedArray"):
            ll.gae(*arguments, flags, flags, gamma=0.9, lambda_=0.8)


def test_numpy_numbers_are_numbers_to_tensors_too():
    arguments = tensors(9)
    want = ESTIMATORS["gae"].call(ll.gae, arguments | DISCOUNTS)[0]
    numbers = {"gamma": np.float64(0.9), "lambda_": np.float64(0.8)}
    assert torch.equal(ESTIMATORS["gae"].call(ll.gae, arguments | numbers)[0], want)
