"""Who computes the loss and its gradient: ours by variant, the published forms, plain baselines.

Imports PyTorch or JAX when prepared. Tests: `tests/suites/avatarl/test_bench_avatarl_losses.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from loopless.bench.contest import Call, Contender
from suites.avatarl import published
from suites.avatarl.losses import TOLERANCE, VARIANTS, Found, Losses
from suites.avatarl.plain import CROSS_ENTROPY, METHOD, TINY

LOOPED = "the looped original"
SUBSET, FULL = "its vectorisation as first published", "its vectorisation today"
PLAIN_JAX = "that written plainly in JAX, jitted"
TORCH_ENTROPY, JAX_ENTROPY = "cross-entropy, PyTorch", "cross-entropy, plain JAX, jitted"


def ours(library: str, variant: str) -> str:
    """The name of our row."""
    return f"loopless, {library}" + ("" if variant == "fixed" else f', "{variant}"')


def torch_call(case: Losses, variant: str, loss_of: Callable[[Any, Any, Any], Any]) -> Call:
    """Forward and backward of loss_of(student, critic, gold) in eager PyTorch."""
    import torch

    student, critic, gold = map(torch.from_numpy, case.arrays)
    student = student.clone().requires_grad_()

    def run() -> Any:
        student.grad = None
        loss = loss_of(student, critic, gold)
        loss.backward()
        return loss

    def read(loss: Any) -> Found:
        assert student.grad is not None
        return Found(variant, loss.item(), student.grad.numpy().copy())

    return Call(run, read)


def jax_call(case: Losses, variant: str, loss_of: Callable[[Any, Any, Any], Any]) -> Call:
    """Value and gradient of loss_of(student, critic, gold), one program; answers waited for."""
    import jax
    import jax.numpy as jnp

    student, critic, gold = case.arrays
    arrays = jnp.asarray(student), jnp.asarray(critic), jnp.asarray(gold.astype(np.int32))
    program = jax.jit(jax.value_and_grad(loss_of, has_aux=True))

    def run() -> Any:
        return jax.block_until_ready(program(*arrays))

    def read(output: Any) -> Found:
        (loss, _), gradient = output
        return Found(variant, float(loss), np.asarray(gradient))

    return Call(run, read)


def _ours_torch(case: Losses, variant: str) -> Call:
    from loopless import avatarl_loss

    def loss_of(student: Any, critic: Any, gold: Any) -> Any:
        return avatarl_loss(student, critic, gold, top_k=case.top_k, variant=variant)[0]

    return torch_call(case, variant, loss_of)


def _ours_jax(case: Losses, variant: str) -> Call:
    from loopless import avatarl_loss

    return jax_call(case, variant, partial(avatarl_loss, top_k=case.top_k, variant=variant))


def _looped(case: Losses) -> Call:
    return torch_call(case, "original", lambda *x: published.looped(*x, k=case.top_k)[0])


def _vectorised(case: Losses, full: bool) -> Call:
    form = partial(published.vectorised, k=case.top_k, full=full)
    return torch_call(case, "full" if full else "subset", lambda *x: form(*x)[0])


def _plain_jax(case: Losses) -> Call:
    return jax_call(case, "full", partial(full_in_jax, k=case.top_k))


def full_in_jax(student: Any, critic: Any, gold: Any, k: int) -> Any:
    """As an expert would write it first: fixed width, duplicates masked, differentiated by JAX."""
    import jax
    import jax.numpy as jnp

    m = METHOD
    tops = [jax.lax.top_k(jax.lax.stop_gradient(x), k)[1] for x in (student, critic)]
    actions = jnp.concatenate([gold[:, None], *tops], -1)
    same = actions[:, :, None] == actions[:, None, :]
    present = ~jnp.tril(same, -1).any(-1)
    n = present.sum(-1, keepdims=True)
    first = jnp.arange(2 * k + 1) == 0
    reality = jnp.where(first, 1 - m.label_smoothing, m.label_smoothing / (n - 1))
    mentor = jnp.take_along_axis(jax.nn.softmax(critic), actions, -1)
    u = jnp.where(present, reality**m.reality_weight * mentor**m.critic_weight, 0)
    total = u.sum(-1, keepdims=True)
    p = u / (total + TINY)
    scaled = jnp.where(present & (p > total / (n + TINY)), m.reward_scale * p, 0)
    largest = scaled.max(-1, keepdims=True)
    clamped = scaled * m.reward_clamp / (largest + TINY)
    rewards = jax.lax.stop_gradient(jnp.where(largest > m.reward_clamp, clamped, scaled))
    log_pi = jax.nn.log_softmax(student / (1 + m.entropy_coefficient))
    logs = jnp.take_along_axis(log_pi, actions, -1)
    return -((rewards * logs).sum(-1) / (n[:, 0] + TINY)).mean(), ()


def _entropy_torch(case: Losses) -> Call:
    from torch.nn.functional import cross_entropy

    return torch_call(case, CROSS_ENTROPY, lambda student, _, gold: cross_entropy(student, gold))


def _entropy_jax(case: Losses) -> Call:
    import jax
    import jax.numpy as jnp

    def loss_of(student: Any, critic: Any, gold: Any) -> Any:
        logs = jnp.take_along_axis(jax.nn.log_softmax(student), gold[:, None], -1)
        return -logs.mean(), ()

    return jax_call(case, CROSS_ENTROPY, loss_of)


OURS = tuple(
    Contender(ours(library, variant), "loopless", "ours", partial(road, variant=variant), TOLERANCE)
    for library, road in (("JAX", _ours_jax), ("PyTorch", _ours_torch))
    for variant in VARIANTS
)
ORIGINAL = Contender(LOOPED, "torch", "reference", _looped, TOLERANCE)
FIRST = Contender(SUBSET, "torch", "reference", partial(_vectorised, full=False), TOLERANCE)
TODAY = Contender(FULL, "torch", "reference", partial(_vectorised, full=True), TOLERANCE)
OTHERS = (
    ORIGINAL,
    FIRST,
    TODAY,
    Contender(PLAIN_JAX, "jax", "yardstick", _plain_jax, TOLERANCE),
    Contender(TORCH_ENTROPY, "torch", "yardstick", _entropy_torch, TOLERANCE),
    Contender(JAX_ENTROPY, "jax", "yardstick", _entropy_jax, TOLERANCE),
)
CONTENDERS = (*OURS, *OTHERS)
