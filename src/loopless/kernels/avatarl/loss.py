"""AvataRL: a language model pushed towards the product of two experts, at a few tokens a position.

Logits are [..., V], gold tokens and masks [...], of NumPy, PyTorch or JAX, on any device; half
precision is computed in float32. The student's logits alone have a gradient, in closed form.
Nothing is read back from a device and no further array of the logits' size is made beside their
gradient. On the CPU all of the loss is one compiled pass, `avatarl_whole`, by way of `avatarl_host`
or `avatarl_jax`; elsewhere what goes over the vocabulary stands in `arrays.vocabulary`, in chunks.

Where values are in plain sight (NumPy arrays, and PyTorch tensors on the CPU outside of traces)
logits that are no distribution and tokens out of range are refused; elsewhere they give NaN, or
PyTorch's own error. Loop twins: `reference.avatarl`. Tests: `tests/kernels/test_avatarl_*.py`.
"""

import math
from functools import partial
from typing import Any

import numpy as np

from loopless.arrays import logits as vocabulary
from loopless.arrays.library import NUMPY, compiled_once
from loopless.arrays.scan.recipe import row_numbers
from loopless.kernels.avatarl import host as avatarl_host
from loopless.kernels.avatarl import rewards as targets_of
from loopless.kernels.avatarl.arguments import Call
from loopless.kernels.avatarl.positions import FLOOR, judged
from loopless.kernels.avatarl.rewards import Numbers


def avatarl_loss(
    student_logits,
    critic_logits,
    targets,
    *,
    top_k,
    variant="fixed",
    reality_weight=0.7,
    critic_weight=0.3,
    label_smoothing=0.1,
    reward_scale=100.0,
    reward_clamp=1.5,
    entropy_coefficient=0.01,
    mask=None,
) -> Any:
    """The loss of the student's logits towards what reality and a critic make of each position.

        𝒜     = {gold} ∪ top-k of the student ∪ top-k of the critic         n = |𝒜| ≤ 2k + 1
        r     = 1 − ε on gold, ε/(n − 1) on the others of 𝒜                 reality
        m     = softmax of the critic's logits                              mentor
        u_i   = r_i^w_r · m_i^w_m                                           i ∈ 𝒜

    "fixed", the default: p = u/Σu; those with p_i ≥ 1/n are kept and gold always, gold's p raised
    to the largest; T is what is kept over its sum; π = softmax over the whole vocabulary.

        L     = −Σ_𝒜 T_i log π_i − β H(π)

    The published versions: R = rewards scaled by `reward_scale`, of p_i > Σu/(n + 1e-8) only,
    brought down to `reward_clamp` in proportion. τ = 1 + β.

        "original"    L = −Σ_𝒜 R_i log(π_i + 1e-10)/(n + 1e-8) − β H(π)     H with that floor too
        "subset"      L = −Σ_𝒜 R_i log q_i/(n + 1e-8)                       q = softmax of z/τ on 𝒜
        "full"        L = −Σ_𝒜 R_i log π_i/(n + 1e-8)                       π = softmax of z/τ

    The loss is the mean over positions where `mask` is true, 0 if there are none; masked positions
    may hold anything. Both weights are numbers or arrays that spread over [...]. With
    critic_weight="confidence" w_m is 1 − H/log n of the mentor renormalised on 𝒜, and w_r is
    1 − w_m, whatever `reality_weight` is. `top_k` above V means V. Of equal logits the first is
    taken, but on PyTorch outside plain eager execution on the CPU any of them. Rewards, critic and
    weights are constants: the gradient goes to the student's logits, once.

    Returns (loss, stats): means over the same positions of "gold_reward" (R or T of gold),
    "gold_rewarded" (share where it is above 0), "kept" (actions with a reward), "actions" (n), "kl"
    (of the normalised rewards from π) and "entropy" (of π; in "subset" π is that of "full"). All
    in float32, or float64 if the logits are.

    Loop twin: `reference.avatarl.avatarl_loss`.
    """
    logits = {"student_logits": student_logits, "critic_logits": critic_logits}
    call = Call("avatarl_loss", logits, mask, targets)
    k = call.top_k(top_k)
    call.variant(variant)
    beta = call.number("entropy_coefficient", entropy_coefficient, 0)
    numbers = call.numbers(
        reality_weight, critic_weight, label_smoothing, reward_scale, reward_clamp
    )
    arrays = student_logits, critic_logits, call.targets, call.counted
    return program(call.library, _loss, 3)(call.refusals, variant, k, *arrays, numbers, beta)


def avatarl_actions(student_logits, critic_logits, targets, *, top_k, mask=None) -> Any:
    """The action set of each position: gold, the student's best k and the critic's best k.

    Returns (actions, present), both [..., 2k + 1]: tokens in this order, and whether the token
    stands there for the first time. What is not present is a token all the same, and safe to look
    up. Masked positions hold anything.

    Loop twin: `reference.avatarl.avatarl_actions`, dense.
    """
    logits = {"student_logits": student_logits, "critic_logits": critic_logits}
    call = Call("avatarl_actions", logits, mask, targets)
    k = call.top_k(top_k)
    call.refuse()
    arrays = student_logits, critic_logits, call.targets, call.counted
    return program(call.library, _actions, 2)(call.refusals, k, *arrays)


def avatarl_rewards(
    critic_logits,
    actions,
    present,
    *,
    variant="fixed",
    reality_weight=0.7,
    critic_weight=0.3,
    label_smoothing=0.1,
    reward_scale=100.0,
    reward_clamp=1.5,
    mask=None,
) -> Any:
    """What each action of `avatarl_actions` is worth, [..., 2k + 1], 0 where not present.

    The R of `avatarl_loss`, and in "fixed" the target T, whose sum is 1. Any other action set does
    as well, if gold is its first. Without gradient.

    Loop twin: `reference.avatarl.avatarl_rewards`, dense.
    """
    call = Call("avatarl_rewards", {"critic_logits": critic_logits}, mask)
    call.variant(variant)
    tokens = call.tokens("actions", actions)
    flags = call.beside("present", present, actions, "actions", "flags")
    numbers = call.numbers(
        reality_weight, critic_weight, label_smoothing, reward_scale, reward_clamp
    )
    arrays = critic_logits, tokens, flags, call.counted
    return program(call.library, _rewards, 2)(call.refusals, variant, *arrays, numbers)


def _rewards(library, refusals, variant, critic, actions, present, counted, numbers):
    critic = library.constant(critic)
    seen = vocabulary.survey(library, critic, 1, 1.0, 0.0, counted, refusals.critic)
    xp = library.xp
    log_mentor = logs_of(library, critic, actions, seen, 1.0, seen.peak.dtype)
    present = xp.moveaxis(present, -1, 0)
    is_gold = first_of(library, present)
    found = targets_of.rewards(library, variant, log_mentor, present, is_gold, numbers)
    return xp.moveaxis(found if counted is None else xp.where(counted, found, 0), 0, -1)


def _actions(library, refusals, k, student, critic, gold, counted):
    student, critic = library.constant(student), library.constant(critic)
    of_student = vocabulary.survey(library, student, k, 1.0, 0.0, counted, refusals.student)
    of_critic = vocabulary.survey(library, critic, k, 1.0, 0.0, counted, refusals.critic)
    actions, present = targets_of.actions(library, gold, of_student.top, of_critic.top)
    moveaxis = library.xp.moveaxis
    return moveaxis(actions, 0, -1), moveaxis(present, 0, -1)


def _loss(library, refusals, variant, k, student, critic, gold, counted, numbers: Numbers, beta):
    arrays = library.constant(student), library.constant(critic), gold, counted
    found = avatarl_host.loss(library, refusals, variant, k, student, arrays, numbers, beta)
    if found is not None:
        return found
    by_arrays = partial(_by_arrays, library, refusals, variant, k)
    fields = student, critic, gold, counted, numbers, beta
    if library.name == "jax":
        from loopless.kernels.avatarl import xla as avatarl_jax

        return avatarl_jax.loss(variant, k, by_arrays, *fields)
    return by_arrays(*fields)


def _by_arrays(library, refusals, variant, k, student, critic, gold, counted, numbers, beta):
    """The loss in the library's own operations."""
    xp = library.xp
    wide = library.wide(library.promote(student.dtype, critic.dtype))
    z, critic = library.constant(student), library.constant(critic)
    floor = FLOOR if variant == "original" else 0.0
    rate = 1 / (1 + beta) if variant in ("subset", "full") else 1.0
    of_student = vocabulary.survey(library, z, k, rate, floor, counted, refusals.student)
    of_critic = vocabulary.survey(library, critic, k, 1.0, 0.0, counted, refusals.critic)
    actions, present = targets_of.actions(library, gold, of_student.top, of_critic.top)
    tokens = xp.moveaxis(actions, 0, -1)
    is_gold = first_of(library, present)
    log_mentor = logs_of(library, critic, tokens, of_critic, 1.0, wide)
    found = judged(
        library,
        variant,
        targets_of.rewards(library, variant, log_mentor, present, is_gold, numbers),
        logs_of(library, z, tokens, of_student, rate, wide),
        present,
        is_gold,
        library.cast(of_student.entropy, wide),
        library.cast(of_student.mean, wide),
        rate,
        beta,
    )
    each, mean = averaging(library, counted, found.losses)
    dtype = of_student.peak.dtype
    slope = vocabulary.Slope(
        of_student.peak,
        of_student.log_total,
        library.cast(each(found.alpha), dtype),
        library.cast(each(found.bonus + xp.zeros_like(found.alpha)), dtype),
        tokens,
        library.cast(xp.moveaxis(each(found.less), 0, -1), dtype),
        counted,
        rate,
    )
    stats = {name: mean(x) for name, x in found.stats.items()}
    return vocabulary.sloped(library, mean(found.losses), student, slope, floor), stats


def first_of(library, x):
    """Whether an entry of x [w, ...] is its first: gold, among actions."""
    return row_numbers(library, x, 0, x.shape[0]) == 0


def program(library, function, static: int):
    """`function` of this library; the arguments up to number `static` are no arrays."""
    once = partial(compiled_once(library, function, tuple(range(static + 1))), library)
    return np.errstate(all="ignore")(once) if library is NUMPY else once  # masked junk may warn


def averaging(library, counted, like):
    """How each counted position's part in a mean is written, and the mean: 0 where not counted."""
    xp = library.xp
    if counted is None:
        count = max(math.prod(like.shape), 1)
        return (lambda x: x / count), (lambda x: x.sum() / count)
    count = targets_of.library_max(library, library.cast(counted.sum(), like.dtype), 1.0)

    def kept(x):
        return xp.where(counted, x, 0)

    return (lambda x: kept(x) / count), (lambda x: kept(x).sum() / count)


def logs_of(library, logits, tokens, seen, rate, dtype):
    """log π [w, ...] of tokens [..., w], the rows of logits being surveyed."""
    picked = library.xp.moveaxis(vocabulary.picked(library, logits, tokens, dtype), -1, 0)
    return (picked - seen.peak) * rate - seen.log_total
