"""A ring of transitions drawn in proportion to their priorities, with importance weights.

The kernels that keep the sum tree and draw from it are in `compiled.tree`. Loop twin:
`reference.replay`. Device twin: `device.prioritized`.
"""

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from loopless.replay.fields import Field
from loopless.replay.host.ring import Ring
from loopless.replay.locks import locked
from loopless.replay.sampling import kernels
from loopless.replay.storage.file import Persistent

LARGEST = np.finfo(np.float64).max


@dataclass(frozen=True)
class Linear:
    """A number that goes from `start` to `end` in `steps` steps and stays there."""

    start: float
    end: float
    steps: int

    def __call__(self, step: int) -> float:
        return self.start + (self.end - self.start) * min(1.0, step / max(1, self.steps))


class PrioritizedReplayBuffer(Ring, Persistent):
    """A ring of transitions drawn with P(i) = p_i^α / Σ_j p_j^α (Schaul et al. 2016).

        buffer = PrioritizedReplayBuffer(100_000, fields, alpha=0.6)
        batch = buffer.sample(256, beta=0.4)                         # adds "weights", "indices"
        buffer.update_priorities(batch["indices"], abs(td_errors) + 1e-6)

    New transitions get the largest priority so far, 1 at first. A transition of priority 0 is
    never drawn, whatever α is. The other options are those of `ReplayBuffer`.
    """

    def __init__(
        self,
        capacity: int,
        fields: Mapping[str, Any],
        *,
        alpha: float = 0.6,
        seed: int = 0,
        n_step: int = 1,
        gamma: float | None = None,
        envs: int = 1,
        single_copy: str | None = None,
        storage: Literal["memory", "memmap"] = "memory",
        path: str | os.PathLike | None = None,
    ) -> None:
        _check_exponent("PrioritizedReplayBuffer", "alpha", alpha)
        options = {"seed": seed, "n_step": n_step, "gamma": gamma, "envs": envs}
        options |= {"single_copy": single_copy, "storage": storage, "path": path}
        super().__init__(capacity, fields, **options, beside=_tree_field)
        self._extra["weights"] = np.dtype(np.float32)
        self._alpha = float(alpha)
        self._leaves = _count_leaves(self.capacity)
        self._tree = np.zeros(2 * self._leaves)
        self._peak = np.ones(1)  # the largest p^α so far
        self._most = LARGEST / self._leaves  # so that no sum overflows
        self._batches_drawn = 0

    @property
    def alpha(self) -> float:
        """Return the exponent of priorities."""
        return self._alpha

    @property
    @locked
    def priorities(self) -> np.ndarray:
        """Return a copy of p^α of every filled slot."""
        return self._tree[self._leaves : self._leaves + self._size].copy()

    def add(self, **transition) -> None:
        """Append one transition, or [n, ...] of them, in place of the oldest.

        An error lists all that is wrong, and nothing is added.
        """
        lock = self._lock
        lock.acquire()  # half the cost of a `with`
        try:
            self._add(transition)
        finally:
            lock.release()

    def _add(self, transition: Mapping[str, Any]) -> None:
        first, count = self._append(transition)
        fill, peak = kernels().tree.fill, float(self._peak[0])
        if count >= self.capacity:
            fill(self._tree, 0, self.capacity, peak)
            return
        before = min(count, self.capacity - first)
        if before:
            fill(self._tree, first, before, peak)
        if count > before:
            fill(self._tree, 0, count - before, peak)

    def sample(
        self,
        batch_size: int,
        batches: int | None = None,
        *,
        beta: float | Callable[[int], float] = 0.4,
        newest: int | Literal["since_last_sample"] = 0,
        out: Mapping[str, Any] | None = None,
        library: str = "numpy",
    ) -> Any:
        """Return a `Batch`, a dict of new arrays [batch_size, ...] or [batches, batch_size, ...].

        "indices" are the slots, "weights" are w_i = (N·P(i))^−β divided by the largest of the
        batch. Each batch is stratified: one draw from each of `batch_size` equal parts of the sum.
        A callable `beta`, such as `Linear(0.4, 1.0, 100_000)`, is called with the number of batches
        drawn before. `newest` is that of `ReplayBuffer.sample`: these entries are there whatever
        their priority, and get the weight that a draw of them would have, the largest if their
        priority is 0. With `out`, a dict like the result, its arrays are filled instead.
        `library` is "numpy", "torch" (sharing memory) or "jax".
        """
        where = "PrioritizedReplayBuffer.sample"
        lock = self._lock
        lock.acquire()  # half the cost of a `with`
        try:
            plan = self._plan(where, batch_size, batches)
            newest = self._count_newest(where, newest, batch_size)
            exponent = beta(self._batches_drawn) if callable(beta) else beta
            _check_exponent(where, "beta", exponent)
            if not self._tree[1] > 0:
                raise RuntimeError(
                    f"{where}: all priorities are 0, so nothing can be drawn. "
                    f"Add a small number to priorities before update_priorities."
                )
            block, arrays = plan.allocate(where, out, library)
            indices, weights = arrays["indices"].reshape(-1), arrays["weights"].reshape(-1)
            batch = plan.leading[-1]
            kernels().tree.draw(self._tree, self._random, batch, float(exponent), indices, weights)
            if newest:
                self._append_newest(
                    indices.reshape(-1, batch), weights.reshape(-1, batch), newest, float(exponent)
                )
            self._gather(plan, block, arrays)
            self._batches_drawn += plan.count // batch
            self._sampled = self._added
            return plan.deliver(where, arrays, out, library)
        finally:
            lock.release()

    def _append_newest(self, indices, weights, newest: int, beta: float) -> None:
        """Put the newest transitions at the end of each batch, and weigh the batches anew."""
        slots = (self._head - newest + np.arange(newest)) % self.capacity
        indices[:, -newest:] = slots
        priorities = self._tree[self._leaves + indices]
        drawn = priorities > 0
        least = np.where(drawn, priorities, np.inf).min(1, keepdims=True)
        weights[:] = np.where(drawn, (least / np.where(drawn, priorities, 1.0)) ** beta, 1.0)

    @locked
    def update_priorities(self, indices, priorities) -> None:
        """Give the transitions at `indices` new `priorities`, which are raised to alpha here.

        If an index comes twice, the last priority counts. On an error nothing changes.
        """
        where = "PrioritizedReplayBuffer.update_priorities"
        slots, numbers = np.asarray(indices), np.asarray(priorities)
        if slots.shape != numbers.shape:
            raise ValueError(
                f"{where}: indices has shape {slots.shape} but priorities has shape "
                f"{numbers.shape}. Pass one priority for each index."
            )
        if slots.size == 0:
            return
        if slots.dtype.kind not in "iu" or numbers.dtype.kind not in "iuf":
            raise TypeError(
                f"{where}: indices has dtype {slots.dtype} and priorities {numbers.dtype}; pass "
                f"integers and real numbers."
            )
        slots = np.ascontiguousarray(slots, np.int64).reshape(-1)
        numbers = np.ascontiguousarray(numbers, np.float64).reshape(-1)
        tree = kernels().tree
        answer, place = tree.update(
            self._tree, self._size, slots, numbers, self._alpha, self._most, self._peak
        )
        if answer == tree.UNFILLED:
            raise IndexError(
                f"{where}: index {slots[place]} is not one of the {self._size:,} filled slots. "
                f"Nothing was changed; pass the indices that sample gave."
            )
        if answer == tree.NO_PRIORITY:
            raise ValueError(
                f"{where}: priority {numbers[place]} at position {place} is negative, not finite "
                f"or too large. Nothing was changed."
            )

    def _settings(self) -> dict[str, Any]:
        return super()._settings() | {"alpha": self._alpha}

    def _numbers(self) -> dict[str, Any]:
        leaves = self._tree[self._leaves : self._leaves + self.capacity].copy()
        peak = self._peak.copy()
        tree = {"priorities": leaves, "peak_priority": peak, "drawn": self._batches_drawn}
        return super()._numbers() | tree

    def _inconsistent(self, numbers: Mapping[str, Any]) -> list[str]:
        problems = super()._inconsistent(numbers)
        leaves, peak = numbers["priorities"], numbers["peak_priority"]
        if not ((leaves >= 0) & (leaves <= self._most)).all() or leaves[numbers["size"] :].any():
            problems.append(
                "priorities must be finite and at least 0, and 0 where the slot is empty"
            )
        if not 0 <= peak[0] <= self._most:
            problems.append(f"peak_priority must be at least 0; received {peak[0]}")
        return problems

    def _take_over(self, numbers: Mapping[str, Any]) -> None:
        super()._take_over(numbers)
        self._peak, self._batches_drawn = numbers["peak_priority"], numbers["drawn"]
        kernels().tree.rebuild(self._tree, numbers["priorities"])


def _count_leaves(capacity: int) -> int:
    """Return the smallest power of two that is at least `capacity`."""
    return 1 << (capacity - 1).bit_length()


def _tree_field(capacity: int) -> dict[str, Field]:
    """Return the tree's memory as a field of each transition, so that its bytes are counted."""
    return {"priorities": Field((-(-2 * _count_leaves(capacity) // capacity),), "float64")}


def _check_exponent(where: str, name: str, value) -> None:
    real = isinstance(value, int | float | np.integer | np.floating) and type(value) is not bool
    if not real or not 0 <= value < np.inf:
        raise ValueError(
            f"{where}: {name} must be a finite number of at least 0; received {value!r}."
        )
