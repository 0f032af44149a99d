"""GAE written plainly in PyTorch on [T, B]: the loop that we replace, and proposals to speed it up.

`stream_arrays` is no GAE: it moves the same data, which is the floor of every GAE.

a_t = γλ where the episode goes on, else 0      b_t = r_t + γ V(s'_t) − V(s_t)
A_t = a_t A_{t+1} + b_t
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

import numpy as np
from numba import njit

from loopless.bench.contest import Call, Contender
from suites.processes import torch
from suites.returns.rollouts import TOLERANCE, Rollout, as_numpy


@njit(error_model="numpy", fastmath={"contract"})
def stream_arrays(rewards, values, next_values, terminated, truncated, gamma, decay, first, second):
    """Read and write what GAE does, flat, without its recurrence: what moving the data costs."""
    for i in range(np.uint64(rewards.size)):
        bootstrap = np.float32(0) if terminated[i] else next_values[i]
        delta = rewards[i] + gamma * bootstrap - values[i]
        first[i] = delta if terminated[i] | truncated[i] else decay * delta
        second[i] = first[i] + values[i]


def env_step_loop(rewards, values, next_values, terminated, truncated, *, gamma, lambda_):
    """Return advantages and returns by a loop over environments and steps, on scalar tensors.

    This stands for esper-lite's rollout buffer and does the same work: for each environment, flags
    become factors and values are added to advantages at once; for each step, δ is formed and
    stored, the carry is cut at an end and multiplied into A, and A is stored.
    """
    advantages, returns, td_errors = (torch.zeros_like(rewards) for _ in range(3))
    for env in range(rewards.shape[1]):
        reward, value, successor = rewards[:, env], values[:, env], next_values[:, env]
        bootstraps = 1.0 - terminated[:, env].to(rewards.dtype)
        goes_on = bootstraps * (1.0 - truncated[:, env].to(rewards.dtype))
        advantage, delta = torch.zeros_like(reward), torch.zeros_like(reward)
        carry = torch.zeros((), dtype=rewards.dtype)
        for t in reversed(range(len(reward))):
            carry = carry * goes_on[t]
            delta[t] = reward[t] + gamma * successor[t] * bootstraps[t] - value[t]
            carry = delta[t] + gamma * lambda_ * carry
            advantage[t] = carry
        advantages[:, env], returns[:, env] = advantage, advantage + value
        td_errors[:, env] = delta
    return advantages, returns


def as_ticketed(rewards, values, next_values, terminated, truncated, *, gamma, lambda_):
    """Return what the proposed loop over T gives.

    It treats truncation as termination, and bootstraps the last step from its own value.
    """
    going_on = 1.0 - (terminated | truncated).to(rewards.dtype)
    advantages = torch.zeros_like(rewards)
    carry = torch.zeros_like(rewards[0])
    following = values[-1]
    for t in reversed(range(len(rewards))):
        delta = rewards[t] + gamma * following * going_on[t] - values[t]
        carry = delta + gamma * lambda_ * going_on[t] * carry
        advantages[t] = carry
        following = values[t]
    return advantages, advantages + values


def _terms(rewards, values, next_values, terminated, truncated, gamma, lambda_):
    zero = torch.zeros((), dtype=rewards.dtype)
    b = rewards + gamma * torch.where(terminated, zero, next_values) - values
    a = torch.where(terminated | truncated, zero, gamma * lambda_)
    return a, b


def time_loop(rewards, values, next_values, terminated, truncated, *, gamma, lambda_):
    """Return the right answer by a loop over T, all environments at once. It is differentiable."""
    a, b = _terms(rewards, values, next_values, terminated, truncated, gamma, lambda_)
    rows = [b[-1]]
    for t in reversed(range(len(b) - 1)):
        rows.append(torch.addcmul(b[t], a[t], rows[-1]))
    advantages = torch.stack(rows[::-1])
    return advantages, advantages + values


def doubling(rewards, values, next_values, terminated, truncated, *, gamma, lambda_):
    """Return the right answer in ⌈log₂ T⌉ passes that compose ever longer maps (Hillis, Steele)."""
    a, b = _terms(rewards, values, next_values, terminated, truncated, gamma, lambda_)
    reach = 1
    while reach < len(b):
        following_a, following_b = a[reach:].clone(), b[reach:].clone()
        b[:-reach].addcmul_(a[:-reach], following_b)
        a[:-reach].mul_(following_a)
        reach *= 2
    return b, b + values


def exp_cumsum(rewards, values, next_values, terminated, truncated, *, gamma, lambda_):
    """Return A_t = Σ_{s≥t} P_s b_s / P_t with P_t = exp Σ_{k<t} log a_k, a_k clamped at 1e-38."""
    a, b = _terms(rewards, values, next_values, terminated, truncated, gamma, lambda_)
    logs = a.clamp_min(1e-38).log()
    before = logs.cumsum(0) - logs
    weighted = (before.exp() * b).flip(0).cumsum(0).flip(0)
    advantages = weighted * (-before).exp()
    return advantages, advantages + values


def in_torch(function: Callable, rollout: Rollout) -> Call:
    """Return a call of a function on a rollout's arrays as tensors."""
    arrays = [torch.from_numpy(x) for x in rollout.arrays]
    return Call(lambda: function(*arrays, **rollout.scalars), as_numpy)


def exact_until(gamma: float, lambda_: float, largest: float = 3.4e38) -> int:
    """Return the T from which exp-cumsum overflows float32 even without an episode end."""
    return int(math.log(largest) / -math.log(gamma * lambda_))


def _proposal(name: str, function: Callable, claim: str, note: str = "") -> Contender:
    prepare = partial(in_torch, function)
    return Contender(f"proposed: {name}", "torch", "proposal", prepare, TOLERANCE, note, claim)


ENV_STEP_LOOP = Contender(
    "env × step loop in PyTorch", "torch", "reference", partial(in_torch, env_step_loop), TOLERANCE,
    note="a dozen scalar tensor operations per step", largest=40_000,
)  # fmt: skip
PROPOSALS = (
    _proposal(
        "loop over T, as ticketed", as_ticketed, "replaces the env × step loop, same answers",
        "truncation taken for termination, last row bootstraps from its own value",
    ),
    _proposal("loop over T, ends right", time_loop, "T tensor operations instead of T × B × 12"),
    _proposal("Hillis–Steele doubling", doubling, "log₂ T passes: the real parallelism"),
    _proposal(
        "exp-cumsum", exp_cumsum, "no loop at all: one cumsum, same answers",
        "answers go wrong after a few ends, and without any from T ≈ "
        f"{exact_until(0.99, 0.95):,} in float32",
    ),
)  # fmt: skip
