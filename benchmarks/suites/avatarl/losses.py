"""The cases for the loss, and the right answer: loss and gradient in float64.

Gold is drawn from the critic, and the student is a noisy copy of it. The answer is that of our own
function in float64, and of PyTorch for plain cross-entropy. The loop twin of each vouches for it on
as many positions as it can do in a second.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

import loopless as ll
from loopless.bench.contest import Contender, Verdict
from loopless.reference import avatarl as twin
from suites.processes import torch

CROSS_ENTROPY = "cross-entropy"  # a further loss, beside the variants of AvataRL's
METHOD = twin.Settings(top_k=0)  # the coefficients of the method, as published; k is a case's
VOUCHED = 100_000  # logits for which the twin is asked
TWIN_TOLERANCE = 1e-9

Answer = tuple[float, np.ndarray]  # the mean loss, and its gradient [N, V] by the student's logits


def answer(student: Any, critic: Any, gold: Any, k: int, variant: str) -> Answer:
    """Return the right answer for a variant of `avatarl_loss`, or for CROSS_ENTROPY."""
    few = slice(max(1, VOUCHED // student.shape[-1]))
    arrays, settings = (student[few], critic[few], gold[few]), {"top_k": k, "variant": variant}
    if variant == CROSS_ENTROPY:
        ones = np.ones((len(gold[few]), 1))
        expected = twin.soft_cross_entropy(student[few], gold[few, None], ones)
    else:
        loss, _ = twin.avatarl_loss(*arrays, **settings)
        expected = loss, twin.avatarl_gradients(*arrays, **settings)
    pairs = zip(in_float64(*arrays, k, variant), expected, strict=True)
    error = max(float(np.max(np.abs(x - y))) for x, y in pairs)
    if not error <= TWIN_TOLERANCE:
        raise RuntimeError(f"bench: the loop twin of {variant} is {error:g} away from the answer.")
    return in_float64(student, critic, gold, k, variant)


def in_float64(student: Any, critic: Any, gold: Any, k: int, variant: str) -> Answer:
    """Return loss and gradient by PyTorch's autograd, in float64."""
    tensors = [torch.from_numpy(np.asarray(x, np.float64)) for x in (student, critic)]
    logits, gold = tensors[0].requires_grad_(), torch.from_numpy(gold).long()
    if variant == CROSS_ENTROPY:
        loss = torch.nn.functional.cross_entropy(logits, gold)
    else:
        loss, _ = ll.avatarl_loss(logits, tensors[1], gold, top_k=k, variant=variant)
    (gradient,) = torch.autograd.grad(loss, logits)
    return loss.item(), gradient.numpy()


def margins(student: Any, critic: Any, gold: Any, k: int) -> np.ndarray:
    """Return each position's least relative distance of a product from a threshold, [N].

    Where it is small, rounding may change the answer.
    """
    actions, present = ll.avatarl_actions(student, critic, gold, top_k=k)
    n = present.sum(-1, keepdims=True)
    mentor = np.exp(critic.astype(np.float64))
    mentor = np.take_along_axis(mentor / mentor.sum(-1, keepdims=True), actions, -1)
    smoothing = METHOD.label_smoothing
    reality = np.where(actions == gold[:, None], 1 - smoothing, smoothing / np.maximum(n - 1, 1))
    u = reality**METHOD.reality_weight * mentor**METHOD.critic_weight
    total = u.sum(-1, keepdims=True, where=present)
    apart = [np.abs(u / total / threshold - 1) for threshold in (1 / n, total / n)]
    return np.where(present, np.minimum(*apart), np.inf).min(-1)


VARIANTS = ("fixed", "original", "subset", "full")
TOLERANCE = 1e-5  # relative for the loss, absolute for a position's gradient
CLOSE = 1e-4  # to a threshold: a float32 answer may differ there and still be right


@dataclass(frozen=True)
class Answered:
    """A contender's loss and gradient [N, V] as NumPy, and the variant that they are of."""

    variant: str
    loss: Any
    gradient: Any


@dataclass(frozen=True)
class Losses:
    """N positions with V logits each; student and critic propose k tokens each."""

    vocabulary: int
    top_k: int
    count: int

    @property
    def label(self) -> str:
        return f"V = {self.vocabulary}, k = {self.top_k}, N = {self.count}"

    @property
    def size(self) -> int:
        return self.vocabulary * self.count

    @property
    def arrays(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return student logits and critic logits [N, V], float32, and gold tokens [N]."""
        return _drawn(self)

    @lru_cache(maxsize=4)  # noqa: B019  (cases live as long as the suite)
    def answer(self, variant: str) -> Answer:
        return answer(*self.arrays, self.top_k, variant)

    def check(self, contender: Contender, call: Any, output: Any) -> Verdict:
        """Compare loss and gradient with the answer in float64."""
        answered = call.read(output)
        loss, right = self.answer(answered.variant)
        error = float("inf")
        if answered.gradient.shape == right.shape:
            error = self.count * float(np.max(np.abs(answered.gradient - right)))
        error = max(abs(float(answered.loss) - loss) / abs(loss), error)
        return Verdict("" if error <= contender.tolerance else f"off by up to {error:.2g}", error)


@lru_cache(maxsize=2)
def _drawn(case: Losses) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return positions that are clear of every threshold; spares replace the few that are not."""
    generator = np.random.default_rng(0)
    count = case.count + case.count // 8 + 8
    critic = 2 * generator.standard_normal((count, case.vocabulary), dtype=np.float32)
    student = 0.7 * critic + generator.standard_normal(critic.shape, dtype=np.float32)
    noise = generator.gumbel(size=critic.shape).astype(np.float32)
    gold = (critic + noise).argmax(-1)
    clear = margins(student, critic, gold, case.top_k) > CLOSE
    chosen = np.flatnonzero(clear)[: case.count]
    if len(chosen) < case.count:
        raise RuntimeError(f"only {len(chosen)} of {count} rows are clear of every threshold")
    return student[chosen], critic[chosen], gold[chosen]
