"""AvataRL as it goes wrong in real code, each with the diagnosis as its docstring.

A mutant takes logits and targets of one axis of positions and the options of `avatarl_loss` in its
"fixed" form, and returns the loss and its gradients by the student's and by the critic's logits, as
float64 NumPy arrays.
"""

import math

import numpy as np

from loopless.reference import avatarl


def does_not_normalize_the_threshold(student_logits, critic_logits, targets, **options):
    """Compares normalized products with the mean of those that are not: nearly every action passes,
    most of all where critic and gold disagree."""

    def rewards(actions, u, y):
        total = sum(u.values())
        shares = {i: x / total for i, x in u.items() if x / total > total / len(u)}
        shares[y] = max(shares.values(), default=1.0)
        return {i: shares.get(i, 0.0) / sum(shares.values()) for i in actions}

    return _each(student_logits, critic_logits, targets, options, rewards=rewards)


def raises_the_temperature_instead(student_logits, critic_logits, targets, **options):
    """Takes a temperature 1 + β for the entropy bonus: its optimum is sharper than the target,
    where the bonus makes it softer."""
    tau = 1.0 + options.pop("entropy_coefficient", 0.01)
    cooled = np.asarray(student_logits) / tau
    arguments = cooled, critic_logits, targets
    options["entropy_coefficient"] = 0.0
    loss, _ = avatarl.avatarl_loss(*arguments, **options)
    gradients = avatarl.avatarl_gradients(*arguments, **options) / tau
    return loss, gradients, np.zeros_like(gradients)


def normalizes_over_the_actions_alone(student_logits, critic_logits, targets, **options):
    """Takes the student's softmax over the actions alone: the rest of the vocabulary gets no
    gradient, and may hold any share of the probability."""
    return _each(student_logits, critic_logits, targets, options, inside=lambda actions: actions)


def lets_the_padding_leak(student_logits, critic_logits, targets, **options):
    """Fills the sets up to 2k + 1 with token 0 and counts it as an action."""

    def widened(actions):
        full = len(actions) == 2 * options["top_k"] + 1
        return actions if full or 0 in actions else [*actions, 0]

    return _each(student_logits, critic_logits, targets, options, actions=widened)


def masks_logarithms_by_multiplying(student_logits, critic_logits, targets, **options):
    """Masks log-probabilities by multiplying: 0·(−inf) is NaN, so that a forbidden token without
    any reward poisons the loss."""
    loss, _ = avatarl.avatarl_loss(student_logits, critic_logits, targets, **options)
    gradients = avatarl.avatarl_gradients(student_logits, critic_logits, targets, **options)
    return loss + np.sum(0.0 * np.asarray(student_logits)[:, 0]), gradients, 0 * gradients


def cuts_gold_off(student_logits, critic_logits, targets, **options):
    """Puts gold last and cuts the sets at 33: with larger k the gold token is dropped, and pushed
    down with all that is not rewarded."""

    def cut(actions):
        return actions[:33]

    return _each(student_logits, critic_logits, targets, options, actions=cut)


def differentiates_the_rewards(student_logits, critic_logits, targets, **options):
    """Lets the gradient flow through the rewards into the critic: the cheapest way to less loss is
    then to make the target easier."""
    loss, _ = avatarl.avatarl_loss(student_logits, critic_logits, targets, **options)
    gradients = avatarl.avatarl_gradients(student_logits, critic_logits, targets, **options)
    by_critic, step = np.zeros_like(gradients), 1e-6
    for place in np.ndindex(by_critic.shape):
        moved = np.array(critic_logits)
        moved[place] += step
        by_critic[place] = (
            avatarl.avatarl_loss(student_logits, moved, targets, **options)[0] - loss
        ) / step
    return loss, gradients, by_critic


def _right_rewards(actions, u, y):
    total = sum(u.values())
    shares = {i: x / total for i, x in u.items() if x * len(u) >= total}
    if y in u:
        shares[y] = max(shares.values())
    return {i: shares.get(i, 0.0) / sum(shares.values()) for i in actions}


def _update(student_logits, critic_logits, targets, **options):
    return _each(student_logits, critic_logits, targets, options)


def _each(z, c, targets, options, actions=lambda x: x, rewards=_right_rewards, inside=None):
    """Compute AvataRL rightly, position by position; the mutants pass a wrong part."""
    settings = avatarl.Settings(**options)
    weight = float(settings.critic_weight)
    beta, losses, gradients = settings.entropy_coefficient, [], np.zeros_like(z)
    for t, y in enumerate(np.asarray(targets).tolist()):
        chosen = actions(avatarl.position(z[t].tolist(), c[t].tolist(), y, settings).actions)
        m = np.exp(c[t] - c[t].max())
        m /= m.sum()
        r = {i: settings.label_smoothing / (len(chosen) - 1) for i in chosen if i != y}
        r |= {y: 1.0 - settings.label_smoothing} if y in chosen else {}
        u = {i: r[i] ** settings.reality_weight * m[i] ** weight for i in chosen}
        target = rewards(chosen, u, y)
        support = list(range(len(z[t]))) if inside is None else inside(chosen)
        x = {j: z[t, j] - z[t].max() for j in support}
        log_sum = math.log(sum(math.exp(value) for value in x.values()))
        log_pi = {j: value - log_sum for j, value in x.items()}
        entropy = -sum(math.exp(v) * v for v in log_pi.values() if v > -math.inf)
        losses.append(-sum(w * log_pi[i] for i, w in target.items() if w) - beta * entropy)
        for j, v in log_pi.items():
            bonus = beta * math.exp(v) * (v + entropy) if v > -math.inf else 0.0
            gradients[t, j] = (math.exp(v) - target.get(j, 0.0) + bonus) / len(targets)
    return sum(losses) / len(losses), gradients, np.zeros_like(gradients)


ALL = tuple(
    ("avatarl_update", function)
    for function in (
        does_not_normalize_the_threshold,
        raises_the_temperature_instead,
        normalizes_over_the_actions_alone,
        lets_the_padding_leak,
        masks_logarithms_by_multiplying,
        cuts_gold_off,
        differentiates_the_rewards,
    )
)
