"""Generalised advantage estimates that go wrong, in PyTorch."""

import math

import torch


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
                found = torch.nn.functional.conv1d(padded[None, None], powers[None, None])
                advantages[row, begin:stop] = found[0, 0]
            begin = stop
    return advantages[..., None], advantages[..., None] + state_value


def from_a_batch(batch, gamma: float = 0.99, lam: float = 0.95):
    """All of it in one dictionary of [B, T] tensors, with one flag."""
    rewards, values, done = batch["rewards"], batch["values"], batch["done"].to(torch.float64)
    following = torch.cat([values[:, 1:], batch["bootstrap_value"][:, None]], dim=1)
    delta = rewards + gamma * following * (1 - done) - values
    advantages, last = torch.zeros_like(rewards), torch.zeros_like(rewards[:, 0])
    for t in reversed(range(rewards.shape[1])):
        last = delta[:, t] + gamma * lam * (1 - done[:, t]) * last
        advantages[:, t] = last
    return {"adv": advantages, "ret": advantages + values}
