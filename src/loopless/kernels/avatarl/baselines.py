"""What AvataRL is to be compared with, honestly: plain and soft cross-entropy, and distillation.

The same arrays, masks, chunks and gradients as `kernels.avatarl`, so that a difference in results
is one of the objective. Loop twins: `reference.avatarl`. Tests:
`tests/kernels/test_avatarl_baselines.py`.
"""

from typing import Any

from loopless.arrays import logits as vocabulary
from loopless.kernels.avatarl.arguments import Call
from loopless.kernels.avatarl.loss import averaging, logs_of, program


def cross_entropy(logits, targets, *, mask=None) -> Any:
    """The mean of −log π(target), π being the softmax of logits [..., V] and targets [...].

    Positions where `mask` is false are out, whatever they hold; the mean of none is 0. The loss is
    float32, or float64 if the logits are; its gradient goes to the logits, once.

    Loop twin: `reference.avatarl.soft_cross_entropy` with one token of weight 1.
    """
    call = Call("cross_entropy", {"logits": logits}, mask, targets)
    call.refuse()
    tokens = call.targets[..., None]
    return program(call.library, _soft, 1)(call.refusals, logits, tokens, None, call.counted)


def soft_cross_entropy(logits, tokens, weights, *, mask=None) -> Any:
    """The mean of −Σ_i w_i log π(a_i) over the tokens a [..., w] of each position.

    With the actions and the rewards of `avatarl_actions` and `avatarl_rewards` this is the
    cross-entropy to AvataRL's own target; a token of weight 0 is out. Weights are taken as they
    are, not normalised, and have no gradient.

    Loop twin: `reference.avatarl.soft_cross_entropy`.
    """
    call = Call("soft_cross_entropy", {"logits": logits}, mask)
    found = call.tokens("tokens", tokens)
    call.beside("weights", weights, tokens, "tokens", "floats")
    call.refuse()
    return program(call.library, _soft, 1)(call.refusals, logits, found, weights, call.counted)


def distillation(student_logits, critic_logits, *, temperature=1.0, mask=None) -> Any:
    """The mean of τ² KL(softmax(c/τ) ‖ softmax(z/τ)), over the whole vocabulary.

    The factor keeps gradients of one size whatever τ is. They go to the student's logits z alone.

    Hinton et al. 2015. Loop twin: `reference.avatarl.distillation`.
    """
    logits = {"student_logits": student_logits, "critic_logits": critic_logits}
    call = Call("distillation", logits, mask)
    tau = call.number("temperature", temperature, 0, open_ends="low")
    call.refuse()
    arrays = student_logits, critic_logits, call.counted
    return program(call.library, _distilled, 1)(call.refusals, *arrays, tau)


def _soft(library, refusals, logits, tokens, weights, counted):
    xp = library.xp
    z = library.constant(logits)
    seen = vocabulary.survey(library, z, 1, 1.0, 0.0, counted, refusals.student)
    wide = seen.peak.dtype
    logs = logs_of(library, z, tokens, seen, 1.0, wide)
    if weights is None:
        weights = xp.ones_like(logs)
    else:
        weights = library.cast(xp.moveaxis(library.constant(weights), -1, 0), wide)
    each, mean = averaging(library, counted, seen.peak)
    slope = vocabulary.Slope(
        seen.peak,
        seen.log_total,
        each(weights.sum(0)),
        xp.zeros_like(seen.peak),
        tokens,
        xp.moveaxis(each(weights), 0, -1),
        counted,
        1.0,
    )
    loss = mean(-xp.where(weights == 0, 0, weights * logs).sum(0))
    return vocabulary.sloped(library, loss, logits, slope)


def _distilled(library, refusals, student, critic, counted, tau):
    z, critic = library.constant(student), library.constant(critic)
    of_student = vocabulary.survey(library, z, 1, 1 / tau, 0.0, counted, refusals.student)
    of_critic = vocabulary.survey(library, critic, 1, 1 / tau, 0.0, counted, refusals.critic)
    each, mean = averaging(library, counted, of_student.peak)
    slope = vocabulary.Apart(
        of_student.peak,
        of_student.log_total,
        critic,
        of_critic.peak,
        of_critic.log_total,
        each(library.xp.zeros_like(of_student.peak) + tau),
        counted,
        1 / tau,
    )
    loss = mean(tau * tau * vocabulary.divergence(library, z, slope))
    return vocabulary.sloped(library, loss, student, slope)
