"""The losses to compare AvataRL with: plain and soft cross-entropy, and distillation.

They take the same arrays and masks as `avatarl_loss`, and their gradients are made in the same way,
so that a difference in results comes from the objective. Loop twins: `reference.avatarl`.
"""

import math
from collections.abc import Callable
from typing import Any

from loopless.arrays import logits as engine
from loopless.arrays.dispatch import eager_torch
from loopless.kernels.avatarl.arguments import Call
from loopless.kernels.avatarl.loss import averaging, logs_of, program

# The vocabulary up to which PyTorch's own functions are faster than ours, as measured on the CPU.
PYTORCH_UP_TO = 16_384


def cross_entropy(logits, targets, *, mask=None) -> Any:
    """Return the mean of −log π(target) over targets [...], π being the softmax of logits [..., V].

    Positions where `mask` is false are out, whatever they hold; the mean of none is 0. The loss is
    float32, or float64 if the logits are; its gradient goes to the logits, once.

    Loop twin: `reference.avatarl.soft_cross_entropy` with one token of weight 1.
    """
    call = Call("cross_entropy", {"logits": logits}, mask, targets)
    call.refuse()
    loss = _by_pytorch(_pytorch_cross_entropy, call, logits, call.targets)
    if loss is not None:
        return loss
    tokens = call.targets[..., None]
    return program(call.library, _soft, 1)(call.refusals, logits, tokens, None, call.mask)


def soft_cross_entropy(logits, tokens, weights, *, mask=None) -> Any:
    """Return the mean of −Σ_i w_i log π(a_i) over the tokens a [..., w] of each position.

    With the actions and the rewards of `avatarl_actions` and `avatarl_rewards` this is the
    cross-entropy to AvataRL's own target; a token of weight 0 is out. Weights are taken as they
    are, not normalized, and have no gradient.

    Loop twin: `reference.avatarl.soft_cross_entropy`.
    """
    call = Call("soft_cross_entropy", {"logits": logits}, mask)
    checked = call.tokens("tokens", tokens)
    call.beside("weights", weights, tokens, "tokens", "floats")
    call.refuse()
    return program(call.library, _soft, 1)(call.refusals, logits, checked, weights, call.mask)


def distillation(student_logits, critic_logits, *, temperature=1.0, mask=None) -> Any:
    """Return the mean of τ² KL(softmax(c/τ) ‖ softmax(z/τ)), over the whole vocabulary.

    The factor τ² keeps gradients of one size whatever τ is. They go to the student's logits z only.

    Hinton et al. 2015. Loop twin: `reference.avatarl.distillation`.
    """
    logits = {"student_logits": student_logits, "critic_logits": critic_logits}
    call = Call("distillation", logits, mask)
    tau = call.number("temperature", temperature, 0, open_ends="low")
    call.refuse()
    arrays = student_logits, critic_logits
    loss = _by_pytorch(_pytorch_distillation, call, *arrays, tau)
    if loss is not None:
        return loss
    arrays = *arrays, call.mask
    return program(call.library, _distillation, 1)(call.refusals, *arrays, tau)


def _by_pytorch(compute: Callable, call: Call, logits, other, *options) -> Any:
    """Return a loss by PyTorch's own functions where they are faster, else None.

    They are at small vocabularies, for tensors on the CPU. A loss that is not finite is left to
    ours, which says which row is at fault; so are masks.
    """
    if call.mask is not None or logits.shape[-1] > PYTORCH_UP_TO or eager_torch(logits) is None:
        return None
    is_plain = logits.is_cpu and logits.dtype == call.wide and logits.layout == other.layout
    if not is_plain or (other.dtype.is_floating_point and other.dtype != logits.dtype):
        return None
    loss = compute(call.library.xp.nn.functional, logits, other, *options)
    return loss if math.isfinite(loss.item()) else None


def _pytorch_cross_entropy(functional, logits, targets):
    return functional.cross_entropy(logits.flatten(0, -2), targets.flatten().long())


def _pytorch_distillation(functional, student, critic, tau):
    student, critic = student.flatten(0, -2), critic.detach().flatten(0, -2)
    if tau != 1:
        student, critic = student / tau, critic / tau
    log_pi, log_q = functional.log_softmax(student, -1), functional.log_softmax(critic, -1)
    divergence = functional.kl_div(log_pi, log_q, log_target=True, reduction="batchmean")
    return divergence if tau == 1 else divergence * (tau * tau)


def _soft(library, refusals, logits, tokens, weights, mask):
    xp = library.xp
    z = library.constant(logits)
    survey = engine.survey(library, z, 1, 1.0, 0.0, mask, refusals.student)
    dtype = survey.peak.dtype
    logs = logs_of(library, z, tokens, survey, 1.0, dtype)
    if weights is None:
        weights = xp.ones_like(logs)
    else:
        weights = library.cast(xp.moveaxis(library.constant(weights), -1, 0), dtype)
    share, mean = averaging(library, mask, survey.peak)
    slope = engine.Slope(
        survey.peak,
        survey.log_total,
        share(weights.sum(0)),
        xp.zeros_like(survey.peak),
        tokens,
        xp.moveaxis(share(weights), 0, -1),
        mask,
        1.0,
    )
    loss = mean(-xp.where(weights == 0, 0, weights * logs).sum(0))
    return engine.with_slope(library, loss, logits, slope)


def _distillation(library, refusals, student, critic, mask, tau):
    z, critic = library.constant(student), library.constant(critic)
    of_student = engine.survey(library, z, 1, 1 / tau, 0.0, mask, refusals.student)
    of_critic = engine.survey(library, critic, 1, 1 / tau, 0.0, mask, refusals.critic)
    share, mean = averaging(library, mask, of_student.peak)
    slope = engine.Difference(
        of_student.peak,
        of_student.log_total,
        critic,
        of_critic.peak,
        of_critic.log_total,
        share(library.xp.zeros_like(of_student.peak) + tau),
        mask,
        1 / tau,
    )
    loss = mean(tau * tau * engine.divergence(library, z, slope))
    return engine.with_slope(library, loss, student, slope)
