"""Right implementations in unusual layouts: nothing here may be called wrong."""

import functools

import jax
import jax.numpy as jnp
import numba
import numpy as np
import torch


def batch_major(rewards, values, next_values, terminated, truncated, gamma, lmbda):
    """[B, T] tensors."""
    advantages, last = torch.zeros_like(rewards), torch.zeros_like(rewards[:, 0])
    for t in reversed(range(rewards.shape[1])):
        after = torch.where(terminated[:, t], 0.0, next_values[:, t])
        delta = rewards[:, t] + gamma * after - values[:, t]
        last = delta + gamma * lmbda * torch.where(terminated[:, t] | truncated[:, t], 0.0, last)
        advantages[:, t] = last
    return advantages + values, advantages  # the other way round, too


def trailing_axis(gamma, lmbda, state_value, next_state_value, reward, done, terminated):
    """[B, T, 1] tensors, done beside terminated."""
    advantages, last = torch.zeros_like(reward), torch.zeros_like(reward[:, 0])
    for t in reversed(range(reward.shape[-2])):
        after = torch.where(terminated[:, t] > 0, 0.0, next_state_value[:, t])
        delta = reward[:, t] + gamma * after - state_value[:, t]
        last = delta + gamma * lmbda * torch.where(done[:, t] > 0, 0.0, last)
        advantages[:, t] = last
    return advantages, advantages + state_value


def lists_of_one_episode(rewards, values, last_value, dones, gamma, lam):
    """Lists, one environment, values joined to the bootstrap as lists are."""
    following = values[1:] + [last_value]  # noqa: RUF005  as lists are joined
    advantages, last = [], 0.0
    for r, v, after, done in list(zip(rewards, values, following, dones, strict=True))[::-1]:
        delta = r + (0.0 if done else gamma * after) - v
        last = delta + (0.0 if done else gamma * lam * last)
        advantages.append(last)
    return advantages[::-1]


def episode_starts(rewards, values, episode_starts, last_values, dones, gamma, gae_lambda):
    """Flags of the row after, and the last row's apart."""
    steps, advantages, last = len(rewards), np.zeros_like(rewards), 0
    for step in reversed(range(steps)):
        if step == steps - 1:
            going, following = 1.0 - dones, last_values
        else:
            going, following = 1.0 - episode_starts[step + 1], values[step + 1]
        delta = rewards[step] + gamma * following * going - values[step]
        last = delta + gamma * gae_lambda * going * last
        advantages[step] = last
    return advantages


def discount_vector(r_t, discount_t, lambda_, values):
    """One sequence, discounts that are 0 at a termination, T + 1 values; in JAX."""
    delta = r_t + discount_t * values[1:] - values[:-1]

    def step(last, row):
        last = row[0] + row[1] * lambda_ * last
        return last, last

    return jax.lax.scan(step, jnp.zeros_like(r_t[0]), (delta, discount_t), reverse=True)[1]


def from_attributes(rollout):
    """One argument that holds all, gamma too."""
    ended = rollout.terminated | rollout.truncated
    advantages, last = np.zeros_like(rollout.rewards), np.zeros_like(rollout.rewards[0])
    for t in reversed(range(len(rollout.rewards))):
        after = np.where(rollout.terminated[t], 0, rollout.next_values[t])
        delta = rollout.rewards[t] + rollout.gamma * after - rollout.values[t]
        last = delta + rollout.gamma * rollout.lam * np.where(ended[t], 0, last)
        advantages[t] = last
    return advantages


@numba.njit
def compiled(r, v, v_next, term, trunc, gamma, lam):
    advantages = np.zeros_like(r)
    for b in range(r.shape[1]):
        last = 0.0
        for t in range(len(r) - 1, -1, -1):
            if term[t, b]:
                last = r[t, b] - v[t, b]
            elif trunc[t, b]:
                last = r[t, b] + gamma * v_next[t, b] - v[t, b]
            else:
                last = r[t, b] + gamma * v_next[t, b] - v[t, b] + gamma * lam * last
            advantages[t, b] = last
    return advantages


def in_float32(rewards, values, next_values, terminated, truncated, gamma, lambda_):
    rewards, values = rewards.astype(np.float32), values.astype(np.float32)
    advantages, last = np.zeros_like(rewards), np.zeros_like(rewards[0])
    for t in reversed(range(len(rewards))):
        after = np.where(terminated[t], 0, next_values[t]).astype(np.float32)
        delta = rewards[t] + np.float32(gamma) * after - values[t]
        going = np.float32(gamma * lambda_) * ~(terminated[t] | truncated[t])
        advantages[t] = last = delta + going * last
    return advantages


def built_in_numbers(rewards, values, next_values, terminated, truncated):
    return compiled.py_func(rewards, values, next_values, terminated, truncated, 0.9, 0.8)


class Estimator:
    def __init__(self, lam):
        self.lam = lam

    def __call__(self, rewards, values, next_values, terminated, truncated, gamma):
        fields = rewards, values, next_values, terminated, truncated
        return compiled.py_func(*fields, gamma, self.lam)


bound = functools.partial(compiled.py_func, lam=0.5)


def one_step_td(reward, not_done, q_next, gamma):
    """One sample of numbers, and a mask that is 1 where the episode goes on."""
    return reward + (gamma * max(q_next) if not_done else 0.0)


def column_targets(rewards, terminations, next_q_values, gamma):
    """[B, 1] tensors."""
    best = next_q_values.max(dim=1, keepdim=True).values
    return rewards + torch.where(terminations > 0, 0.0, gamma * best)


def double_targets(r, terminated, target_next_q, online_next_q, gamma):
    best = jnp.argmax(online_next_q, -1)
    value = jnp.take_along_axis(target_next_q, best[:, None], -1)[:, 0]
    return jnp.where(terminated, r, r + gamma * value)


def whole_loss(q_values, actions, rewards, terminated, next_q_values, gamma, weights):
    """From transitions to the loss, Huber's, with a target that is detached."""
    chosen = q_values.gather(1, actions[:, None])[:, 0]
    with torch.no_grad():
        best = next_q_values.max(1).values
        targets = rewards + gamma * torch.where(terminated, 0.0, best)
    losses = torch.nn.functional.smooth_l1_loss(chosen, targets, reduction="none")
    return (weights * losses).mean()


def policy_part(logp, logp_old, adv, clip_ratio):
    """The policy's part alone."""
    ratio = torch.exp(logp - logp_old)
    clipped = torch.clamp(ratio, 1 - clip_ratio, 1 + clip_ratio) * adv
    return -torch.min(ratio * adv, clipped).mean()


def tokens(token_level_rewards, values, response_mask, gamma, lam):
    """[B, T] tokens, masked ones passed over."""
    advantages = torch.zeros_like(values)
    last, following = torch.zeros_like(values[:, 0]), torch.zeros_like(values[:, 0])
    for t in reversed(range(values.shape[1])):
        here = response_mask[:, t].bool()
        delta = token_level_rewards[:, t] + gamma * following - values[:, t]
        last = torch.where(here, delta + gamma * lam * last, last)
        following = torch.where(here, values[:, t], following)
        advantages[:, t] = torch.where(here, last, 0.0)
    return advantages


def float32_only(rewards, values, next_values, terminated, truncated, gamma, lambda_):
    if rewards.dtype != torch.float32:
        raise TypeError("expected Float")
    return batch_major(
        rewards.T, values.T, next_values.T, terminated.T, truncated.T, gamma, lambda_
    )[1].T


def rounded_inside(rewards, values, next_values, terminated, truncated, gamma, lambda_):
    gamma, lambda_ = float(np.float32(gamma)), float(np.float32(lambda_))
    return compiled.py_func(rewards, values, next_values, terminated, truncated, gamma, lambda_)
