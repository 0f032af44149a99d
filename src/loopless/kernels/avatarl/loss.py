"""AvataRL: a language model pushed towards the product of two experts, at a few tokens a position.

Logits are [..., V], gold tokens and masks [...], of NumPy, PyTorch or JAX, on any device; half
precision is computed in float32. The student's logits alone have a gradient, in closed form.
Nothing is read back from a device, and no further array of the logits' size is made beside their
gradient.

The mathematics stands in `recipe.py`. On the CPU all of the loss is one call of `compiled.py`: from
here for NumPy arrays and for PyTorch tensors in eager execution, from `xla.py` for JAX. Elsewhere
the recipe runs on whole arrays, and `arrays.logits` does what goes over the vocabulary, in chunks.

Logits that are no distribution and tokens out of range are refused on the CPU, outside of traces;
elsewhere they give NaN, or PyTorch's own error. Loop twins: `reference.avatarl`.
"""

import math
from functools import partial
from typing import Any

import numpy as np

from loopless.arrays import logits as engine
from loopless.arrays.dispatch import empty, on_host
from loopless.arrays.library import NUMPY, compiled_once
from loopless.arrays.logits.numpy import run_over_rows
from loopless.arrays.scan.recipe import row_numbers
from loopless.kernels.avatarl import recipe
from loopless.kernels.avatarl.arguments import Call
from loopless.kernels.avatarl.recipe import FLOOR, STATS, VARIANTS, Numbers


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
    """Return the loss of the student's logits towards a target made of reality and a critic.

        𝒜     = {gold} ∪ top-k of the student ∪ top-k of the critic         n = |𝒜| ≤ 2k + 1
        r     = 1 − ε on gold, ε/(n − 1) on the others of 𝒜                 reality
        m     = softmax of the critic's logits                              mentor
        u_i   = r_i^w_r · m_i^w_m                                           i ∈ 𝒜

    "fixed", the default: p = u/Σu. Actions with p_i ≥ 1/n are kept, and gold always, its p raised
    to the largest. T is the kept p over their sum; π = softmax over the whole vocabulary.

        L     = −Σ_𝒜 T_i log π_i − β H(π)

    The published versions: R_i = `reward_scale` · p_i where p_i > Σu/(n + 1e-8), else 0; if the
    largest exceeds `reward_clamp`, all are scaled down until it does not. τ = 1 + β.

        "original"    L = −Σ_𝒜 R_i log(π_i + 1e-10)/(n + 1e-8) − β H(π)     H with that floor too
        "subset"      L = −Σ_𝒜 R_i log q_i/(n + 1e-8)                       q = softmax of z/τ on 𝒜
        "full"        L = −Σ_𝒜 R_i log π_i/(n + 1e-8)                       π = softmax of z/τ

    The loss is the mean over positions where `mask` is true, 0 if there are none; masked positions
    may hold anything. Both weights are numbers or arrays that spread over [...]. With
    critic_weight="confidence" w_m is 1 − H/log n of the mentor renormalized on 𝒜, and w_r is
    1 − w_m, whatever `reality_weight` is. `top_k` above V means V. Of equal logits the first is
    taken, but on PyTorch outside plain eager execution on the CPU any of them. Rewards, critic and
    weights are constants: the gradient goes to the student's logits, once.

    Returns (loss, stats): means over the same positions of "gold_reward" (R or T of gold),
    "gold_rewarded" (share where it is above 0), "kept" (actions with a reward), "actions" (n), "kl"
    (of the normalized rewards from π), "entropy" (of π; in "subset" π is that of "full"),
    "reward_mean", "reward_max" and "reward_min" (over the actions of a position) and
    "gold_cross_entropy" (−log π of gold). All in float32, or float64 if the logits are.

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
    arrays = student_logits, critic_logits, call.targets, call.mask
    views = on_host(call.library, *arrays, *numbers)
    if views is not None:
        return _compiled_loss(call, variant, k, student_logits, views, beta)
    numbers = call.typed(numbers)
    return program(call.library, _loss, 3)(call.refusals, variant, k, *arrays, numbers, beta)


def avatarl_actions(student_logits, critic_logits, targets, *, top_k, mask=None) -> Any:
    """Return the action set of each position: gold, the student's best k and the critic's best k.

    Returns (actions, present), both [..., 2k + 1]: tokens in this order, and whether the token
    stands there for the first time. An entry that is not present is still a token, and safe to
    look up. Masked positions hold anything.

    Loop twin: `reference.avatarl.avatarl_actions`, dense.
    """
    logits = {"student_logits": student_logits, "critic_logits": critic_logits}
    call = Call("avatarl_actions", logits, mask, targets)
    k = call.top_k(top_k)
    call.refuse()
    arrays = student_logits, critic_logits, call.targets, call.mask
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
    """Return the reward of each action of `avatarl_actions`, [..., 2k + 1], 0 where not present.

    It is the R of `avatarl_loss`, or in "fixed" the target T, whose sum is 1. Any other action set
    does as well, if gold is its first. The rewards have no gradient.

    Loop twin: `reference.avatarl.avatarl_rewards`, dense.
    """
    call = Call("avatarl_rewards", {"critic_logits": critic_logits}, mask)
    call.variant(variant)
    tokens = call.tokens("actions", actions)
    flags = call.beside("present", present, actions, "actions", "flags")
    numbers = call.numbers(
        reality_weight, critic_weight, label_smoothing, reward_scale, reward_clamp
    )
    arrays = critic_logits, tokens, flags, call.mask
    numbers = call.typed(numbers)
    return program(call.library, _rewards, 2)(call.refusals, variant, *arrays, numbers)


def _compiled_loss(call: Call, variant: str, k: int, student, views: list, beta) -> Any:
    """Return the loss of arrays that NumPy can look at, by one compiled call.

    `views` are the logits of student and critic, gold, the mask, and the method's numbers;
    `student` is the caller's own array, which gets the gradient.
    """
    from loopless.kernels.avatarl.compiled import evaluate

    z, critic, gold, mask, *numbers = views
    library, shape, size = call.library, gold.shape, z.shape[-1]
    dtype = np.promote_types(NUMPY.wide(z.dtype), NUMPY.wide(critic.dtype))
    counted = np.ones(gold.size, bool) if mask is None else np.ascontiguousarray(mask).ravel()
    positions = max(int(counted.sum()), 1)
    table = _numbers_by_position([*numbers, beta, 1.0 / positions], shape, dtype)
    sheet = np.empty((gold.size, 1 + len(STATS)), dtype)
    needs_gradient = library is not NUMPY and student.requires_grad and library.xp.is_grad_enabled()
    gradient = empty((gold.size, size if needs_gradient else 0), z.dtype)
    is_confident = Numbers._make(numbers).critic_weight is None
    kernel = partial(evaluate, VARIANTS.index(variant), is_confident, k, size)
    fields = np.ascontiguousarray(gold, np.int32).ravel(), counted, table, sheet
    unsound = run_over_rows(kernel, z, critic, fields, gradient, dtype)
    if unsound[0] >= 0:
        raise call.refusals.student(np.unravel_index(unsound[0], shape))
    if unsound[1] >= 0:
        raise call.refusals.critic(np.unravel_index(unsound[1], shape))
    # As a product, which is many times faster than a sum along the long axis.
    means = (np.ones(gold.size) @ sheet.astype(np.float64) / positions).astype(dtype)
    if library is NUMPY:
        return means[0], dict(zip(STATS, means[1:], strict=True))
    loss, *stats = library.xp.from_numpy(means)
    if needs_gradient:
        from loopless.arrays.logits.torch import with_gradient

        loss = with_gradient(loss, student, library.xp.from_numpy(gradient.reshape(z.shape)))
    return loss, dict(zip(STATS, stats, strict=True))


def _numbers_by_position(fields: list, shape: tuple[int, ...], dtype) -> np.ndarray:
    """Return the kernel's numbers for each position, [N, 7]; weights that confidence sets are 0."""
    fields = [0.0 if x is None else x for x in fields]
    table = np.empty((math.prod(shape), len(fields)), dtype)
    if max(map(np.ndim, fields)) == 0:
        table[:] = fields
    else:
        columns = [np.broadcast_to(x, shape) for x in fields]
        table[:] = np.stack(columns, -1).reshape(table.shape)
    return table


def _loss(library, refusals, variant, k, *fields):
    by_arrays = partial(_loss_by_arrays, library, refusals, variant, k)
    if library.name == "jax":
        from loopless.kernels.avatarl import xla

        return xla.loss(variant, k, by_arrays, *fields)
    return by_arrays(*fields)


def _loss_by_arrays(library, refusals, variant, k, student, critic, gold, mask, numbers, beta):
    """Return the loss by the library's own operations."""
    xp = library.xp
    dtype = library.wide(library.promote(student.dtype, critic.dtype))
    z, critic = library.constant(student), library.constant(critic)
    floor = FLOOR if variant == "original" else 0.0
    rate = 1 / (1 + beta) if variant in ("subset", "full") else 1.0
    of_student = engine.survey(library, z, k, rate, floor, mask, refusals.student)
    of_critic = engine.survey(library, critic, k, 1.0, 0.0, mask, refusals.critic)
    actions, present = recipe.actions(library, gold, of_student.top, of_critic.top)
    tokens = xp.moveaxis(actions, 0, -1)
    is_gold = first_of(library, present)
    log_mentor = logs_of(library, critic, tokens, of_critic, 1.0, dtype)
    result = recipe.evaluate(
        library,
        variant,
        recipe.rewards(library, variant, log_mentor, present, is_gold, numbers),
        logs_of(library, z, tokens, of_student, rate, dtype),
        present,
        is_gold,
        library.cast(of_student.entropy, dtype),
        library.cast(of_student.mean, dtype),
        rate,
        beta,
    )
    share, mean = averaging(library, mask, result.losses)
    narrow = of_student.peak.dtype
    slope = engine.Slope(
        of_student.peak,
        of_student.log_total,
        library.cast(share(result.alpha), narrow),
        library.cast(share(result.bonus + xp.zeros_like(result.alpha)), narrow),
        tokens,
        library.cast(xp.moveaxis(share(result.less), 0, -1), narrow),
        mask,
        rate,
    )
    stats = {name: mean(x) for name, x in result.stats.items()}
    return engine.with_slope(library, mean(result.losses), student, slope, floor), stats


def _actions(library, refusals, k, student, critic, gold, mask):
    student, critic = library.constant(student), library.constant(critic)
    of_student = engine.survey(library, student, k, 1.0, 0.0, mask, refusals.student)
    of_critic = engine.survey(library, critic, k, 1.0, 0.0, mask, refusals.critic)
    actions, present = recipe.actions(library, gold, of_student.top, of_critic.top)
    moveaxis = library.xp.moveaxis
    return moveaxis(actions, 0, -1), moveaxis(present, 0, -1)


def _rewards(library, refusals, variant, critic, actions, present, mask, numbers):
    critic = library.constant(critic)
    survey = engine.survey(library, critic, 1, 1.0, 0.0, mask, refusals.critic)
    xp = library.xp
    log_mentor = logs_of(library, critic, actions, survey, 1.0, survey.peak.dtype)
    present = xp.moveaxis(present, -1, 0)
    is_gold = first_of(library, present)
    rewards = recipe.rewards(library, variant, log_mentor, present, is_gold, numbers)
    if library.name == "jax":  # elsewhere such rows are refused
        rewards = xp.where(xp.isnan(survey.log_total) & present, xp.nan, rewards)
    return xp.moveaxis(rewards if mask is None else xp.where(mask, rewards, 0), 0, -1)


# Functions that the baselines share with the loss.


def program(library, function, static: int):
    """Return `function` of this library, compiled where it has a compiler.

    The first `static` arguments are no arrays.
    """
    once = partial(compiled_once(library, function, tuple(range(static + 1))), library)
    return np.errstate(all="ignore")(once) if library is NUMPY else once  # masked rows may warn


def averaging(library, mask, like):
    """Return two functions of positions: their shares in the mean, x / count, and the mean.

    Both count masked positions as 0.
    """
    xp = library.xp
    if mask is None:
        count = max(math.prod(like.shape), 1)
        return (lambda x: x / count), (lambda x: x.sum() / count)
    count = library.cast(mask.sum(), like.dtype)
    count = xp.where(count < 1, 1, count)

    def unmasked(x):
        return xp.where(mask, x, 0)

    return (lambda x: unmasked(x) / count), (lambda x: unmasked(x).sum() / count)


def first_of(library, x):
    """Return whether an entry of x [w, ...] is the first, which is gold among actions."""
    return row_numbers(library, x, 0, x.shape[0]) == 0


def logs_of(library, logits, tokens, survey, rate, dtype):
    """Return log π [w, ...] of tokens [..., w] of surveyed rows of logits."""
    entries = library.xp.moveaxis(engine.take(library, logits, tokens, dtype), -1, 0)
    return (entries - survey.peak) * rate - survey.log_total
