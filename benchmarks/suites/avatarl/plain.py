"""The loss and its gradient by every contender: replaced code, ours, baselines, proposals.

The looped original and the two vectorizations that followed it are written from descriptions of
each. The loops only build action sets; all arithmetic is on whole arrays. Compared with today's
form, the loops cost what a study of the published code measured: 9 to 16 times as much at V = 65,
and 1.3 times at V = 50304. What each returns beside the loss, and what it reads back from the
device for that, is as published. Proposals are checked against the looped original, whose loss
they were said to compute.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

import loopless as ll
from loopless.bench.contest import Call, Contender
from loopless.bench.result import Role
from loopless.reference.avatarl import FLOOR, TINY
from loopless.reference.avatarl import Settings as Method
from suites.avatarl import losses
from suites.avatarl.losses import CROSS_ENTROPY, METHOD, Losses
from suites.processes import jax, jnp, torch

CAP = 33  # the most actions of a position, in the first two versions


def looped(student: Any, critic: Any, gold: Any, k: int, method: Method = METHOD) -> Any:
    """Return loss and statistics; loop over positions to collect actions, and again to pad them."""
    with torch.no_grad():
        reality, actions_of = torch.zeros_like(critic), []
        of_student, of_critic = student.topk(k).indices, critic.topk(k).indices
        for i in range(len(gold)):
            proposed = torch.cat([of_student[i], of_critic[i], gold[i : i + 1]]).tolist()
            chosen = list(dict.fromkeys(proposed))[:CAP]
            n = len(chosen)
            reality[i, chosen] = method.label_smoothing / max(n - 1, 1)
            reality[i, gold[i]] = 1 - method.label_smoothing if n > 1 else 1.0
            actions_of.append(chosen)
        width = max(map(len, actions_of))
        actions = torch.zeros(len(gold), width, dtype=torch.long)
        present = torch.zeros(len(gold), width, dtype=torch.bool)
        for i, chosen in enumerate(actions_of):
            actions[i, : len(chosen)] = torch.tensor(chosen)
            present[i, : len(chosen)] = True
        n = present.sum(-1)
        u = reality**method.reality_weight * critic.softmax(-1) ** method.critic_weight
        rewards = rewarded(u.gather(1, actions), present, n, method)
    pi = student.softmax(-1)
    logs = (pi + FLOOR).log()
    gained = (rewards * logs.gather(1, actions)).sum(-1) / (n + TINY)
    loss = (-gained + method.entropy_coefficient * (pi * logs).sum(-1)).mean()
    return loss, statistics(rewards, present, n)


def vectorised(
    student: Any, critic: Any, gold: Any, k: int, method: Method = METHOD, *, full: bool
) -> Any:
    """Return loss and statistics; find duplicates by a sort, multiply over the vocabulary, gather.

    A temperature takes the place of the entropy bonus. With `full` the student's softmax is over
    the vocabulary, as today; without, over the actions alone, as first published.
    """
    with torch.no_grad():
        actions, present, n = distinct(student, critic, gold, k, 2 * k + 1 if full else CAP)
        reality = torch.zeros_like(critic)
        rows, places = present.nonzero(as_tuple=True)
        tokens = actions[rows, places]
        share = method.label_smoothing / (n[rows] - 1)
        is_gold = tokens == gold[rows]
        reality[rows, tokens] = torch.where(is_gold, 1 - method.label_smoothing, share)
        mentor = critic.softmax(-1)
        u = reality**method.reality_weight * mentor**method.critic_weight
        rewards = rewarded(u.gather(1, actions), present, n, method)
    tau = 1 + method.entropy_coefficient
    if full:
        logs = (student / tau).log_softmax(-1).gather(1, actions)
    else:
        inside = (student.gather(1, actions) / tau).masked_fill(~present, -1e10)
        logs = inside.log_softmax(-1)
    loss = (-(rewards * logs * present).sum(-1) / (n + TINY)).mean()
    return loss, statistics(rewards, present, n)


def distinct(student: Any, critic: Any, gold: Any, k: int, cap: int) -> Any:
    """Return each position's distinct actions, padded; which places are filled; how many are."""
    proposed = torch.cat([student.topk(k).indices, critic.topk(k).indices, gold[:, None]], 1)
    ordered, order = proposed.sort(1)
    first = torch.ones_like(proposed, dtype=torch.bool)
    first[:, 1:] = ordered[:, 1:] != ordered[:, :-1]
    first = torch.zeros_like(first).scatter(1, order, first)
    width = min(int(first.sum(1).max().item()), cap)
    places = first.cumsum(1) - 1
    rows, columns = (first & (places < width)).nonzero(as_tuple=True)
    actions = torch.zeros(len(gold), width, dtype=torch.long)
    actions[rows, places[rows, columns]] = proposed[rows, columns]
    n = first.sum(1).clamp(max=width)
    return actions, torch.arange(width) < n[:, None], n


def rewarded(u: Any, present: Any, n: Any, method: Method) -> Any:
    """Return the reward of each action from its product of reality and critic."""
    u = torch.where(present, u, 0.0)
    total = u.sum(-1, keepdim=True)
    p, threshold = u / (total + TINY), total / (n[:, None] + TINY)
    scaled = method.reward_scale * p * (present & (p > threshold))
    largest = scaled.amax(-1, keepdim=True)
    clamped = scaled * method.reward_clamp / (largest + TINY)
    return torch.where(largest > method.reward_clamp, clamped, scaled)


def statistics(rewards: Any, present: Any, n: Any) -> dict[str, float]:
    earned = rewards[present]
    return {
        "reward": earned.mean().item(),
        "most": earned.max().item(),
        "least": earned.min().item(),
        "actions": n.float().mean().item(),
    }


LOOPED = "the looped original"
SUBSET, FULL = "its vectorisation as first published", "its vectorisation today"
PLAIN_JAX = "that written plainly in JAX, jitted"
TORCH_ENTROPY, JAX_ENTROPY = "cross-entropy, PyTorch", "cross-entropy, plain JAX, jitted"


def our_name(library: str, variant: str) -> str:
    """Return the name of our contender for a library and a variant."""
    return f"loopless, {library}" + ("" if variant == "fixed" else f', "{variant}"')


Form = Callable[..., Any]  # form(student, critic, gold, k) → loss, and whatever else it gives


def torch_call(case: Losses, variant: str, form: Form) -> Call:
    """Return a call of a form and its backward pass, in eager PyTorch."""
    student, critic, gold = map(torch.from_numpy, case.arrays)
    student = student.clone().requires_grad_()

    def run() -> Any:
        student.grad = None
        loss, _ = form(student, critic, gold, k=case.top_k)
        loss.backward()
        return loss

    def read(loss: Any) -> losses.Answered:
        assert student.grad is not None
        return losses.Answered(variant, loss.item(), student.grad.numpy().copy())

    return Call(run, read)


def jax_call(case: Losses, variant: str, form: Form) -> Call:
    """Return a call of a form and its gradient, as one JAX program."""
    student, critic, gold = case.arrays
    arrays = jnp.asarray(student), jnp.asarray(critic), jnp.asarray(gold.astype(np.int32))
    program = jax.jit(jax.value_and_grad(partial(form, k=case.top_k), has_aux=True))

    def read(output: Any) -> losses.Answered:
        (loss, _), gradient = output
        return losses.Answered(variant, float(loss), np.asarray(gradient))

    return Call(lambda: jax.block_until_ready(program(*arrays)), read)


def our_loss(student: Any, critic: Any, gold: Any, k: int, variant: str = "fixed") -> Any:
    return ll.avatarl_loss(student, critic, gold, top_k=k, variant=variant)


def entropy_in_torch(student: Any, critic: Any, gold: Any, k: int) -> Any:
    return torch.nn.functional.cross_entropy(student, gold), ()


def entropy_in_jax(student: Any, critic: Any, gold: Any, k: int) -> Any:
    logs = jnp.take_along_axis(jax.nn.log_softmax(student), gold[:, None], -1)
    return -logs.mean(), ()


def full_in_jax(student: Any, critic: Any, gold: Any, k: int) -> Any:
    """Return the loss "full" as an expert would first write it: fixed width, duplicates masked."""
    m: Any = METHOD
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


def _contender(
    name: str, role: Role, library: str, variant: str, form: Form, claim: str = "", note: str = ""
) -> Contender:
    call = jax_call if library == "jax" else torch_call
    prepare = partial(call, variant=variant, form=form)
    owner = "loopless" if role == "ours" else library
    return Contender(name, owner, role, prepare, losses.TOLERANCE, note, claim)


OURS = tuple(
    _contender(
        our_name(shown, variant), "ours", library, variant, partial(our_loss, variant=variant)
    )
    for shown, library in (("JAX", "jax"), ("PyTorch", "torch"))
    for variant in losses.VARIANTS
)
IN_TORCH, IN_TORCH_ORIGINAL = OURS[4], OURS[5]
ORIGINAL = _contender(LOOPED, "reference", "torch", "original", looped)
FIRST = _contender(SUBSET, "reference", "torch", "subset", partial(vectorised, full=False))
TODAY = _contender(FULL, "reference", "torch", "full", partial(vectorised, full=True))
OTHERS = (
    ORIGINAL,
    FIRST,
    TODAY,
    _contender(PLAIN_JAX, "yardstick", "jax", "full", full_in_jax),
    _contender(TORCH_ENTROPY, "yardstick", "torch", CROSS_ENTROPY, entropy_in_torch),
    _contender(JAX_ENTROPY, "yardstick", "jax", CROSS_ENTROPY, entropy_in_jax),
)
CONTENDERS = (*OURS, *OTHERS)


THE_NOTE = "the note: sorted duplicates, softmax over the actions"
ON_ACTIONS = "after it: the critic's softmax over the actions, too"
FULL_AGAIN = "after it: the student's softmax over the vocabulary again"
MASKED_FORM = "a fork: that, with a fixed width and duplicates masked"


def on_actions(student: Any, critic: Any, gold: Any, k: int, method: Method = METHOD) -> Any:
    """Return the loss with nothing computed over the vocabulary but the two top-k."""
    with torch.no_grad():
        actions, present, n = distinct(student, critic, gold, k, 2 * k + 1)
        mentor = critic.gather(1, actions).masked_fill(~present, -1e10).softmax(-1)
        rewards = _rewards_of(mentor, actions == gold[:, None], present, n, method)
    tau = 1 + method.entropy_coefficient
    inside = (student.gather(1, actions) / tau).masked_fill(~present, -1e10)
    return (-(rewards * inside.log_softmax(-1) * present).sum(-1) / (n + TINY)).mean(), ()


def masked(student: Any, critic: Any, gold: Any, k: int, method: Method = METHOD) -> Any:
    """Return the loss from 2k + 1 places, filled or not: shapes are fixed, nothing is read back."""
    with torch.no_grad():
        tops = student.topk(k).indices, critic.topk(k).indices
        actions = torch.cat([gold[:, None], *tops], 1)
        same = actions[:, :, None] == actions[:, None, :]
        present = ~same.tril(-1).any(-1)
        n = present.sum(1)
        mentor = critic.softmax(-1).gather(1, actions)
        rewards = _rewards_of(mentor, actions == gold[:, None], present, n, method)
    tau = 1 + method.entropy_coefficient
    logs = (student / tau).log_softmax(-1).gather(1, actions)
    return (-(rewards * logs).sum(-1) / (n + TINY)).mean(), ()


def _rewards_of(mentor: Any, is_gold: Any, present: Any, n: Any, method: Method) -> Any:
    share = method.label_smoothing / (n - 1).clamp(min=1)
    reality = torch.where(is_gold, 1 - method.label_smoothing, share[:, None])
    u = reality**method.reality_weight * mentor**method.critic_weight
    return rewarded(u, present, n, method)


PROPOSALS = tuple(
    _contender(name, "proposal", "torch", "original", form, claim, note)
    for name, form, claim, note in (
        (THE_NOTE, partial(vectorised, full=False),
         "the same loss 5 to 10 × as fast, 30 × fewer launches",
         "another loss: tokens outside of the actions have no gradient, and β is a temperature"),
        (ON_ACTIONS, on_actions,
         "a softmax about 1,524 × as fast",
         "that is 50304/33, counted; rewards change too, for their threshold is not normalised"),
        (FULL_AGAIN, partial(vectorised, full=True),
         "the gradient of every token is back",
         "β is still a temperature, which sharpens where the entropy bonus flattened"),
        (MASKED_FORM, masked,
         "nothing is read back, and it compiles",
         "the loss of the last one; ours has the fixed width, too"),
    )
)  # fmt: skip
PROPOSAL_CONTENDERS = (ORIGINAL, *PROPOSALS, IN_TORCH_ORIGINAL)
