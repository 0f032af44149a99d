"""A ring of transitions drawn in proportion to their priorities, with importance weights.

Imports `transitions`; Numba on the first call. Twin: `reference/replay.py`. Tests:
`tests/replay/test_prioritized.py`.
"""

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal

import numpy as np

from loopless.replay.fields import Field
from loopless.replay.host.transitions import Ring

MOST = np.finfo(np.float64).max


@cache
def tree_kernels() -> Any:
    """The compiled functions, imported when first needed."""
    from loopless.compiled import tree as numba_tree

    return numba_tree


@dataclass(frozen=True)
class Linear:
    """A number that goes from `start` to `end` in `steps` steps and stays there."""

    start: float
    end: float
    steps: int

    def __call__(self, step: int) -> float:
        return self.start + (self.end - self.start) * min(1.0, step / max(1, self.steps))


class PrioritizedReplayBuffer(Ring):
    """A ring of transitions drawn with P(i) = p_i^α / Σ_j p_j^α (Schaul et al. 2016).

        buffer = PrioritizedReplayBuffer(100_000, fields, alpha=0.6)
        batch = buffer.sample(256, beta=0.4)                         # adds "weights", "indices"
        buffer.update_priorities(batch["indices"], abs(td_errors) + 1e-6)

    New transitions have the largest priority given so far, 1 at first. One of priority 0 is never
    drawn, whatever α is. Options beside alpha are those of `ReplayBuffer`.
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
        if not _is_number(alpha) or not 0 <= alpha < np.inf:
            raise ValueError(
                f"PrioritizedReplayBuffer: alpha is a number from 0 up; received {alpha!r}."
            )
        options = {"seed": seed, "n_step": n_step, "gamma": gamma, "envs": envs}
        options |= {"single_copy": single_copy, "storage": storage, "path": path}
        super().__init__(capacity, fields, **options, beside=_tree_bytes)
        self._own["weights"] = np.dtype(np.float32)
        self._alpha = float(alpha)
        self._leaves = _leaves(self.capacity)
        self._tree = np.zeros(2 * self._leaves)
        self._peak = np.ones(1)  # the largest p^α so far
        self._most = MOST / self._leaves  # so that no sum overflows
        self._drawn = 0

    @property
    def alpha(self) -> float:
        """The exponent of priorities."""
        return self._alpha

    @property
    def priorities(self) -> np.ndarray:
        """A copy of p^α of every filled slot."""
        return self._tree[self._leaves : self._leaves + self._size].copy()

    def add(self, **transition) -> None:
        """Append one transition, or [n, ...] of them; the oldest give way.

        On an error, which lists all that is wrong, nothing is added.
        """
        first, count = self._append(transition)
        fill, peak = tree_kernels().fill, float(self._peak[0])
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
        out: Mapping[str, Any] | None = None,
        library: str = "numpy",
    ) -> Any:
        """A dict of new arrays [batch_size, ...], or [batches, batch_size, ...].

        With "indices" and "weights", w_i = (N·P(i))^−β over the largest of the batch. Each batch
        is stratified: one draw from each of `batch_size` equal parts of the sum. A callable
        `beta`, such as `Linear(0.4, 1.0, 100_000)`, is given the number of batches drawn before.
        With `out`, a dict like the result, its arrays are written instead.
        `library` is "numpy", "torch" (sharing memory) or "jax".
        """
        where = "PrioritizedReplayBuffer.sample"
        plan = self._plan(where, batch_size, batches)
        exponent = beta(self._drawn) if callable(beta) else beta
        if not _is_number(exponent) or not 0 <= exponent < np.inf:
            raise ValueError(f"{where}: beta is a number from 0 up; received {exponent!r}.")
        if not self._tree[1] > 0:
            raise RuntimeError(
                f"{where}: all priorities are 0, so that nothing can be drawn. "
                f"Add a small number to priorities before update_priorities."
            )
        block, arrays = self._arrays(where, plan, out, library)
        indices, weights = arrays["indices"].reshape(-1), arrays["weights"].reshape(-1)
        batch = plan.leading[-1]
        tree_kernels().draw(self._tree, self._random, batch, float(exponent), indices, weights)
        self._gather(plan, block, arrays)
        self._drawn += plan.count // batch
        return self._result(where, arrays, out, library)

    def update_priorities(self, indices, priorities) -> None:
        """Give the transitions at `indices` new `priorities`, raised to alpha here.

        Of an index that comes twice the last priority counts. On an error nothing changes.
        """
        where = "PrioritizedReplayBuffer.update_priorities"
        slots, given = np.asarray(indices), np.asarray(priorities)
        if slots.shape != given.shape:
            raise ValueError(
                f"{where}: indices has shape {slots.shape} but priorities has shape "
                f"{given.shape}. Pass one priority for each index."
            )
        if slots.size == 0:
            return
        if slots.dtype.kind not in "iu" or given.dtype.kind not in "iuf":
            raise TypeError(
                f"{where}: indices has dtype {slots.dtype} and priorities {given.dtype}; pass "
                f"integers and real numbers."
            )
        slots = np.ascontiguousarray(slots, np.int64).reshape(-1)
        given = np.ascontiguousarray(given, np.float64).reshape(-1)
        kernels = tree_kernels()
        answer, place = kernels.update(
            self._tree, self._size, slots, given, self._alpha, self._most, self._peak
        )
        if answer == kernels.UNFILLED:
            raise IndexError(
                f"{where}: index {slots[place]} is not one of the {self._size:,} filled slots. "
                f"Nothing was changed; pass the indices that sample gave."
            )
        if answer == kernels.NO_PRIORITY:
            raise ValueError(
                f"{where}: priority {given[place]} at position {place} is negative, not finite or "
                f"too large. Nothing was changed."
            )

    def _settings(self) -> dict[str, Any]:
        return super()._settings() | {"alpha": self._alpha}

    def _numbers(self) -> dict[str, Any]:
        leaves = self._tree[self._leaves : self._leaves + self.capacity].copy()
        peak = self._peak.copy()
        tree = {"priorities": leaves, "peak_priority": peak, "drawn": self._drawn}
        return super()._numbers() | tree

    def _inconsistent(self, read: Mapping[str, Any]) -> list[str]:
        problems = super()._inconsistent(read)
        leaves, peak = read["priorities"], read["peak_priority"]
        if not ((leaves >= 0) & (leaves <= self._most)).all() or leaves[read["size"] :].any():
            problems.append("priorities are not finite numbers from 0 up, and 0 where empty")
        if not 0 <= peak[0] <= self._most:
            problems.append(f"peak_priority is {peak[0]}, no number from 0 up")
        return problems

    def _take_over(self, read: Mapping[str, Any]) -> None:
        super()._take_over(read)
        self._peak, self._drawn = read["peak_priority"], read["drawn"]
        tree_kernels().rebuild(self._tree, read["priorities"])


def _leaves(capacity: int) -> int:
    """The power of two from `capacity` up."""
    return 1 << (capacity - 1).bit_length()


def _tree_bytes(capacity: int) -> dict[str, Field]:
    return {"priorities": Field((-(-2 * _leaves(capacity) // capacity),), "float64")}


def _is_number(x) -> bool:
    return isinstance(x, int | float | np.integer | np.floating) and not isinstance(x, bool)
