"""The policy-gradient losses inside other people's machinery, and what a call costs them there."""

import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from support.backends import JAX, TORCH
from support.compare import assert_close
from support.policy_gradient import CALLS, KERNELS_OF, TWINS_OF, gradients_of, scalars
from support.q_learning import Elsewhere
from support.situations import padded_rows, policy_rows
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils._python_dispatch import TorchDispatchMode

import loopless as ll
from loopless.arrays.library import PyTorch, jax_program
from loopless.kernels import policy_gradient
from loopless.verify.cases.batches import INPUTS, ROWS, call_ppo

every_loss = pytest.mark.parametrize("name", CALLS)
with_options = pytest.mark.parametrize("optional", [False, True], ids=["plain", "clipped, masked"])


def batch(shape, seed, optional=True):
    """Arguments with or without a value clip and padding."""
    data = policy_rows(shape, seed)
    if not optional:
        return data
    valid = np.random.default_rng(seed).random(shape) < 0.7
    valid.flat[0] = True
    return padded_rows(data | {"value_clip": 0.3}, valid, np.nan)


def arrays_only(backend, data):
    return {k: x for k, x in backend.arguments(data).items() if backend.owns(x)}


def numbers_only(data):
    return {k: x for k, x in data.items() if not isinstance(x, np.ndarray)}


def call(name, arguments):
    return scalars(CALLS[name](KERNELS_OF[name], arguments))


# torch.compile, torch.func, make_fx


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "optional"), [("ppo_loss", True), ("policy_gradient_loss", False)]
)
def test_torch_compiles_whole_with_one_object_for_several_shapes(name, optional):
    torch._dynamo.reset()
    compiled = torch.compile(call, fullgraph=True, backend="aot_eager", dynamic=True)
    for seed, shape in enumerate([(3, 5), (4, 7)]):
        data = batch(shape, seed, optional)
        tensors = TORCH.arguments(data)
        for key in INPUTS:
            tensors[key].requires_grad_()
        loss, *parts = compiled(name, tensors)
        for x, y in zip((loss, *parts), scalars(CALLS[name](TWINS_OF[name], data)), strict=True):
            assert_close(x.detach().numpy(), y)
        assert not any(x.requires_grad for x in parts)
        loss.backward()
        for key, expected in gradients_of(name, data).items():
            assert_close(tensors[key].grad.numpy(), expected, what=key)


@pytest.mark.slow
def test_torch_compiles_without_gradients():
    torch._dynamo.reset()
    data = batch((6,), 2, optional=False)
    compiled = torch.compile(call, fullgraph=True, backend="aot_eager")
    expected = scalars(call_ppo(TWINS_OF["ppo_loss"], data))
    for x, y in zip(compiled("ppo_loss", TORCH.arguments(data)), expected, strict=True):
        assert_close(x.numpy(), y)


@pytest.mark.parametrize("backend", [TORCH, JAX], ids=str)
@every_loss
@with_options
def test_vmap_equals_one_by_one(backend, name, optional):
    data = batch((4, 6), 3, optional)
    numbers = numbers_only(data)
    arrays = arrays_only(backend, data)
    vmap = torch.vmap if backend is TORCH else jax.vmap
    found = vmap(lambda x: call(name, x | numbers))(arrays)
    for k in range(4):
        row = {key: x[k] if isinstance(x, np.ndarray) else x for key, x in data.items()}
        expected = scalars(CALLS[name](TWINS_OF[name], row))
        for x, y in zip(found, expected, strict=True):
            assert_close(backend.numpy(x)[k], y)


@pytest.mark.parametrize("mapped", [*ROWS, "valid", "clip", "entropy_coefficient"])
def test_torch_vmap_over_one_argument(mapped):
    data = batch((6,), 4)
    data |= {key: np.array(data[key]) for key in ("clip", "entropy_coefficient")}
    tensors = TORCH.arguments(data)
    x = tensors[mapped]
    many = torch.stack([x, x.flip(0) if x.ndim else 2 * x])
    one_by_one = zip(*[call("ppo_loss", tensors | {mapped: x}) for x in many], strict=True)
    found = torch.vmap(lambda x: call("ppo_loss", tensors | {mapped: x}))(many)
    for x, y in zip(found, one_by_one, strict=True):
        np.testing.assert_allclose(x.numpy(), torch.stack(y).numpy(), rtol=1e-12)


@every_loss
def test_gradients_of_each_batch_by_vmap(name):
    data = batch((4, 6), 5)
    numbers = numbers_only(data)

    def loss(values, rest):
        return call(name, rest | numbers | {"values": values})[0]

    tensors = arrays_only(TORCH, data)
    found = torch.vmap(torch.func.grad(loss))(tensors["values"], tensors)
    for k in range(4):
        row = {key: x[k] if isinstance(x, np.ndarray) else x for key, x in data.items()}
        assert_close(found[k].numpy(), gradients_of(name, row)["values"])


@every_loss
@with_options
def test_make_fx_records_the_computation(name, optional):
    tensors = TORCH.arguments(batch((6,), 6, optional))

    def recorded(log_probs, values):
        return call(name, tensors | {"log_probs": log_probs, "values": values})

    graph = make_fx(recorded)(tensors["log_probs"], tensors["values"])
    other = tensors["log_probs"] + 0.1, tensors["values"] * 2
    for x, y in zip(graph(*other), recorded(*other), strict=True):
        assert_close(x.numpy(), y.numpy())


# Nothing is read back from a device


@every_loss
@pytest.mark.parametrize("gradients", [False, True])
@pytest.mark.parametrize("traced", [False, True])
def test_torch_reads_no_value_back(monkeypatch, name, gradients, traced):
    """Tensors without values go through, numbers too: whoever looked at one would raise."""
    monkeypatch.setattr(PyTorch, "is_dense", lambda *_: True)  # which are refused else
    data = batch((2, 6), 7)
    if traced:
        data |= {key: np.array(x) for key, x in numbers_only(data).items()}
    arguments = TORCH.arguments(data)
    arguments = {k: x.to("meta") if TORCH.owns(x) else x for k, x in arguments.items()}
    arguments["values"].requires_grad_(gradients)
    loss, *parts = call(name, arguments)
    assert all(tuple(x.shape) == () for x in (loss, *parts))
    assert loss.requires_grad == gradients
    if gradients:
        loss.backward()
        assert arguments["values"].grad.shape == (2, 6)


@every_loss
def test_jax_program_has_no_callback_and_no_loop(name):
    arrays = JAX.arguments(batch((4, 6), 8))
    gradient = jax.grad(lambda values, rest: call(name, rest | {"values": values})[0])
    text = jax.jit(gradient).lower(arrays["values"], arrays).as_text()
    assert "callback" not in text
    assert "while" not in text


def test_jax_compiles_nothing_anew_for_other_numbers():
    compiled = jax_program(policy_gradient._composed_losses, (0, 1, 2))

    def compilations(rows, **numbers):
        call_ppo(ll.ppo_loss, JAX.arguments(policy_rows((rows,), 9) | numbers))
        return compiled._cache_size()

    first = compilations(13, clip=0.2, value_coefficient=0.5, value_clip=0.1)
    other = {"clip": 0.1, "value_coefficient": 1.0, "entropy_coefficient": 0.1, "value_clip": 0.3}
    assert compilations(13, **other) == first
    assert compilations(14, **other) == first + 1  # the counter counts


def test_jax_takes_a_schedules_numbers_inside_a_scan():
    data = batch((6,), 10)
    arrays = JAX.arguments(data)
    clips, bonuses = np.array([0.3, 0.2, 0.1]), np.array([0.1, 0.01, 0.0])

    def step(carry, numbers):
        clip, bonus = numbers
        options = {"clip": clip, "entropy_coefficient": bonus, "value_clip": clip}
        return carry, call("ppo_loss", arrays | options)

    _, found = jax.jit(lambda: jax.lax.scan(step, 0, (jnp.asarray(clips), jnp.asarray(bonuses))))()
    for k in range(3):
        options = {"clip": clips[k], "entropy_coefficient": bonuses[k], "value_clip": clips[k]}
        expected = scalars(call_ppo(TWINS_OF["ppo_loss"], data, **options))
        for x, y in zip(found, expected, strict=True):
            assert_close(np.asarray(x)[k], y)


def test_jax_promotes_nothing_behind_ones_back():
    arrays = JAX.arguments(batch((6,), 11), "float32")
    with jax.numpy_dtype_promotion("strict"):
        assert all(x.dtype == jnp.float32 for x in call("ppo_loss", arrays))


# Work


class Counter(TorchDispatchMode):
    count = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.count += 1
        return func(*args, **(kwargs or {}))


def inputs_of(data):
    tensors = TORCH.arguments(data)
    for key in INPUTS:
        tensors[key].requires_grad_()
    return tensors


def dispatched(name, shape):
    """Operations dispatched where tensors must stay tensors, backward included."""
    tensors = inputs_of(batch(shape, 12))
    with Counter() as counter:
        call(name, tensors)[0].backward()
    return counter.count


def aten(work):
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        work()
    return sum(e.count for e in profile.key_averages() if e.key.startswith("aten::"))


def profiled(name, shape):
    """Operations that PyTorch's profiler sees in plain eager execution, backward included."""
    tensors = inputs_of(batch(shape, 12))
    return aten(lambda: call(name, tensors)[0].backward())


def profiled_elsewhere(name, shape):
    tensors = inputs_of(batch(shape, 12))
    tensors = {k: x.as_subclass(Elsewhere) if TORCH.owns(x) else x for k, x in tensors.items()}
    return aten(lambda: call(name, tensors)[0].backward())


@every_loss
@pytest.mark.parametrize("count", [dispatched, profiled, profiled_elsewhere])
def test_torch_operations_do_not_grow_with_the_rows(count, name):
    small = count(name, (2, 3))
    assert small > 0
    assert count(name, (2, 300)) == small
    assert count(name, (50, 3)) == small


def written_plainly(x):
    log_ratio = x["log_probs"] - x["old_log_probs"]
    ratio = log_ratio.exp()
    clipped = ratio.clamp(0.8, 1.2) * x["advantages"]
    policy_loss = -torch.min(ratio * x["advantages"], clipped).mean()
    value_loss = 0.5 * (x["values"] - x["returns"]).square().mean()
    return policy_loss + 0.7 * value_loss - 0.05 * x["entropies"].mean()


def test_eager_pytorch_dispatches_fewer_operations_than_written_plainly():
    tensors = inputs_of(policy_rows((32,), 13))
    written = aten(lambda: written_plainly(tensors).backward())
    assert aten(lambda: call("ppo_loss", tensors)[0].backward()) < written / 2


def test_results_share_no_memory_with_inputs_or_each_other():
    data = batch((4, 6), 14)
    tensors = TORCH.arguments(data)
    found = call("ppo_loss", tensors)
    kept = [x.item() for x in found[1:]]
    found[0].fill_(7.0)
    assert [x.item() for x in found[1:]] == kept
    for name in ROWS:
        np.testing.assert_array_equal(tensors[name].numpy(), data[name], err_msg=name)


def test_numpy_arrays_load_no_framework():
    code = """
import sys, numpy as np, loopless as ll
x = np.zeros(3)
ll.ppo_loss(x, x, x, x, x, x, value_clip=0.2, old_values=x, valid=x == 0)
ll.policy_gradient_loss(x, x, x, x, x)
print([m for m in ("torch", "jax", "triton") if m in sys.modules])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
