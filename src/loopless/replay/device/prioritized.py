"""A ring of transitions on the device, drawn in proportion to priorities, with importance weights.

Imports JAX, `sum_tree`, `transitions` and `words`. Twins: `replay/prioritized.py`, in loops
`reference/replay.py`. Tests: `tests/replay/test_device_prioritized.py`.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from loopless.refusals import refuse
from loopless.replay.device import sum_tree
from loopless.replay.device.layout import DeviceStore
from loopless.replay.device.transitions import Ring, RingState, leading_shape
from loopless.replay.device.words import check_words, fraction, random_words
from loopless.replay.fields import Field


class PrioritizedState(NamedTuple):
    """A ring and its priorities, already raised to alpha."""

    ring: RingState
    tree: jax.Array  # [2·leaves]
    peak: jax.Array  # the largest priority given so far

    @property
    def size(self) -> jax.Array:
        """How many slots are filled, int32."""
        return self.ring.size


@dataclass(frozen=True, repr=False)
class PrioritizedBuffer(Ring):
    """A ring of transitions drawn with P(i) = p_i^α / Σ_j p_j^α (Schaul et al. 2016).

        buffer = PrioritizedBuffer(100_000, fields, alpha=0.6)
        state = buffer.add(buffer.init(), transitions)
        batch = buffer.sample(state, key, 256, beta=0.4)             # adds "weights", "indices"
        state = buffer.update_priorities(state, batch["indices"], abs(td_errors) + 1e-6)

    New transitions have the largest priority given so far, 1 at first. One of priority 0 is never
    drawn, whatever α is. Other options are those of `RingBuffer`. Sums are of `dtype`: float64
    in x64, where draws are the host's for the same words, and float32 without.
    """

    alpha: float = 0.6
    dtype: Any = None

    def __post_init__(self) -> None:
        super().__post_init__()
        dtype = jnp.result_type(float) if self.dtype is None else self.dtype
        object.__setattr__(self, "alpha", float(self.alpha))
        object.__setattr__(self, "dtype", jnp.dtype(dtype).name)

    def _problems(self) -> list[str]:
        problems = []
        real = isinstance(self.alpha, int | float) and not isinstance(self.alpha, bool)
        if not real or not 0 <= self.alpha < math.inf:
            problems.append(f"alpha is a number from 0 up; received {self.alpha!r}")
        if self.dtype is not None:
            try:
                DeviceStore().dtype(jnp.dtype(self.dtype).name)
                sound = jnp.dtype(self.dtype).name in ("float32", "float64")
            except TypeError:
                sound = False
            if not sound:
                problems.append(f"dtype is float32, or float64 in x64; received {self.dtype!r}")
        return problems

    @property
    def leaves(self) -> int:
        """The size of the tree's lowest level."""
        return sum_tree.leaves_for(self.capacity)

    @property
    def arrays(self) -> dict[str, Field]:
        """What is allocated for each slot."""
        nodes = Field((-(-2 * self.leaves // self.capacity),), self.dtype)
        return {**self.layout.arrays, "priorities": nodes}

    def init(self) -> PrioritizedState:
        """An empty state; an error, before anything is allocated, if it does not fit."""
        tree = jnp.zeros(2 * self.leaves, self.dtype)
        return PrioritizedState(self._empty(), tree, jnp.ones((), self.dtype))

    def add(
        self, state: PrioritizedState, transitions: Mapping[str, Any], valid: Any = None
    ) -> PrioritizedState:
        """Append one transition, [n, ...] of them, or [steps, envs, ...]; the oldest give way.

        Rows whose `valid` (boolean, of the leading shape) is false are left out, and take no slot.
        """
        ring, slots = self._append(state.ring, transitions, valid)
        peaks = jnp.broadcast_to(state.peak, slots.shape)
        kept = True if valid is None else slots < self.capacity
        return state._replace(ring=ring, tree=sum_tree.write(state.tree, slots, peaks, kept))

    def sample(
        self,
        state: PrioritizedState,
        key: Any,
        batch_size: int,
        batches: int | None = None,
        *,
        beta: Any = 0.4,
    ) -> dict[str, Any]:
        """A dict of arrays [batch_size, ...], or [batches, batch_size, ...].

        With "indices" and "weights", w_i = (N·P(i))^−β over the largest of the batch. Each batch
        is stratified: one draw from each of `batch_size` equal parts of the sum. `beta` may be
        traced. There is no error in a graph: a buffer without a priority above 0 gives slot 0,
        weighted 0.
        """
        leading = leading_shape(type(self).__name__, batch_size, batches)
        return self.sample_from(state, random_words(key, leading), beta=beta)

    def sample_from(
        self, state: PrioritizedState, words: jax.Array, *, beta: Any = 0.4
    ) -> dict[str, Any]:
        """`sample`, given its random words [2, *leading]: such as one chunk's, drawn at once."""
        check_words("PrioritizedBuffer.sample_from", words, 2)
        slots, priorities = self.locate(state, words)
        weights = importance_weights(priorities, beta)
        batch = self.gather(state, slots)
        return {"indices": batch.pop("indices"), "weights": weights, **batch}

    def locate(self, state: PrioritizedState, words: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Slots [*leading] drawn by the words [2, *leading], and their priorities."""
        leading, dtype = words.shape[1:], state.tree.dtype
        part = lax.broadcasted_iota(jnp.uint32, leading, len(leading) - 1).astype(dtype)
        top = sum_tree.top_of(state.tree)
        targets = (part + fraction(words, dtype)) * (top[1] / leading[-1])
        fresh = None if dtype == jnp.float64 else fraction(words[::-1], dtype).reshape(-1)
        slots, found = sum_tree.locate(state.tree, top, targets.reshape(-1), fresh)
        return slots.reshape(leading), found.reshape(leading)

    def gather(self, state: PrioritizedState, indices: Any) -> dict[str, Any]:
        """The transitions in slots `indices`, of any shape, without weights."""
        return self._gather(state.ring, indices)

    def update_priorities(
        self, state: PrioritizedState, indices: Any, priorities: Any
    ) -> PrioritizedState:
        """Give the transitions at `indices` new `priorities`, of equal shape, raised to alpha here.

        Of an index that comes twice the last priority counts. There is no error in a graph: a
        priority that is negative, not finite or too large, and an index that is no filled slot,
        change nothing.
        """
        where = f"{type(self).__name__}.update_priorities"
        slots, given = jnp.asarray(indices), jnp.asarray(priorities)
        problems = []
        if slots.shape != given.shape:
            problems.append(f"indices has shape {slots.shape}, priorities {given.shape}")
        if not jnp.issubdtype(slots.dtype, jnp.integer):
            problems.append(f"indices has dtype {slots.dtype}, no integer")
        if given.dtype == jnp.bool_ or not jnp.isrealobj(given):
            problems.append(f"priorities has dtype {given.dtype}, no real number")
        refuse(where, problems)
        slots, given = slots.reshape(-1), given.reshape(-1).astype(state.tree.dtype)
        raised = jnp.where(given == 0, 0, given**self.alpha)
        most = jnp.finfo(state.tree.dtype).max / self.leaves  # so that no sum overflows
        kept = (given >= 0) & (raised <= most) & (slots >= 0) & (slots < state.size)
        tree = sum_tree.write(state.tree, slots, raised, kept)
        peak = jnp.max(raised, where=kept, initial=0).astype(state.peak.dtype)
        return state._replace(tree=tree, peak=jnp.maximum(state.peak, peak))


def importance_weights(priorities: jax.Array, beta: Any) -> jax.Array:
    """w_i = (p_i / min_j p_j)^−β within each batch, the last axis; float32. 0 where p_i is 0."""
    least = jnp.min(priorities, axis=-1, keepdims=True)
    ratios = jnp.where(priorities > 0, priorities / least, 1)
    weights = ratios ** -jnp.asarray(beta, priorities.dtype)
    return jnp.where(priorities > 0, weights, 0).astype(jnp.float32)
