"""AvataRL's loss in the manner of its first published form: a loop over positions."""

import torch


def compute_loss(student, critic, gold, top_k=16, entropy_coefficient=0.01):
    """Return the loss of logits [N, V] for gold tokens [N]."""
    probabilities, mentor = student.softmax(-1), critic.softmax(-1)
    total = 0.0
    for i in range(len(gold)):
        chosen = [*student[i].topk(top_k).indices.tolist(), *critic[i].topk(top_k).indices.tolist()]
        actions = list(dict.fromkeys([*chosen, int(gold[i])]))
        n = len(actions)
        reality = torch.tensor([0.9 if a == gold[i] else 0.1 / (n - 1) for a in actions])
        product = reality.to(mentor.dtype) ** 0.7 * mentor[i, actions] ** 0.3
        share = product / product.sum()
        rewards = torch.where(share > product.mean(), 100 * share, 0.0)
        rewards = rewards * min(1.0, 1.5 / float(rewards.max()))
        logs = (probabilities[i] + 1e-10).log()
        entropy = -(probabilities[i] * logs).sum()
        total = total - (rewards * logs[actions]).mean() - entropy_coefficient * entropy
    return total / len(gold)
