"""Functions that go wrong, in PyTorch. `WRONG` says what each must be told."""

import math

import torch

# --- GAE


def convolution(gamma, lmbda, state_value, next_state_value, reward, done, terminated):
    """One geometric filter over [B, T, 1] arrays, cut off where its terms fall below 1e-7."""
    keep = 1.0 - terminated
    delta = (reward + gamma * keep * next_state_value - state_value)[..., 0]
    ended = done[..., 0] > 0
    decay = gamma * lmbda
    steps = delta.shape[1]
    taps = steps if decay >= 1 else 1
    if 0 < decay < 1:
        taps = min(steps, max(1, math.ceil(math.log(1e-7) / math.log(decay))))
    powers = decay ** torch.arange(taps, dtype=delta.dtype)
    advantages = torch.zeros_like(delta)
    for row in range(len(delta)):
        begin = 0
        stops = [*(torch.nonzero(ended[row])[:, 0] + 1).tolist(), steps]
        for stop in stops:
            part = delta[row, begin:stop]
            if len(part):
                padded = torch.nn.functional.pad(part, (0, taps - 1))
                sums = torch.nn.functional.conv1d(padded[None, None], powers[None, None])
                advantages[row, begin:stop] = sums[0, 0]
            begin = stop
    return advantages[..., None], advantages[..., None] + state_value


def from_a_batch(batch, gamma: float = 0.99, lam: float = 0.95):
    """One dictionary of [B, T] tensors, with one flag."""
    rewards, values, done = batch["rewards"], batch["values"], batch["done"].to(torch.float64)
    following = torch.cat([values[:, 1:], batch["bootstrap_value"][:, None]], dim=1)
    delta = rewards + gamma * following * (1 - done) - values
    advantages, last = torch.zeros_like(rewards), torch.zeros_like(rewards[:, 0])
    for t in reversed(range(rewards.shape[1])):
        last = delta[:, t] + gamma * lam * (1 - done[:, t]) * last
        advantages[:, t] = last
    return {"adv": advantages, "ret": advantages + values}


# --- Q-learning


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


# --- PPO


def no_minimum(log_probs, old_log_probs, advantages):
    """The plain surrogate: nothing is clipped."""
    ratio = torch.exp(log_probs - old_log_probs)
    return -(ratio * advantages).mean()


def entropy_punished(
    newlogprob, oldlogprob, advantages, newvalue, returns, entropy, clip_coef, vf_coef, ent_coef
):
    """Right except for the sign of the bonus."""
    ratio = torch.exp(newlogprob - oldlogprob)
    clipped = torch.clamp(ratio, 1 - clip_coef, 1 + clip_coef)
    policy = torch.max(-advantages * ratio, -advantages * clipped).mean()
    value = 0.5 * ((newvalue - returns) ** 2).mean()
    return policy + vf_coef * value + ent_coef * entropy.mean()


# --- AvataRL, one position at a time


def _avatarl(
    student_logits, critic_logits, targets, top_k, reality_weight, critic_weight, label_smoothing,
    entropy_coefficient, threshold, support,
):  # fmt: skip
    """Compute the loss rightly, but for `threshold(products)` and the student's `support`."""
    losses = []
    for z, c, y in zip(student_logits, critic_logits, targets, strict=True):
        logits, gold = c.detach(), int(y)
        proposals = [*z.detach().topk(top_k).indices.tolist(), *logits.topk(top_k).indices.tolist()]
        actions = list(dict.fromkeys([*proposals, gold]))
        mentor = logits.softmax(-1)[actions]
        reality = torch.full_like(mentor, label_smoothing / max(len(actions) - 1, 1))
        reality[actions.index(gold)] = 1 - label_smoothing
        products = reality**reality_weight * mentor**critic_weight
        shares = products / products.sum()
        rewards = torch.where(shares >= threshold(products), shares, 0.0)
        rewards[actions.index(gold)] = shares.max()
        log_pi, places = support(z, actions)
        likelihoods = torch.where(rewards > 0, rewards / rewards.sum() * log_pi[places], 0.0)
        entropy = -torch.where(log_pi > -torch.inf, log_pi.exp() * log_pi, 0.0).sum()
        losses.append(-likelihoods.sum() - entropy_coefficient * entropy)
    return torch.stack(losses).mean()


def loose_threshold(
    student_logits, critic_logits, targets, top_k, reality_weight=0.7, critic_weight=0.3,
    label_smoothing=0.1, entropy_coefficient=0.01,
):  # fmt: skip
    """Shares are compared with the mean of products that are not normalized."""
    return _avatarl(
        student_logits, critic_logits, targets, top_k, reality_weight, critic_weight,
        label_smoothing, entropy_coefficient,
        lambda products: products.mean(),
        lambda z, actions: (z.log_softmax(-1), actions),
    )  # fmt: skip


def subset_softmax(
    student_logits, critic_logits, targets, top_k, reality_weight=0.7, critic_weight=0.3,
    label_smoothing=0.1, entropy_coefficient=0.01,
):  # fmt: skip
    """The student's probabilities are those among the actions."""
    return _avatarl(
        student_logits, critic_logits, targets, top_k, reality_weight, critic_weight,
        label_smoothing, entropy_coefficient,
        lambda products: 1 / len(products),
        lambda z, actions: (z[actions].log_softmax(-1), range(len(actions))),
    )  # fmt: skip


# --- ALLO


def gradient_on_both_sides(phi, phi_next, psi, duals, barrier):
    """The right number; but earlier features are moved by later ones."""
    eye = torch.eye(phi.shape[1], dtype=phi.dtype)
    errors = torch.tril(phi.T @ phi / len(phi) - eye)
    others = torch.tril(psi.T @ psi / len(psi) - eye).detach()
    graph = 0.5 * ((phi - phi_next) ** 2).sum(1).mean()
    q = 2.0 * (errors * others).sum()
    pulled = (duals.detach() * errors).sum() + barrier * q
    raised = (duals * errors.detach()).sum() + barrier * q.abs().detach()
    return graph + pulled - raised
