"""`esper_gae_before.py` without its loops: one call for all steps of all environments."""

import torch

import loopless as ll


def compute(rewards, values, done, truncated, bootstrap, counts, gamma=0.995, gae_lambda=0.95):
    """Return advantages, returns and TD errors; environment e has filled counts[e] columns."""
    steps, counts = torch.arange(values.shape[1]), counts[:, None]
    following = torch.cat([values[:, 1:], torch.zeros_like(values[:, :1])], 1)
    following = torch.where(steps == counts - 1, 0.0, following)  # no bootstrap without a flag
    following = torch.where(truncated, bootstrap, following)
    return ll.gae(
        rewards,
        values,
        following,
        done & ~truncated,
        truncated,
        gamma=gamma,
        lambda_=gae_lambda,
        valid=steps < counts,
        time_axis=1,
        td_errors=True,
    )
