"""The kernels inside other people's machinery, and what a call costs them there."""

import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import torch
from support.backends import JAX, TORCH
from support.compare import assert_close
from support.q_learning import Elsewhere
from support.situations import call_loss, transitions
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils._python_dispatch import TorchDispatchMode

import loopless as ll
from loopless import reference
from loopless.arrays.library import PyTorch, jax_program
from loopless.kernels import q_learning
from loopless.verify.cases.batches import MEMBERS, call_targets

every_member = pytest.mark.parametrize("member", MEMBERS)
ARRAYS = ("q", "actions", "rewards", "terminated", "next_q", "next_q_online", "next_actions")


def arrays_only(backend, data):
    return {k: x for k, x in backend.arguments(data).items() if backend.owns(x)}


def update(arguments, member, **options):
    """Targets, losses and errors of one batch or several."""
    targets = call_targets(ll.q_targets, arguments | {"gamma": 0.9}, member)
    return targets, *call_loss(ll.q_loss, arguments | {"targets": targets}, **options)


def expected_update(data, member, **options):
    targets = call_targets(reference.q_targets, data, member)
    return targets, *call_loss(reference.q_loss, data | {"targets": targets}, **options)


# torch.compile, torch.func, make_fx


@pytest.mark.slow
def test_torch_compiles_whole_with_one_object_for_several_shapes():
    torch._dynamo.reset()
    compiled = torch.compile(update, fullgraph=True, backend="aot_eager", dynamic=True)
    options = {"loss": "huber", "delta": 0.5}
    for seed, shape in enumerate([(3, 5), (4, 7)]):
        data = transitions(shape, 3, seed)
        tensors = arrays_only(TORCH, data)
        q = tensors["q"].requires_grad_()
        got = compiled(tensors, "double", **options)
        want = expected_update(data, "double", **options)
        for x, y in zip(got, want, strict=True):
            assert_close(x.detach().numpy(), y)
        got[1].sum().backward()
        assert q.grad is not None
        gradients = call_loss(reference.q_loss_gradients, data | {"targets": want[0]}, **options)
        assert_close(q.grad.numpy(), gradients)
        assert not got[0].requires_grad
        assert not got[2].requires_grad


@pytest.mark.slow
@pytest.mark.parametrize("member", ["dqn", "sarsa"])
def test_torch_compiles_without_gradients(member):
    data = transitions((6,), 3, 0)
    del data["weights"]
    torch._dynamo.reset()
    compiled = torch.compile(update, fullgraph=True, backend="aot_eager")
    got = compiled(arrays_only(TORCH, data), member)
    for x, y in zip(got, expected_update(data, member), strict=True):
        assert_close(x.numpy(), y)


@pytest.mark.parametrize("mapped", ARRAYS)
def test_torch_vmap_over_one_argument(mapped):
    tensors = arrays_only(TORCH, transitions((5,), 3, 1))
    many = torch.stack([tensors[mapped], tensors[mapped].flip(0)])
    member = "sarsa" if mapped == "next_actions" else "double"

    def call(x):
        return update(tensors | {mapped: x}, member, loss="huber")

    one_by_one = zip(*[call(x) for x in many], strict=True)
    for x, y in zip(torch.vmap(call)(many), one_by_one, strict=True):
        assert_close(x.numpy(), torch.stack(y).numpy())


@pytest.mark.parametrize("backend", [TORCH, JAX], ids=str)
@every_member
def test_vmap_equals_a_leading_axis(backend, member):
    arrays = arrays_only(backend, transitions((4, 5), 3, 2))
    vmap = torch.vmap if backend is TORCH else jax.vmap
    whole = update(arrays, member)
    for x, y in zip(vmap(lambda x: update(x, member))(arrays), whole, strict=True):
        assert_close(backend.numpy(x), backend.numpy(y))


def test_torch_gradients_of_each_batch_by_vmap():
    data = transitions((4, 5), 3, 3)
    tensors = arrays_only(TORCH, data)

    def loss(q, rest):
        return call_loss(ll.q_loss, rest | {"q": q}, loss="huber")[0]

    found = torch.vmap(torch.func.grad(loss))(tensors["q"], tensors)
    assert_close(found.numpy(), call_loss(reference.q_loss_gradients, data, loss="huber"))


def test_torch_batched_gradients_equal_one_by_one():
    tensors = arrays_only(TORCH, transitions((3, 4), 2, 4))
    q = tensors["q"].requires_grad_()
    losses, _ = call_loss(ll.q_loss, tensors)
    directions = torch.eye(3, dtype=torch.float64)
    one_by_one = [torch.autograd.grad(losses, q, x, retain_graph=True)[0] for x in directions]
    (batched,) = torch.autograd.grad(losses, q, directions, is_grads_batched=True)
    assert_close(batched.numpy(), torch.stack(one_by_one).numpy())


@every_member
def test_make_fx_records_the_computation(member):
    tensors = arrays_only(TORCH, transitions((5,), 3, 5))

    def call(q, next_q):
        return update(tensors | {"q": q, "next_q": next_q}, member)

    graph = make_fx(call)(tensors["q"], tensors["next_q"])
    other = tensors["q"] + 1, tensors["next_q"].flip(0)
    for x, y in zip(graph(*other), call(*other), strict=True):
        assert_close(x.numpy(), y.numpy())


# Nothing is read back from a device


@every_member
@pytest.mark.parametrize("gradients", [False, True])
def test_torch_reads_no_value_back(monkeypatch, member, gradients):
    """Tensors without values go through: whoever looked at one would raise."""
    monkeypatch.setattr(PyTorch, "is_dense", lambda *_: True)  # which are refused else
    tensors = arrays_only(TORCH, transitions((2, 5), 3, 6))
    tensors = {name: x.to("meta") for name, x in tensors.items()}
    tensors["q"].requires_grad_(gradients)
    targets, losses, errors = update(tensors, member, loss="huber")
    assert [tuple(x.shape) for x in (targets, losses, errors)] == [(2, 5), (2,), (2, 5)]
    assert losses.requires_grad == gradients
    if gradients:
        losses.sum().backward()
        assert tensors["q"].grad.shape == (2, 5, 3)


@every_member
def test_jax_program_has_no_callback_and_no_loop(member):
    arrays = arrays_only(JAX, transitions((4, 5), 3, 7))
    text = jax.jit(lambda x: update(x, member)).lower(arrays).as_text()
    assert "callback" not in text
    assert "while" not in text


def test_jax_compiles_nothing_anew_for_other_numbers():
    targets = jax_program(q_learning._composed_targets, (0, 1))
    losses = jax_program(q_learning._composed_losses, (0, 1, 2, 4))

    def compilations(samples, gamma, delta):
        arrays = JAX.arguments(transitions((2, samples), 3, 8, gamma=gamma))
        call_targets(ll.q_targets, arrays)
        call_loss(ll.q_loss, arrays, loss="huber", delta=delta)
        return targets._cache_size(), losses._cache_size()

    first = compilations(11, 0.9, 1.0)
    assert compilations(11, 0.8, 2.0) == first
    assert compilations(12, 0.8, 2.0) == (first[0] + 1, first[1] + 1)  # the counter counts


# Work


class Counter(TorchDispatchMode):
    count = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.count += 1
        return func(*args, **(kwargs or {}))


def dispatched(shape, actions, member):
    """Operations dispatched where tensors must stay tensors, backward included."""
    tensors = arrays_only(TORCH, transitions(shape, actions, 9))
    tensors["q"].requires_grad_()
    with Counter() as counter:
        update(tensors, member, loss="huber")[1].sum().backward()
    return counter.count


def profiled(shape, actions, member, *, elsewhere=False):
    """Operations that PyTorch's profiler sees in plain eager execution, backward included."""
    tensors = arrays_only(TORCH, transitions(shape, actions, 9))
    if elsewhere:
        tensors = {name: x.as_subclass(Elsewhere) for name, x in tensors.items()}
    tensors["q"].requires_grad_()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        update(tensors, member, loss="huber")[1].sum().backward()
    return sum(e.count for e in profile.key_averages() if e.key.startswith("aten::"))


@every_member
@pytest.mark.parametrize(
    "count", [dispatched, profiled, lambda *x: profiled(*x, elsewhere=True)],
    ids=["watched", "eager", "elsewhere"],
)  # fmt: skip
def test_torch_operations_do_not_grow_with_batches_samples_or_actions(count, member):
    small = count((2, 3), 2, member)
    assert small > 0
    assert count((50, 3), 2, member) == small
    assert count((2, 300), 2, member) == small
    assert count((2, 3), 40, member) == small


def test_eager_pytorch_dispatches_fewer_operations_than_written_plainly():
    def plain(tensors):
        with torch.no_grad():
            best = tensors["next_q"].max(-1).values
            targets = torch.where(
                tensors["terminated"], tensors["rewards"], tensors["rewards"] + 0.9 * best
            )
        taken = tensors["q"].gather(-1, tensors["actions"].unsqueeze(-1)).squeeze(-1)
        torch.nn.functional.smooth_l1_loss(taken, targets).backward()

    tensors = arrays_only(TORCH, transitions((32,), 2, 9))
    tensors["q"].requires_grad_()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        plain(tensors)
    written = sum(e.count for e in profile.key_averages() if e.key.startswith("aten::"))
    assert profiled((32,), 2, "dqn") < written


def by_hand(arguments):
    """What one would write with optax, stopped targets and errors included."""
    q, actions, rewards, terminated, next_q, _, _ = (arguments[name] for name in ARRAYS)
    targets = jnp.where(terminated, rewards, rewards + 0.9 * next_q.max(-1))
    taken = jnp.take_along_axis(q, actions[..., None], -1)[..., 0]
    targets = jax.lax.stop_gradient(targets)
    return optax.huber_loss(taken, targets).mean(), (targets, taken - targets)


def by_us(arguments):
    targets = call_targets(ll.q_targets, arguments | {"gamma": 0.9})
    loss, errors = call_loss(ll.q_loss, arguments | {"targets": targets}, loss="huber")
    return loss, (targets, errors)


@pytest.mark.parametrize("shape", [(32,), (1024,)], ids=str)
def test_jax_compiles_to_no_more_memory_traffic_than_written_by_hand(shape):
    arrays = arrays_only(JAX, transitions(shape, 4, 10))
    del arrays["weights"]

    def cost(function):
        def loss(q, rest):
            return function(rest | {"q": q})

        step = jax.jit(jax.value_and_grad(loss, has_aux=True))
        return step.lower(arrays["q"], arrays).compile().cost_analysis()["bytes accessed"]

    assert cost(by_us) <= cost(by_hand)


def test_results_share_no_memory_with_inputs():
    data = transitions((2, 4), 3, 11)
    tensors = arrays_only(TORCH, data)
    for out in update(tensors, "dqn"):
        out.fill_(7.0)
    for name, x in tensors.items():
        np.testing.assert_array_equal(x.numpy(), data[name], err_msg=name)


def test_numpy_arrays_load_no_framework():
    code = """
import sys, numpy as np, loopless as ll
r, f, q, a = np.zeros(3), np.zeros(3, bool), np.zeros((3, 2)), np.zeros(3, int)
ll.q_loss(q, a, ll.q_targets(r, f, q, gamma=0.9), weights=r, loss="huber")
print([m for m in ("torch", "jax", "triton") if m in sys.modules])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
