"""AvataRL's loss that goes wrong, in PyTorch, one position at a time."""

import torch


def _actions(student, critic, gold, k):
    found = [*student.topk(k).indices.tolist(), *critic.topk(k).indices.tolist(), int(gold)]
    return list(dict.fromkeys(found))


def _products(critic, actions, gold, reality_weight, critic_weight, smoothing):
    mentor = critic.softmax(-1)[actions]
    reality = torch.full_like(mentor, smoothing / max(len(actions) - 1, 1))
    reality[actions.index(int(gold))] = 1 - smoothing
    return reality**reality_weight * mentor**critic_weight


def _target(product, place, threshold):
    share = product / product.sum()
    kept = torch.where(share >= threshold, share, 0.0)
    kept[place] = share.max()
    return kept / kept.sum()


def _entropy(log_pi):
    return -torch.where(log_pi > -torch.inf, log_pi.exp() * log_pi, 0.0).sum()


def loose_threshold(
    student_logits, critic_logits, targets, top_k, reality_weight=0.7, critic_weight=0.3,
    label_smoothing=0.1, entropy_coefficient=0.01,
):  # fmt: skip
    """Shares are held against the mean of products that are not normalised."""
    losses = []
    for z, c, y in zip(student_logits, critic_logits, targets, strict=True):
        actions = _actions(z.detach(), c.detach(), y, top_k)
        u = _products(c.detach(), actions, y, reality_weight, critic_weight, label_smoothing)
        weights = _target(u, actions.index(int(y)), u.sum() / len(actions))
        log_pi = z.log_softmax(-1)
        kept = torch.where(weights > 0, weights * log_pi[actions], 0.0).sum()
        losses.append(-kept - entropy_coefficient * _entropy(log_pi))
    return torch.stack(losses).mean()


def subset_softmax(
    student_logits, critic_logits, targets, top_k, reality_weight=0.7, critic_weight=0.3,
    label_smoothing=0.1, entropy_coefficient=0.01,
):  # fmt: skip
    """The student's probabilities are those among the actions."""
    losses = []
    for z, c, y in zip(student_logits, critic_logits, targets, strict=True):
        actions = _actions(z.detach(), c.detach(), y, top_k)
        u = _products(c.detach(), actions, y, reality_weight, critic_weight, label_smoothing)
        weights = _target(u, actions.index(int(y)), 1 / len(actions))
        log_pi = z[actions].log_softmax(-1)
        kept = torch.where(weights > 0, weights * log_pi, 0.0).sum()
        losses.append(-kept - entropy_coefficient * _entropy(log_pi))
    return torch.stack(losses).mean()
