"""The losses to compare AvataRL with: plain and soft cross-entropy, and distillation.

They take the same arrays and masks as `avatarl_loss`, and their gradients are made in the same way,
so that a difference in results comes from the objective. Loop twins: `reference.avatarl`.
"""

import math
from typing import Any

from loopless.arrays import logits as engine
from loopless.arrays.dispatch import eager_torch
from loopless.kernels.avatarl.arguments import Call
from loopless.kernels.avatarl.loss import averaging, logs_of, program

# The vocabulary up to which PyTorch's own functions are faster than ours, as measured on the CPU.
PYTORCH_UP_TO = 16_384
NO_TOKEN = -(2**63)  # PyTorch must have a number that it ignores


def cross_entropy(logits, targets, *, mask=None) -> Any:
    """Return the mean of −log π(target) over targets [...], π being the softmax of logits [..., V].

    Positions where `mask` is false are out, whatever they hold; the mean of none is 0. The loss is
    float32, or float64 if the logits are; its gradient goes to the logits, once.

    Loop twin: `reference.avatarl.soft_cross_entropy` with one token of weight 1.
    """
    if mask is None and (functional := _plain(logits, targets, tokens=True)) is not None:
        loss = _pytorch_cross_entropy(functional, logits, targets)
        if loss is not None:
            return loss
    call = Call("cross_entropy", {"logits": logits}, mask, targets)
    call.refuse()
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
    if mask is None and isinstance(temperature, float) and 0 < temperature < math.inf:
        functional = _plain(student_logits, critic_logits, tokens=False)
        if functional is not None:
            arrays = student_logits, critic_logits, temperature
            loss = _pytorch_distillation(functional, *arrays)
            if loss is not None:
                return loss
    logits = {"student_logits": student_logits, "critic_logits": critic_logits}
    call = Call("distillation", logits, mask)
    tau = call.number("temperature", temperature, 0, open_ends="low")
    call.refuse()
    arrays = student_logits, critic_logits, call.mask
    return program(call.library, _distillation, 1)(call.refusals, *arrays, tau)


def _plain(logits, other, *, tokens: bool) -> Any:
    """Return PyTorch's functions if they are faster for these arguments than ours, else None.

    They are for small vocabularies, on the CPU. Looked at here is only whether the tensors are
    plain and fit together: all else, and what is wrong, is left to the checks.
    """
    torch = eager_torch(logits)
    if torch is None or other.__class__ is not torch.Tensor:
        return None
    if logits.__class__ is not torch.Tensor and logits.__class__ is not torch.nn.Parameter:
        return None
    shape, dtype = logits.shape, logits.dtype
    if len(shape) < 2 or not 0 < shape[-1] <= PYTORCH_UP_TO or not logits.numel():
        return None
    if dtype is not torch.float32 and dtype is not torch.float64:
        return None
    if other.shape != (shape[:-1] if tokens else shape) or not (logits.is_cpu and other.is_cpu):
        return None
    if other.dtype is not (torch.int64 if tokens else dtype):
        return None
    if logits.layout is not torch.strided or other.layout is not torch.strided:
        return None
    return torch.nn.functional


def _pytorch_cross_entropy(functional, logits, targets) -> Any:
    if logits.ndim > 2:
        logits, targets = logits.flatten(0, -2), targets.flatten()
    try:
        loss = functional.cross_entropy(logits, targets, ignore_index=NO_TOKEN)
    except IndexError:  # a token that does not exist
        return None
    return _if_finite(loss)


def _pytorch_distillation(functional, student, critic, tau) -> Any:
    critic = critic.detach()
    if student.ndim > 2:
        student, critic = student.flatten(0, -2), critic.flatten(0, -2)
    if tau != 1:
        student, critic = student / tau, critic / tau
    log_pi, log_q = student.log_softmax(-1), critic.log_softmax(-1)
    divergence = functional.kl_div(log_pi, log_q, log_target=True, reduction="batchmean")
    return _if_finite(divergence if tau == 1 else divergence * (tau * tau))


def _if_finite(loss) -> Any:
    """Return a finite loss; ours says which row is at fault if it is not."""
    return loss if math.isfinite(loss.item()) else None


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
