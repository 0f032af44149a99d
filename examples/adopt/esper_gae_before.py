"""GAE over environments and steps in the manner of esper-lite: tensors [envs, steps], two loops."""

import torch


def compute(rewards, values, done, truncated, bootstrap, counts, gamma=0.995, gae_lambda=0.95):
    """Return advantages, returns and TD errors; environment e has filled counts[e] columns."""
    advantages, td_errors = torch.zeros_like(values), torch.zeros_like(values)
    for env, count in enumerate(counts.tolist()):
        following, carry = torch.zeros(()), torch.zeros(())
        for t in reversed(range(count)):
            if t == count - 1 and truncated[env, t]:
                following = bootstrap[env, t]
            goes_on = 1.0 - (done[env, t] & ~truncated[env, t]).float()
            delta = rewards[env, t] + gamma * goes_on * following - values[env, t]
            carry = delta + gamma * gae_lambda * goes_on * carry
            following = values[env, t]
            advantages[env, t], td_errors[env, t] = carry, delta
    returns = torch.where(torch.arange(values.shape[1]) < counts[:, None], advantages + values, 0)
    return advantages, returns, td_errors
