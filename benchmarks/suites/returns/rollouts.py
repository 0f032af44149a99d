"""The cases of this suite: random rollouts, and the right answers for them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from loopless.bench.contest import Call, Contender, Verdict
from loopless.reference import returns

Shape = tuple[int, int]
Answers = tuple[np.ndarray, np.ndarray]
TOLERANCE = 2e-5  # float32 on data of unit scale


@dataclass(frozen=True)
class Rollout:
    """A rollout of arrays [T, B], float32 and boolean; no step both terminates and truncates."""

    rewards: np.ndarray
    values: np.ndarray
    next_values: np.ndarray
    terminated: np.ndarray
    truncated: np.ndarray
    gamma: float = 0.99
    lambda_: float = 0.95

    @property
    def arrays(self) -> tuple[np.ndarray, ...]:
        return self.rewards, self.values, self.next_values, self.terminated, self.truncated

    @property
    def scalars(self) -> dict[str, float]:
        return {"gamma": self.gamma, "lambda_": self.lambda_}

    @property
    def steps(self) -> int:
        return self.rewards.shape[0]

    @property
    def envs(self) -> int:
        return self.rewards.shape[1]

    @property
    def ended(self) -> np.ndarray:
        return self.terminated | self.truncated

    @property
    def label(self) -> str:
        return label((self.steps, self.envs))

    @property
    def size(self) -> int:
        return self.steps * self.envs

    @cached_property
    def right(self) -> Answers:
        return right_answers(self)

    def check(self, contender: Contender, call: Call, output: Any) -> Verdict:
        """Check that advantages and returns are right within the contender's tolerance."""
        assert call.read is not None
        return within(contender.tolerance, largest_error(call.read(output), self.right), "answers")

    def folded_rewards(self) -> np.ndarray:
        """Return rewards with γ V(s') added where truncated: for peers that know only `done`."""
        return np.where(self.truncated, self.rewards + self.gamma * self.next_values, self.rewards)


def label(shape: Shape) -> str:
    return f"{shape[0]}×{shape[1]}"


def as_numpy(output: tuple) -> Answers:
    """Convert advantages and returns of any library to NumPy."""
    advantages, returns = output
    return np.asarray(advantages), np.asarray(returns)


def random_rollout(steps: int, envs: int, *, seed: int = 0, end_rate: float = 0.01) -> Rollout:
    """Return a rollout in which `end_rate` of the steps terminate, and as many truncate.

    The value of a successor is that of the next step, except at an end and at the last step, where
    it is another random number.
    """
    generator = np.random.default_rng(seed)
    shape = (steps, envs)
    rewards, values, next_values = (
        generator.standard_normal(shape, dtype=np.float32) for _ in range(3)
    )
    ends = generator.random(shape, dtype=np.float32)
    terminated = ends < end_rate
    truncated = ~terminated & (ends < 2 * end_rate)
    going_on = ~(terminated | truncated)[:-1]
    next_values[:-1][going_on] = values[1:][going_on]
    return Rollout(rewards, values, next_values, terminated, truncated)


def right_answers(rollout: Rollout, *, checked_steps: int = 20_000) -> Answers:
    """Return float64 advantages and returns; some columns are checked against the reference loop.

    The loop itself would take minutes at the largest shape. Columns are independent, so it is run
    on as many of them as make `checked_steps`.
    """
    rewards, values, next_values = (x.astype(np.float64) for x in rollout.arrays[:3])
    successors = np.where(rollout.terminated, 0.0, next_values)
    ended = rollout.ended
    advantages = np.empty_like(rewards)
    carry = np.zeros(rollout.envs)
    for t in reversed(range(rollout.steps)):
        carry = np.where(ended[t], 0.0, rollout.gamma * rollout.lambda_ * carry)
        carry += rewards[t] + rollout.gamma * successors[t] - values[t]
        advantages[t] = carry
    answers = advantages, advantages + values
    count = max(1, checked_steps // rollout.steps)
    columns = np.random.default_rng(1).permutation(rollout.envs)[:count]
    loop = returns.gae(*(x[:, columns] for x in rollout.arrays), **rollout.scalars)
    error = largest_error(tuple(x[:, columns] for x in answers), loop)
    if error > 1e-10:
        raise RuntimeError(f"bench: the reference loop is {error:g} away from the bench's truth.")
    return answers


def largest_error(answers: tuple, right: tuple) -> float:
    """Return max |answer − right| over all arrays; NaN if any of them has one."""
    pairs = zip(answers, right, strict=True)
    errors = [np.max(np.abs(np.asarray(x, np.float64) - y)) for x, y in pairs]
    return float(np.max(errors))


def within(tolerance: float, error: float, what: str) -> Verdict:
    if error <= tolerance:
        return Verdict(error=error)
    finite = error if math.isfinite(error) else None
    wrong = "not finite" if finite is None else f"off by up to {error:.2g}"
    return Verdict(f"{what} are {wrong}; {tolerance:g} is allowed", finite)
