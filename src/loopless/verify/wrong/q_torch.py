"""Q-learning that goes wrong, in PyTorch."""

import torch


def all_pairs(q_values, actions, targets):
    """[B, 1] minus [B] is [B, B]."""
    chosen = q_values.gather(1, actions.long().reshape(-1, 1))
    return ((chosen - targets.reshape(-1)) ** 2).mean()


def beta_for_delta(q, actions, targets, delta):
    """Smooth L1, whose β is not Huber's δ."""
    chosen = q.gather(1, actions.long()[:, None])[:, 0]
    return torch.nn.functional.smooth_l1_loss(chosen, targets, beta=delta)


def residual_gradient(q_values, actions, rewards, terminated, next_q_values, gamma):
    """The right loss; but the target is part of the graph."""
    chosen = q_values.gather(1, actions.long()[:, None])[:, 0]
    best = next_q_values.max(1).values
    targets = torch.where(terminated, rewards, rewards + gamma * best)
    return ((chosen - targets) ** 2).mean()
