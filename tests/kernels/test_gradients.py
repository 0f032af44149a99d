"""First and second derivatives, on PyTorch and JAX, compiled and not, with padding and without."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from support.backends import JAX, TORCH
from support.compare import assert_close
from support.situations import padded, rollout

import loopless as ll
from loopless import reference
from loopless.verify.contracts import ESTIMATORS

# One entry for each recipe: the others differ in numbers only.
RECIPES = {
    label: e
    for label, e in ESTIMATORS.items()
    if label
    not in ("n_step_returns, n beyond T", "retrace, importance_sampling", "retrace, q_lambda")
}
every_estimator = pytest.mark.parametrize("estimator", RECIPES.values(), ids=RECIPES)
ENDING = {label: e for label, e in RECIPES.items() if e.takes_valid}
DISCOUNTS = {"gamma": 0.9, "lambda_": 0.8}


def inputs(estimator, data):
    """The names that take a gradient; numbers become per-step arrays so that they do too."""
    names = (*estimator.floats, *estimator.extras, *estimator.numbers)
    shape = np.shape(data["rewards"])
    for name in estimator.numbers:
        rng = np.random.default_rng(len(name))
        data[name] = rng.uniform(0.3, 0.9, (shape[0], *[1] * (len(shape) - 1)))
    return names


def smooth(data):
    """Ratios away from the clips' kinks, where numerical differences would straddle them."""
    data["log_ratios"] = np.where(data["log_ratios"] < 0, -0.5, 0.7) + 0.1 * data["log_ratios"]
    return data


@pytest.mark.parametrize(
    ("estimator", "with_valid"),
    [(e, False) for e in RECIPES.values()] + [(e, True) for e in ENDING.values()],
    ids=[*RECIPES, *(f"{label}, padded" for label in ENDING)],
)
def test_case_16_torch_gradcheck_and_gradgradcheck(estimator, with_valid):
    data = smooth(rollout((5, 3), 1, terminated=0.15, truncated=0.15))
    if with_valid:
        data["valid"] = np.random.default_rng(2).random((5, 3)) < 0.7
    names = inputs(estimator, data)
    tensors = TORCH.arguments(data)
    variables = [tensors[name].requires_grad_() for name in names]

    def call(*variables):
        return estimator.call(estimator.kernel, tensors | dict(zip(names, variables, strict=True)))

    assert torch.autograd.gradcheck(call, variables)
    assert torch.autograd.gradgradcheck(call, variables)


@pytest.mark.parametrize("label", ["gae", "lambda_returns"])
@pytest.mark.parametrize("with_valid", [pytest.param(False, marks=pytest.mark.slow), True])
@pytest.mark.parametrize("shape", [(5, 2), pytest.param((4, 9), marks=pytest.mark.slow)])
def test_case_16_torch_fused_gradients_with_plain_numbers(label, with_valid, shape):
    estimator = ESTIMATORS[label]
    data = rollout(shape, 3, terminated=0.15, truncated=0.15) | DISCOUNTS
    if with_valid:
        data["valid"] = np.random.default_rng(2).random(shape) < 0.7
    tensors = TORCH.arguments(data)
    variables = [tensors[name].requires_grad_() for name in estimator.floats]

    def call(*variables):
        floats = dict(zip(estimator.floats, variables, strict=True))
        return estimator.call(estimator.kernel, tensors | floats)

    assert torch.autograd.gradcheck(call, variables)
    assert torch.autograd.gradgradcheck(call, variables)


def torch_derivatives(estimator, data, names, weights, direction):
    """Return the gradient of a weighted sum of the outputs, and its derivative in a direction."""
    tensors = TORCH.arguments(data)
    variables = [tensors[name].requires_grad_() for name in names]
    outs = estimator.call(estimator.kernel, tensors)
    total = sum((w * x).sum() for w, x in zip(TORCH.arguments(weights).values(), outs, strict=True))
    options = {"create_graph": True, "materialize_grads": True}
    gradient = torch.autograd.grad(total, variables, **options)
    along = sum(
        (torch.from_numpy(direction[n]) * g).sum() for n, g in zip(names, gradient, strict=True)
    )
    second = torch.autograd.grad(along, variables, materialize_grads=True)
    return [
        {n: TORCH.numpy(x) for n, x in zip(names, found, strict=True)}
        for found in (gradient, second)
    ]


@pytest.mark.slow
@every_estimator
def test_case_16_jax_derivatives_of_both_modes_and_orders_equal_pytorchs(estimator):
    data = smooth(rollout((5, 3), 4, terminated=0.15, truncated=0.15))
    data["valid"] = np.random.default_rng(5).random((5, 3)) < 0.8
    names = inputs(estimator, data)
    rng = np.random.default_rng(6)
    direction = {name: rng.standard_normal(data[name].shape) for name in names}
    weights = {str(k): rng.standard_normal((5, 3)) for k in range(len(estimator.outputs))}
    constants = JAX.arguments({k: x for k, x in data.items() if k not in names})

    @jax.jit  # all of it in one program: compiling takes longer than all else
    def derivatives(variables, direction, weights):
        def total(variables):
            outs = estimator.call(estimator.kernel, constants | variables)
            return sum((w * x).sum() for w, x in zip(weights.values(), outs, strict=True))

        def slope(variables):
            return jax.jvp(total, (variables,), (direction,))[1]

        def along(variables):
            gradient = jax.grad(total)(variables)
            return sum((gradient[name] * direction[name]).sum() for name in names)

        def curve(function):
            return jax.jvp(function, (variables,), (direction,))[1]

        return {
            "forward": slope(variables),
            "reverse": jax.grad(total)(variables),
            "forward of forward": curve(slope),
            "forward of reverse": curve(jax.grad(total)),
            "reverse of forward": jax.grad(slope)(variables),
            "reverse of reverse": jax.grad(along)(variables),
        }

    arrays = JAX.arguments(data)
    got = derivatives({name: arrays[name] for name in names}, direction, weights)
    gradient, second = torch_derivatives(estimator, data, names, weights, direction)

    def inner(x):
        return sum((x[name] * direction[name]).sum() for name in names)

    assert_close(got["forward"], inner(gradient))
    assert_close(got["forward of forward"], inner(second))
    for name in names:
        assert_close(got["reverse"][name], gradient[name])
        for order in ("forward of reverse", "reverse of forward", "reverse of reverse"):
            assert_close(got[order][name], second[name], what=order)


@pytest.mark.slow
@every_estimator
def test_jax_vmap_equals_a_batch_axis(estimator):
    data = rollout((6, 4), 6)
    arrays = JAX.arguments({k: x for k, x in data.items() if isinstance(x, np.ndarray)})
    call = jax.vmap(
        lambda arrays: estimator.call(estimator.kernel, arrays | DISCOUNTS), in_axes=1, out_axes=1
    )
    whole = estimator.call(estimator.kernel, arrays | DISCOUNTS)
    for x, y in zip(call(arrays), whole, strict=True):
        assert_close(JAX.numpy(x), JAX.numpy(y))


@pytest.mark.parametrize("label", ["gae", "vtrace", "n_step_returns"])
def test_torch_vmap_and_functional_gradients(label):
    estimator = ESTIMATORS[label]
    data = rollout((6, 3), 7)
    tensors = {k: x for k, x in TORCH.arguments(data).items() if isinstance(x, torch.Tensor)}
    whole = estimator.call(estimator.kernel, tensors | DISCOUNTS)

    def column(tensors):
        return estimator.call(estimator.kernel, tensors | DISCOUNTS)

    for x, y in zip(torch.vmap(column, in_dims=1, out_dims=1)(tensors), whole, strict=True):
        assert_close(x.numpy(), y.numpy())

    def loss(rewards):
        return column(tensors | {"rewards": rewards})[0].square().sum()

    rewards = tensors["rewards"].clone().requires_grad_()
    loss(rewards).backward()
    assert rewards.grad is not None
    assert_close(torch.func.grad(loss)(tensors["rewards"]).numpy(), rewards.grad.numpy())


@pytest.mark.parametrize("backend", ["torch", "jax"])
def test_case_17_values_shifted_into_next_values_add_their_gradients(backend):
    data = rollout((7, 2), 8, terminated=0.2, truncated=0.0)
    rng = np.random.default_rng(9)
    values, weights = rng.standard_normal((8, 2)), rng.standard_normal((7, 2))
    ends = data["terminated"], data["truncated"]

    def numerical(i):
        def loss(values):
            advantages, _ = reference.gae(
                data["rewards"], values[:-1], values[1:], *ends, gamma=0.9, lambda_=0.8
            )
            return (advantages * weights).sum()

        step = np.zeros_like(values)
        step[i] = 1e-6
        return (loss(values + step) - loss(values - step)) / 2e-6

    want = np.array([[numerical((t, b)) for b in range(2)] for t in range(8)])
    if backend == "torch":
        v = torch.from_numpy(values).requires_grad_()
        rewards, *flags = (torch.from_numpy(x) for x in (data["rewards"], *ends))
        advantages, _ = ll.gae(rewards, v[:-1], v[1:], *flags, gamma=0.9, lambda_=0.8)
        (advantages * torch.from_numpy(weights)).sum().backward()
        assert v.grad is not None
        got = v.grad.numpy()
    else:

        def loss(v):
            advantages, _ = ll.gae(
                jnp.asarray(data["rewards"]), v[:-1], v[1:], *map(jnp.asarray, ends),
                gamma=0.9, lambda_=0.8,
            )  # fmt: skip
            return (advantages * weights).sum()

        got = np.asarray(jax.grad(loss)(jnp.asarray(values)))
    np.testing.assert_allclose(got, want, atol=1e-8)  # central differences: about 1e-9 accurate


def gradients(backend, estimator, data):
    """Outputs, and the gradients of a fixed weighted sum of them."""
    names = (*estimator.floats, *estimator.extras)
    weights = np.random.default_rng(10).standard_normal(data["rewards"].shape)
    if backend is TORCH:
        tensors = TORCH.arguments(data)
        variables = [tensors[name].requires_grad_() for name in names]
        outs = estimator.call(estimator.kernel, tensors)
        sum((x * torch.from_numpy(weights)).sum() for x in outs).backward()
        return [x.detach().numpy() for x in outs], [
            np.zeros_like(weights) if x.grad is None else x.grad.numpy() for x in variables
        ]
    arrays = JAX.arguments(data)
    variables = {name: arrays.pop(name) for name in names}
    grads, outs = jax_gradients(estimator.label)(variables, arrays, weights)
    return [np.asarray(x) for x in outs], [np.asarray(grads[name]) for name in names]


@functools.cache
def jax_gradients(label):
    """Return one program for all data of one structure: compiling takes longer than all else."""
    estimator = ESTIMATORS[label]

    def loss(variables, arrays, weights):
        outs = estimator.call(estimator.kernel, arrays | variables)
        return sum((x * weights).sum() for x in outs), outs

    return jax.jit(jax.grad(loss, has_aux=True))


@pytest.mark.parametrize("estimator", ENDING.values(), ids=ENDING)
@pytest.mark.parametrize("backend", [TORCH, JAX], ids=str)
@pytest.mark.parametrize("poison", [np.nan, np.inf])
def test_case_09_poisoned_padding_changes_neither_values_nor_gradients(estimator, backend, poison):
    data = rollout((8, 3), 11)
    valid = np.arange(8)[:, None] < np.array([0, 1, 5])
    clean_outs, clean_grads = gradients(backend, estimator, padded(data, valid, 0.0))
    outs, grads = gradients(backend, estimator, padded(data, valid, poison))
    for x, y in zip((*outs, *grads), (*clean_outs, *clean_grads), strict=True):
        assert np.isfinite(x).all()
        np.testing.assert_array_equal(x, y)


@pytest.mark.parametrize("estimator", ENDING.values(), ids=ENDING)
@pytest.mark.parametrize("backend", [TORCH, JAX], ids=str)
def test_case_09_unread_successors_change_neither_values_nor_gradients(estimator, backend):
    data = rollout((8, 3), 12, terminated=0.3)
    data["next_values"][data["terminated"]] = 0.0
    clean_outs, clean_grads = gradients(backend, estimator, data)
    data["next_values"][data["terminated"]] = np.nan
    outs, grads = gradients(backend, estimator, data)
    for x, y in zip((*outs, *grads), (*clean_outs, *clean_grads), strict=True):
        assert np.isfinite(x).all()
        np.testing.assert_array_equal(x, y)


@every_estimator
def test_case_26_no_graph_is_kept_where_none_is_needed(estimator):
    tensors = TORCH.arguments(rollout((5, 3), 13))
    assert not any(x.requires_grad for x in estimator.call(estimator.kernel, tensors))
    tensors["rewards"].requires_grad_()
    with torch.no_grad():
        assert not any(x.requires_grad for x in estimator.call(estimator.kernel, tensors))
    assert all(x.requires_grad for x in estimator.call(estimator.kernel, tensors))


# One of each way in which recipes use the scan; the next test compiles them all.
@pytest.mark.slow
@pytest.mark.parametrize("label", ["gae", "upgo", "token_gae, skip", "n_step_returns", "vtrace"])
def test_case_27_compiles_whole_with_one_object_for_several_shapes(label):
    estimator = ESTIMATORS[label]

    def call(tensors):
        return estimator.call(estimator.kernel, tensors | DISCOUNTS)

    torch._dynamo.reset()
    compiled = torch.compile(call, fullgraph=True, backend="aot_eager", dynamic=True)
    for seed, shape in enumerate([(6, 4), (9, 3), (12, 5)]):
        data = rollout(shape, seed)
        eager, traced = (
            {k: x for k, x in TORCH.arguments(data).items() if isinstance(x, torch.Tensor)}
            for _ in range(2)
        )
        eager["rewards"].requires_grad_()
        traced["rewards"].requires_grad_()
        want, got = call(eager), compiled(traced)
        for x, y in zip(got, want, strict=True):
            assert_close(x.detach().numpy(), y.detach().numpy())
        sum(x.square().sum() for x in want).backward()
        sum(x.square().sum() for x in got).backward()
        assert eager["rewards"].grad is not None
        assert traced["rewards"].grad is not None
        assert_close(traced["rewards"].grad.numpy(), eager["rewards"].grad.numpy())


@pytest.mark.slow
@every_estimator
def test_case_27_compiles_without_gradients_and_with_padding(estimator):
    data = padded(rollout((6, 4), 14), np.random.default_rng(15).random((6, 4)) < 0.7, np.nan)
    tensors = {k: x for k, x in TORCH.arguments(data).items() if isinstance(x, torch.Tensor)}

    def call(tensors):
        return estimator.call(estimator.kernel, tensors | DISCOUNTS)

    torch._dynamo.reset()
    compiled = torch.compile(call, fullgraph=True, backend="aot_eager")
    for x, y in zip(compiled(tensors), call(tensors), strict=True):
        assert_close(x.numpy(), y.numpy())
