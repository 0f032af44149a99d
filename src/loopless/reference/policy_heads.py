"""PPO's loss of weighted entries and of an action made of several heads, one entry at a time."""

import math

import numpy as np


def heads_loss(
    log_probs,
    old_log_probs,
    advantages,
    values,
    returns,
    entropies,
    *,
    clip,
    value_coefficient,
    entropy_coefficient,
    value_clip,
    old_values,
    valid,
    weights,
    masks,
    entropy_floor,
    floor_coefficient,
):
    """Return the loss, and policy loss, value loss, entropy, approximate KL and clip fraction.

    For each head h, over the n_h entries where it counts (valid, and its mask):

        policy_h = −Σ w min(ρ A, clip(ρ, 1−ε_h, 1+ε_h) A) / n_h        entropy_h = Σ w H / n_h
        loss = Σ_h (policy_h − c_h entropy_h + f max(0, floor_h − entropy_h)²) + c · value_loss

    The last three results are dicts by head if `log_probs` is one.
    """
    shape = np.shape(values)
    heads = list(log_probs) if isinstance(log_probs, dict) else [None]

    def of(x, head):
        return x[head] if isinstance(x, dict) else x

    def weight(i):
        return 1.0 if weights is None else float(weights[i])

    entries = [i for i in np.ndindex(shape) if valid is None or valid[i]]
    policy_loss = loss = 0.0
    entropy, divergence, clipped = {}, {}, {}
    for head in heads:
        counts = [i for i in entries if masks is None or masks[head][i]]
        n = max(len(counts), 1)
        epsilon = of(clip, head)
        surrogate = surprise = moved = cut = 0.0
        for i in counts:
            if weight(i) == 0:
                continue
            log_ratio = float(of(log_probs, head)[i] - of(old_log_probs, head)[i])
            ratio, advantage = math.exp(log_ratio), float(of(advantages, head)[i])
            near = min(max(ratio, 1 - epsilon), 1 + epsilon)
            surrogate -= weight(i) * min(ratio * advantage, near * advantage)
            surprise += weight(i) * float(of(entropies, head)[i])
            moved += math.expm1(log_ratio) - log_ratio
            cut += abs(math.expm1(log_ratio)) > epsilon
        policy_loss += surrogate / n
        entropy[head], divergence[head], clipped[head] = surprise / n, moved / n, cut / n
        loss -= of(entropy_coefficient, head) * entropy[head]
        if counts:
            loss += floor_coefficient * max(0.0, of(entropy_floor, head) - entropy[head]) ** 2
    squares = 0.0
    for i in entries:
        if weight(i) == 0:
            continue
        error = abs(float(values[i] - returns[i]))
        if value_clip is not None:
            away = min(max(float(values[i] - old_values[i]), -value_clip), value_clip)
            error = max(error, abs(float(old_values[i] + away - returns[i])))
        squares += weight(i) * error * error
    value_loss = 0.5 * squares / max(len(entries), 1)
    loss += policy_loss + value_coefficient * value_loss
    if heads == [None]:
        entropy, divergence, clipped = entropy[None], divergence[None], clipped[None]
    return loss, (policy_loss, value_loss, entropy, divergence, clipped)
