"""AvataRL inside other people's machinery: derivatives, compilation, chunks, memory, operations."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from support.avatarl import ROADS, VARIANTS, assert_same, positions, twin
from support.backends import JAX, TORCH
from support.compare import assert_close
from torch.utils._python_dispatch import TorchDispatchMode

from loopless.arrays.library import PyTorch, jax_program
from loopless.arrays.logits import jax as jax_vocabulary
from loopless.arrays.logits import numpy as numpy_vocabulary
from loopless.arrays.logits import torch as torch_vocabulary
from loopless.kernels.avatarl import loss as avatarl
from loopless.kernels.avatarl.loss import avatarl_loss

every_variant = pytest.mark.parametrize("variant", VARIANTS)


@every_variant
def test_gradcheck(variant):
    z, c, y = TORCH.arguments(positions((2, 2), 7, 50)).values()
    z.requires_grad_()

    def loss(z):
        return avatarl_loss(z, c, y, top_k=2, variant=variant, entropy_coefficient=0.2)[0]

    assert torch.autograd.gradcheck(loss, z, atol=1e-8)


def test_no_gradient_reaches_critic_or_weights():
    z, c, y = TORCH.arguments(positions((6,), 12, 51)).values()
    weight = torch.full((6,), 0.3, dtype=torch.float64)
    for x in (z, c, weight):
        x.requires_grad_()
    loss, _ = avatarl_loss(z, c, y, top_k=3, critic_weight=weight)
    of_z, of_c, of_weight = torch.autograd.grad(loss, (z, c, weight), allow_unused=True)
    assert of_z.any()
    assert of_c is None
    assert of_weight is None


def test_no_gradient_reaches_critic_or_weights_in_jax():
    z, c, y = JAX.arguments(positions((6,), 12, 51)).values()

    def by(c, weight):
        return avatarl_loss(z, c, y, top_k=3, critic_weight=weight)[0]

    found = jax.jit(jax.grad(by, (0, 1)))(c, jnp.full(6, 0.3))
    assert not any(x.any() for x in found)


def test_a_second_derivative_is_an_error():
    z, c, y = TORCH.arguments(positions((2,), 5, 52)).values()
    z.requires_grad_()
    (slope,) = torch.autograd.grad(avatarl_loss(z, c, y, top_k=2)[0], z, create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        slope.sum().backward()


def test_backward_twice_and_scaled_losses():
    data = positions((6,), 12, 53)
    z, c, y = TORCH.arguments(data).values()
    z.requires_grad_()
    loss, _ = avatarl_loss(z, c, y, top_k=3)
    (loss / 4).backward(retain_graph=True)
    want = twin(data, top_k=3).gradient
    assert_close(z.grad.numpy(), want / 4)
    loss.backward()
    assert_close(z.grad.numpy(), 1.25 * want)


def test_logits_overwritten_before_backward_change_nothing():
    data = positions((2,), 5, 54)
    z, c, y = TORCH.arguments(data).values()
    x = z.requires_grad_() * 1.0
    loss, _ = avatarl_loss(x, c, y, top_k=2)
    want = twin(data, top_k=2).gradient
    x.mul_(2.0)
    loss.backward()
    assert_close(z.grad.numpy(), want)


def test_a_gradient_changed_in_place_is_never_given_again():
    z, c, y = TORCH.arguments(positions((2,), 5, 56)).values()
    loss, _ = avatarl_loss(z.requires_grad_(), c, y, top_k=2)
    loss.backward(retain_graph=True)
    want = z.grad.clone()
    z.grad.mul_(9.0)  # what was added to is a copy
    (slope,) = torch.autograd.grad(loss, z, retain_graph=True)
    assert_close(slope.numpy(), want.numpy())
    slope.mul_(9.0)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        torch.autograd.grad(loss, z)


def test_without_gradients_nothing_is_recorded():
    z, c, y = TORCH.arguments(positions((2,), 5, 55)).values()
    assert not avatarl_loss(z, c, y, top_k=2)[0].requires_grad
    with torch.no_grad():
        assert not avatarl_loss(z.requires_grad_(), c, y, top_k=2)[0].requires_grad


@pytest.mark.slow
@pytest.mark.parametrize("variant", ["fixed", "original"])
def test_torch_compiles_whole(variant):
    data = positions((6,), 12, 56) | {"mask": np.array([True] * 5 + [False])}
    torch._dynamo.reset()

    def step(z, c, y, mask):
        return avatarl_loss(z, c, y, top_k=3, variant=variant, mask=mask)

    z, c, y, mask = TORCH.arguments(data).values()
    z.requires_grad_()
    loss, stats = torch.compile(step, fullgraph=True, backend="aot_eager")(z, c, y, mask)
    loss.backward()
    want = twin(data, top_k=3, variant=variant)
    assert_close(loss.item(), want.loss)
    assert_close(stats["kl"].item(), want.stats["kl"])
    assert_close(z.grad.numpy(), want.gradient)


def test_torch_func_and_vmap():
    data = positions((3, 6), 12, 57)
    z, c, y = TORCH.arguments(data).values()

    def loss(z, c, y):
        return avatarl_loss(z, c, y, top_k=3)[0]

    one_by_one = torch.stack([torch.func.grad(loss)(*row) for row in zip(z, c, y, strict=True)])
    together = torch.vmap(torch.func.grad(loss))(z, c, y)
    assert_close(together.numpy(), one_by_one.numpy())
    first = {name: x[0] for name, x in data.items()}
    assert_close(together[0].numpy(), twin(first, top_k=3).gradient)


def test_torch_reads_no_value_back(monkeypatch):
    """Tensors without values go through: whoever looked at one would raise."""
    monkeypatch.setattr(PyTorch, "is_dense", lambda *_: True)  # which are refused else
    z, c, y = (x.to("meta") for x in TORCH.arguments(positions((6,), 12, 58)).values())
    loss, _ = avatarl_loss(z.requires_grad_(), c, y, top_k=3, mask=y > 0)
    loss.backward()
    assert z.grad.shape == z.shape


def test_jax_jit_vmap_and_numbers():
    z, c, y = JAX.arguments(positions((3, 6), 12, 59)).values()

    def loss(z, c, y):
        return avatarl_loss(z, c, y, top_k=3)[0]

    step = jax.jit(jax.vmap(jax.grad(loss))).lower(z, c, y)
    assert "callback" not in step.as_text()
    first = {name: x[0] for name, x in positions((3, 6), 12, 59).items()}
    assert_close(step.compile()(z, c, y)[0], twin(first, top_k=3).gradient)


def test_jax_compiles_nothing_anew_for_other_numbers():
    program = jax_program(avatarl._loss, (0, 1, 2, 3))
    z, c, y = JAX.arguments(positions((6,), 12, 60)).values()
    avatarl_loss(z, c, y, top_k=3)
    before = program._cache_size()
    avatarl_loss(z, c, y, top_k=3, label_smoothing=0.2, entropy_coefficient=0.5)
    assert program._cache_size() == before


def test_a_token_out_of_range_is_nan_in_jax():
    z, c, y = JAX.arguments(positions((6,), 12, 61)).values()
    for wrong in (-1, 12):
        assert np.isnan(avatarl_loss(z, c, y.at[2].set(wrong), top_k=3)[0])


# Chunks


@pytest.mark.parametrize("road", ["torch, operations", "jax", "numpy"])
def test_chunks_change_nothing(road, monkeypatch):
    jax.clear_caches()
    for module in (torch_vocabulary, jax_vocabulary, numpy_vocabulary):
        monkeypatch.setattr(module, "CHUNK", 4 * 11)  # four rows, and a rest of three
    data = positions((7,), 11, 62) | {"mask": np.arange(7) != 5}
    assert_same(ROADS[road](data, top_k=3), twin(data, top_k=3))
    jax.clear_caches()


@pytest.mark.slow
def test_half_precision_in_chunks(monkeypatch):
    monkeypatch.setattr(numpy_vocabulary, "CHUNK", 4 * 11)
    data = positions((7,), 11, 63)
    z, c, y = TORCH.arguments(data, "float16").values()
    avatarl_loss(z.requires_grad_(), c, y, top_k=3)[0].backward()
    rounded = data | {
        name: TORCH.numpy(x) for name, x in (("student_logits", z), ("critic_logits", c))
    }
    want = twin(rounded, top_k=3).gradient
    np.testing.assert_allclose(z.grad.double().numpy(), want, atol=1e-3 * np.abs(want).max())


@pytest.mark.parametrize("variant", ["fixed", "original"])
def test_jax_needs_no_array_of_the_logits_size_beside_the_gradient(variant):
    z = jax.ShapeDtypeStruct((4096, 5000), jnp.float32)
    y = jax.ShapeDtypeStruct((4096,), jnp.int32)

    def loss(z, c, y):
        return avatarl_loss(z, c, y, top_k=4, variant=variant)[0]

    step = jax.jit(jax.value_and_grad(loss))
    memory = step.lower(z, z, y).compile().memory_analysis()
    assert memory.temp_size_in_bytes < 0.3 * 4096 * 5000 * 4


# Work


class Counter(TorchDispatchMode):
    count = 0
    largest = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        self.count += 1
        return out


def dispatched(shape, vocabulary, k, variant="fixed"):
    z, c, y = TORCH.arguments(positions(shape, vocabulary, 64), "float32").values()
    z.requires_grad_()
    with Counter() as counter:
        avatarl_loss(z, c, y, top_k=k, variant=variant)[0].backward()
    return counter.count


def test_operations_do_not_grow_with_positions_or_vocabulary():
    small = dispatched((8,), 20, 2)
    assert dispatched((800,), 20, 2) == small
    assert dispatched((8,), 300, 2) == small
    assert dispatched((8,), 20, 7) == small


def test_operations_grow_by_a_constant_for_each_chunk(monkeypatch):
    monkeypatch.setattr(torch_vocabulary, "CHUNK", 8 * 20)
    two, three, four = (dispatched((8 * n,), 20, 2) for n in (2, 3, 4))
    assert four - three == three - two > 0


def looped_original(z, c, y, k):
    """The published original written plainly: two loops over positions."""
    pi = torch.softmax(z, -1)
    mentor = torch.softmax(c, -1)
    losses = []
    for t in range(len(z)):
        found = torch.unique(torch.cat([z[t].topk(k).indices, c[t].topk(k).indices, y[t, None]]))
        reality = torch.full((len(found),), 0.1 / max(len(found) - 1, 1))
        reality[found == y[t]] = 0.9
        u = reality**0.7 * mentor[t, found] ** 0.3
        p = u / (u.sum() + 1e-8)
        scaled = 100.0 * torch.where(p > u.sum() / len(found), p, 0.0)
        rewards = scaled * 1.5 / (scaled.max() + 1e-8)
        logs = torch.log(pi[t] + 1e-10)
        entropy = -(pi[t] * logs).sum()
        losses.append(-(rewards.detach() * logs[found]).sum() / len(found) - 0.01 * entropy)
    return torch.stack(losses).mean()


def test_thirty_times_fewer_operations_than_the_loop_at_4096_positions():
    z, c, y = TORCH.arguments(positions((64,), 65, 64), "float32").values()
    z.requires_grad_()
    with Counter() as counter:
        looped_original(z, c, y, 4).backward()
    assert 4096 / 64 * counter.count > 30 * dispatched((4096,), 65, 4, "original")


@pytest.mark.slow
def test_the_loop_whose_operations_are_counted_gives_the_same_loss():
    z, c, y = TORCH.arguments(positions((64,), 65, 64), "float32").values()
    loss, _ = avatarl_loss(z, c, y, top_k=4, variant="original")
    assert_close(loss.item(), looped_original(z, c, y, 4).item(), "float32")


@pytest.mark.slow
@pytest.mark.parametrize("variant", ["fixed", "subset"])
def test_a_compiled_program_of_pytorch_gives_loss_statistics_and_gradient(variant):
    torch.manual_seed(0)
    student, critic = torch.randn(2, 3, 4, 11, dtype=torch.float64)
    gold = torch.randint(0, 11, (3, 4))

    def run(function):
        logits = student.clone().requires_grad_()
        loss, stats = function(logits, critic, gold)
        loss.backward()
        return [loss.detach(), *stats.values(), logits.grad]

    def loss_of(logits, critic, gold):
        return avatarl_loss(logits, critic, gold, top_k=3, variant=variant)

    compiled = torch.compile(loss_of, backend="aot_eager", fullgraph=True)
    for x, y in zip(run(compiled), run(loss_of), strict=True):
        torch.testing.assert_close(x, y, rtol=1e-12, atol=1e-14)
