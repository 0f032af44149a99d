"""PPO's loss that goes wrong, in PyTorch."""

import torch


def no_minimum(log_probs, old_log_probs, advantages):
    """The plain surrogate: nothing is clipped, though a clip is spoken of."""
    ratio = torch.exp(log_probs - old_log_probs)
    return -(ratio * advantages).mean()


def entropy_punished(
    newlogprob, oldlogprob, advantages, newvalue, returns, entropy, clip_coef, vf_coef, ent_coef
):
    """All in order but the sign of the bonus."""
    ratio = torch.exp(newlogprob - oldlogprob)
    clipped = torch.clamp(ratio, 1 - clip_coef, 1 + clip_coef)
    policy = torch.max(-advantages * ratio, -advantages * clipped).mean()
    value = 0.5 * ((newvalue - returns) ** 2).mean()
    return policy + vf_coef * value + ent_coef * entropy.mean()
