"""The looped original and the two vectorisations that followed it, in eager PyTorch.

Written plainly from a description of each. The loops are over action sets alone and all arithmetic
is on whole arrays: beside today's form that costs what a study of the published code measured, 9 to
16 times at V = 65 and 1.3 times at V = 50304. What each returns beside the loss, and reads back
from the device for it, is as published. Imports PyTorch when called. Tests:
`tests/suites/avatarl/test_bench_avatarl_losses.py`.
"""

from __future__ import annotations

from typing import Any

from suites.avatarl.plain import FLOOR, METHOD, TINY, Method

CAP = 33  # actions of a position at most, in the first two versions


def looped(student: Any, critic: Any, gold: Any, k: int, method: Method = METHOD) -> Any:
    """Two loops over positions: one collects actions and their reality, one pads them."""
    import torch

    with torch.no_grad():
        reality, found = torch.zeros_like(critic), []
        of_student, of_critic = student.topk(k).indices, critic.topk(k).indices
        for i in range(len(gold)):
            proposed = torch.cat([of_student[i], of_critic[i], gold[i : i + 1]]).tolist()
            chosen = list(dict.fromkeys(proposed))[:CAP]
            n = len(chosen)
            reality[i, chosen] = method.label_smoothing / max(n - 1, 1)
            reality[i, gold[i]] = 1 - method.label_smoothing if n > 1 else 1.0
            found.append(chosen)
        width = max(map(len, found))
        actions = torch.zeros(len(gold), width, dtype=torch.long)
        present = torch.zeros(len(gold), width, dtype=torch.bool)
        for i, chosen in enumerate(found):
            actions[i, : len(chosen)] = torch.tensor(chosen)
            present[i, : len(chosen)] = True
        n = present.sum(-1)
        u = reality**method.reality_weight * critic.softmax(-1) ** method.critic_weight
        rewards = rewarded(u.gather(1, actions), present, n, method)
    pi = student.softmax(-1)
    logs = (pi + FLOOR).log()
    gained = (rewards * logs.gather(1, actions)).sum(-1) / (n + TINY)
    loss = (-gained + method.entropy_coefficient * (pi * logs).sum(-1)).mean()
    return loss, statistics(rewards, present, n)


def vectorised(
    student: Any, critic: Any, gold: Any, k: int, method: Method = METHOD, *, full: bool
) -> Any:
    """Duplicates found by a sort, products over the whole vocabulary, then gathered.

    Temperature in place of the entropy. With `full` the student's softmax is over the vocabulary,
    as today; without, over the actions alone, as first published.
    """
    import torch

    with torch.no_grad():
        actions, present, n = distinct(student, critic, gold, k, 2 * k + 1 if full else CAP)
        reality = torch.zeros_like(critic)
        rows, places = present.nonzero(as_tuple=True)
        tokens = actions[rows, places]
        share = method.label_smoothing / (n[rows] - 1)
        is_gold = tokens == gold[rows]
        reality[rows, tokens] = torch.where(is_gold, 1 - method.label_smoothing, share)
        mentor = critic.softmax(-1)
        u = reality**method.reality_weight * mentor**method.critic_weight
        rewards = rewarded(u.gather(1, actions), present, n, method)
    tau = 1 + method.entropy_coefficient
    if full:
        logs = (student / tau).log_softmax(-1).gather(1, actions)
    else:
        inside = (student.gather(1, actions) / tau).masked_fill(~present, -1e10)
        logs = inside.log_softmax(-1)
    loss = (-(rewards * logs * present).sum(-1) / (n + TINY)).mean()
    return loss, statistics(rewards, present, n)


def distinct(student: Any, critic: Any, gold: Any, k: int, cap: int) -> Any:
    """The distinct actions of each position side by side, which of them there are, how many."""
    import torch

    both = [student.topk(k).indices, critic.topk(k).indices, gold[:, None]]
    found = torch.cat(both, 1)
    ordered, order = found.sort(1)
    first = torch.ones_like(found, dtype=torch.bool)
    first[:, 1:] = ordered[:, 1:] != ordered[:, :-1]
    first = torch.zeros_like(first).scatter(1, order, first)
    width = min(int(first.sum(1).max().item()), cap)
    places = first.cumsum(1) - 1
    rows, columns = (first & (places < width)).nonzero(as_tuple=True)
    actions = torch.zeros(len(gold), width, dtype=torch.long)
    actions[rows, places[rows, columns]] = found[rows, columns]
    n = first.sum(1).clamp(max=width)
    return actions, torch.arange(width) < n[:, None], n


def rewarded(u: Any, present: Any, n: Any, method: Method) -> Any:
    """Rewards from the products of each action."""
    import torch

    u = torch.where(present, u, 0.0)
    total = u.sum(-1, keepdim=True)
    p, threshold = u / (total + TINY), total / (n[:, None] + TINY)
    scaled = method.reward_scale * p * (present & (p > threshold))
    largest = scaled.amax(-1, keepdim=True)
    clamped = scaled * method.reward_clamp / (largest + TINY)
    return torch.where(largest > method.reward_clamp, clamped, scaled)


def statistics(rewards: Any, present: Any, n: Any) -> dict[str, float]:
    given = rewards[present]
    return {
        "reward": given.mean().item(),
        "most": given.max().item(),
        "least": given.min().item(),
        "actions": n.float().mean().item(),
    }
