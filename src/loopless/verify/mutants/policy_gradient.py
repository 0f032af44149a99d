"""Policy-gradient losses as they go wrong in real code, each with the diagnosis as its docstring.

Mutants of `ppo_loss` and `policy_gradient_loss` take the arguments of the kernel that they break;
those of `ppo_update` and `policy_gradient_update` take a whole batch and return the loss and its
gradients by every array, by name. All arrays are float64 NumPy arrays.
"""

import numpy as np

from loopless import reference
from loopless.verify.cases.batches import ROWS, call_policy_gradient, call_ppo


def forgets_the_minimum(*rows, clip=0.2, **options):
    """Leaves the minimum out and so the clip: nothing keeps the new policy near the old one."""
    return _with_policy(rows, options, clip, lambda ratio, a: ratio * a)


def clips_without_a_minimum(*rows, clip=0.2, **options):
    """Clips the ratio without the minimum: a row that went the wrong way has no way back."""
    return _with_policy(rows, options, clip, lambda ratio, a: _clipped(ratio, clip) * a)


def takes_the_maximum(*rows, clip=0.2, **options):
    """Takes the larger of the two surrogates: the bound is then above, where it binds nothing."""
    return _with_policy(
        rows, options, clip, lambda ratio, a: np.maximum(ratio * a, _clipped(ratio, clip) * a)
    )


def clips_on_the_wrong_side_of_bad_actions(*rows, clip=0.2, **options):
    """Bounds the ratio from above whatever the advantage: for an action worse than average the
    bound that matters is the one below."""
    return _with_policy(rows, options, clip, lambda ratio, a: np.minimum(ratio, 1 + clip) * a)


def clips_the_logarithm(*rows, clip=0.2, **options):
    """Clips log ρ to ±ε instead of ρ to 1±ε."""
    return _with_policy(
        rows,
        options,
        clip,
        lambda ratio, a: np.minimum(ratio * a, np.exp(np.clip(np.log(ratio), -clip, clip)) * a),
    )


def inverts_the_ratio(log_probs, old_log_probs, *rows, **options):
    """Divides the old probability by the new one."""
    return reference.ppo_loss(old_log_probs, log_probs, *rows, **options)


def maximizes_the_surrogate(*rows, clip=0.2, **options):
    """Returns the surrogate itself: if minimized, it makes good actions rare."""
    loss, parts = reference.ppo_loss(*rows, clip=clip, **options)
    return loss - 2 * parts.policy_loss, parts._replace(policy_loss=-parts.policy_loss)


def punishes_entropy(*rows, entropy_coefficient=0.0, **options):
    """Adds the entropy to the loss: if minimized, it ends exploration instead of encouraging it."""
    return reference.ppo_loss(*rows, entropy_coefficient=-entropy_coefficient, **options)


def averages_over_all_rows(*rows, valid=None, **options):
    """Divides by the number of all rows instead of the valid ones: padding shrinks the step."""
    return _shrink(reference.ppo_loss(*rows, valid=valid, **options), valid)


def averages_over_padding(*rows, valid=None, **options):
    """Leaves the mask out: padding is learned from like anything else."""
    return reference.ppo_loss(*rows, **options)


def masks_rows_by_multiplying(*rows, valid=None, **options):
    """Masks rows by multiplying: 0·NaN is NaN, so that padding poisons the loss."""
    loss, parts = reference.ppo_loss(*rows, valid=valid, **options)
    return (loss if valid is None else loss + float((rows[0] * 0.0 * ~valid).sum())), parts


def divides_by_no_row(*rows, valid=None, **options):
    """Divides by the number of valid rows even where there is none: 0/0 spoils every weight."""
    loss, parts = reference.ppo_loss(*rows, valid=valid, **options)
    return (loss if valid is None or valid.any() else float("nan")), parts


def clips_values_without_a_maximum(*rows, value_clip=None, old_values=None, **options):
    """Takes the clipped value's error without the maximum: a value that is past the clip has no
    gradient even if it is wrong the other way."""
    if value_clip is None:
        return reference.ppo_loss(*rows, **options)
    log_probs, old_log_probs, advantages, values, *rest = rows
    clipped = old_values + np.clip(values - old_values, -value_clip, value_clip)
    return reference.ppo_loss(log_probs, old_log_probs, advantages, clipped, *rest, **options)


def takes_the_smaller_error(*rows, value_clip=None, old_values=None, **options):
    """Takes the smaller of the two squared errors, where the pessimistic one is the larger."""
    if value_clip is None:
        return reference.ppo_loss(*rows, **options)
    log_probs, old_log_probs, advantages, values, returns, entropies = rows
    clipped = old_values + np.clip(values - old_values, -value_clip, value_clip)
    nearer = np.where(abs(clipped - returns) < abs(values - returns), clipped, values)
    return reference.ppo_loss(
        log_probs, old_log_probs, advantages, nearer, returns, entropies, **options
    )


def ignores_the_value_clip(*rows, value_clip=None, old_values=None, **options):
    """Leaves the value clip out although it was given."""
    return reference.ppo_loss(*rows, **options)


def forgets_the_half(*rows, value_coefficient=0.5, **options):
    """Leaves the ½ of the value loss out: the coefficient means twice what it says."""
    loss, parts = reference.ppo_loss(*rows, value_coefficient=value_coefficient, **options)
    loss += value_coefficient * parts.value_loss
    return loss, parts._replace(value_loss=2 * parts.value_loss)


def reverses_the_divergence(*rows, **options):
    """Estimates the KL divergence with the wrong sign of log ρ: ρ − 1 + log ρ is no divergence, and
    negative as often as not."""
    loss, parts = reference.ppo_loss(*rows, **options)
    with np.errstate(all="ignore"):
        log_ratios = _valid_log_ratios(rows, options)
        return loss, parts._replace(approximate_kl=_mean(np.expm1(log_ratios) + log_ratios))


def takes_the_mean_log_ratio(*rows, **options):
    """Estimates the KL divergence by −mean log ρ, which has its mean but can be negative: a stop
    at a target KL then comes late or never."""
    loss, parts = reference.ppo_loss(*rows, **options)
    return loss, parts._replace(approximate_kl=-_mean(_valid_log_ratios(rows, options)))


def counts_one_side_of_the_clip(*rows, clip=0.2, **options):
    """Counts only the ratios above 1 + ε as clipped."""
    loss, parts = reference.ppo_loss(*rows, clip=clip, **options)
    with np.errstate(all="ignore"):
        above = np.expm1(_valid_log_ratios(rows, options)) > clip
    return loss, parts._replace(clip_fraction=_mean(above))


def descends_from_the_old_policy(batch):
    """Lets the gradient reach the old log-probabilities: they are data, not a function of the
    weights."""
    loss, gradients = _update(batch)
    return loss, gradients | {"old_log_probs": -gradients["log_probs"]}


def differentiates_the_advantages(batch):
    """Lets the gradient reach the advantages, and through them the critic."""
    low, high = 1 - batch["clip"], 1 + batch["clip"]
    with np.errstate(all="ignore"):
        ratio = np.exp(batch["log_probs"] - batch["old_log_probs"])
        ratio = np.where(batch["advantages"] < 0, np.maximum(ratio, low), np.minimum(ratio, high))
    return _with_gradient(batch, "advantages", -ratio)


def differentiates_the_returns(batch):
    """Lets the gradient reach the returns, which move towards the values in turn."""
    loss, gradients = _update(batch)
    return loss, gradients | {"returns": -gradients["values"]}


def differentiates_the_old_values(batch):
    """Lets the gradient reach the old values that the clip is measured from."""
    if "value_clip" not in batch:
        return _update(batch)
    away = batch["values"] - batch["old_values"]
    clipped = np.clip(away, -batch["value_clip"], batch["value_clip"])
    error = batch["old_values"] + clipped - batch["returns"]
    is_larger = abs(error) > abs(batch["values"] - batch["returns"])
    by = np.where(is_larger, batch["value_coefficient"] * error, 0.0)
    return _with_gradient(batch, "old_values", by)


def passes_straight_through_the_clip(batch):
    """Gives clipped rows the gradient of unclipped ones."""
    _, gradients = _update(batch | {"clip": np.inf})
    return _update(batch)[0], gradients


def lets_padding_have_a_gradient(batch):
    """Masks the loss but not its gradient: padding moves the weights."""
    loss, gradients = _update(batch)
    if "valid" in batch:
        gradients["entropies"] = np.full_like(gradients["entropies"], -1.0 / _count(batch))
    return loss, gradients


def climbs_down(*rows, **options):
    """Returns mean A log π itself: if minimized, it makes good actions rare."""
    loss, parts = reference.policy_gradient_loss(*rows, **options)
    return loss - 2 * parts.policy_loss, parts._replace(policy_loss=-parts.policy_loss)


def punishes_the_plain_losss_entropy(*rows, entropy_coefficient=0.0, **options):
    """Adds the entropy to the plain loss: if minimized, it ends exploration."""
    negative = -entropy_coefficient
    return reference.policy_gradient_loss(*rows, entropy_coefficient=negative, **options)


def averages_the_plain_loss_over_all_rows(*rows, valid=None, **options):
    """Divides the plain loss by the number of all rows instead of the valid ones."""
    return _shrink(reference.policy_gradient_loss(*rows, valid=valid, **options), valid)


def differentiates_the_plain_losss_advantages(batch):
    """Lets the plain loss's gradient reach the advantages: the policy's loss then trains the
    critic, away from its returns."""
    loss, gradients = _plain_update(batch)
    by = np.where(batch.get("valid", True), -batch["log_probs"] / _count(batch), 0.0)
    return loss, gradients | {"advantages": by}


def _with_policy(rows, options, clip, surrogate):
    """Return the loss with another surrogate of ratio and advantage than the clipped one."""
    loss, parts = reference.ppo_loss(*rows, clip=clip, **options)
    with np.errstate(all="ignore"):
        policy_loss = -_mean(_valid_rows(surrogate(np.exp(rows[0] - rows[1]), rows[2]), options))
    return loss - parts.policy_loss + policy_loss, parts._replace(policy_loss=policy_loss)


def _valid_rows(x, options):
    return x if options.get("valid") is None else x[options["valid"]]


def _valid_log_ratios(rows, options):
    return _valid_rows(rows[0] - rows[1], options)


def _mean(x):
    return float(np.mean(x)) if x.size else 0.0


def _clipped(ratio, clip):
    return np.clip(ratio, 1 - clip, 1 + clip)


def _shrink(result, valid):
    """Return loss and parts as if the sums were divided by the number of all rows."""
    loss, parts = result
    share = 1.0 if valid is None else valid.mean()
    return loss * share, type(parts)(*(x * share for x in parts))


def _count(batch):
    return max(int(np.sum(batch.get("valid", np.ones_like(batch["values"])))), 1)


def _with_gradient(batch, name, rows):
    """Return a right update in which one more array has a gradient: `rows` over their count."""
    loss, gradients = _update(batch)
    return loss, gradients | {name: np.where(batch.get("valid", True), rows / _count(batch), 0.0)}


def _update(batch):
    """Return the right update, to which the mutants add."""
    return _with_gradients(batch, call_ppo, reference.ppo_loss, reference.ppo_loss_gradients)


def _plain_update(batch):
    return _with_gradients(
        batch,
        call_policy_gradient,
        reference.policy_gradient_loss,
        reference.policy_gradient_loss_gradients,
    )


def _with_gradients(batch, call, loss, gradients):
    by_log_probs, by_values, by_entropies = call(gradients, batch)
    reached = {"log_probs": by_log_probs, "values": by_values, "entropies": by_entropies}
    return call(loss, batch)[0], {name: np.zeros_like(batch[name]) for name in ROWS} | reached


ALL = (
    ("ppo_loss", forgets_the_minimum),
    ("ppo_loss", clips_without_a_minimum),
    ("ppo_loss", takes_the_maximum),
    ("ppo_loss", clips_on_the_wrong_side_of_bad_actions),
    ("ppo_loss", clips_the_logarithm),
    ("ppo_loss", inverts_the_ratio),
    ("ppo_loss", maximizes_the_surrogate),
    ("ppo_loss", punishes_entropy),
    ("ppo_loss", averages_over_all_rows),
    ("ppo_loss", averages_over_padding),
    ("ppo_loss", masks_rows_by_multiplying),
    ("ppo_loss", divides_by_no_row),
    ("ppo_loss", clips_values_without_a_maximum),
    ("ppo_loss", takes_the_smaller_error),
    ("ppo_loss", ignores_the_value_clip),
    ("ppo_loss", forgets_the_half),
    ("ppo_loss", reverses_the_divergence),
    ("ppo_loss", takes_the_mean_log_ratio),
    ("ppo_loss", counts_one_side_of_the_clip),
    ("ppo_update", descends_from_the_old_policy),
    ("ppo_update", differentiates_the_advantages),
    ("ppo_update", differentiates_the_returns),
    ("ppo_update", differentiates_the_old_values),
    ("ppo_update", passes_straight_through_the_clip),
    ("ppo_update", lets_padding_have_a_gradient),
    ("policy_gradient_loss", climbs_down),
    ("policy_gradient_loss", punishes_the_plain_losss_entropy),
    ("policy_gradient_loss", averages_the_plain_loss_over_all_rows),
    ("policy_gradient_update", differentiates_the_plain_losss_advantages),
)
