"""Ring buffers as lists of transitions, one at a time, which `replay/` is tested against."""

from collections.abc import Mapping, Sequence
from typing import Any


class TransitionList:
    """The last `capacity` transitions in the order in which they came, each with its slot."""

    def __init__(self, capacity: int, envs: int = 1) -> None:
        self.capacity, self.envs, self.added = capacity, envs, 0
        self.rows: list[tuple[int, Mapping[str, Any]]] = []

    def add(self, transition: Mapping[str, Any]) -> None:
        """Append one transition, and drop the oldest if there are too many."""
        if len(self.rows) == self.capacity:
            self.rows.pop(0)
        self.rows.append((self.added % self.capacity, transition))
        self.added += 1

    def at(self, slot: int) -> Mapping[str, Any]:
        """Return the transition in a slot."""
        for filled, transition in self.rows:
            if filled == slot:
                return transition
        raise IndexError(f"slot {slot} is empty")

    def newest(self, count: int) -> list[int]:
        """Return the slots of the `count` newest transitions, the newest last."""
        return [slot for slot, _ in self.rows[len(self.rows) - count :]]

    def window(self, slot: int, n: int, gamma: float) -> dict[str, Any]:
        """Return the n-step transition from a slot on.

            R = Σ_{k<h} γ^k r_k,  discount γ^h

        h is n, or less if a step before it terminated or was truncated, or if the stream has no
        more steps. `next_obs` and the flags are those of the last step, other fields of the first.
        """
        place = [filled for filled, _ in self.rows].index(slot)
        first = self.rows[place][1]
        total, discount, steps, last = 0.0, 1.0, 0, first
        while place < len(self.rows) and steps < n:
            last = self.rows[place][1]
            total += discount * float(last["reward"])
            discount *= gamma
            steps += 1
            if last["terminated"] or last["truncated"]:
                break
            place += self.envs
        ends = {name: last[name] for name in ("next_obs", "terminated", "truncated")}
        return {**first, **ends, "reward": total, "discount": discount, "steps": steps}


def draw_by_priority(priorities: Sequence[float], targets: Sequence[float]) -> list[int]:
    """Return for each target the first slot whose cumulative sum exceeds it, by a linear scan.

    A target that no sum exceeds gets the last slot whose priority is not 0.
    """
    drawn = []
    for target in targets:
        total, chosen = 0.0, None
        for slot, priority in enumerate(priorities):
            if priority == 0:
                continue
            total += priority
            chosen = slot
            if total > target:
                break
        if chosen is None:
            raise RuntimeError("draw_by_priority: all priorities are 0; nothing can be drawn.")
        drawn.append(chosen)
    return drawn


def importance_weights(
    drawn: Sequence[float], total: float, count: int, beta: float
) -> list[float]:
    """Return w_i = (N·P(i))^−β over the largest of the batch, P(i) = p_i / Σ_j p_j.

    `drawn` are the priorities of the batch, `total` the sum of all `count`.
    """
    weights = [(count * priority / total) ** -beta for priority in drawn]
    return [weight / max(weights) for weight in weights]


class PriorityList:
    """The priorities of a ring of transitions, already raised to alpha."""

    def __init__(self, capacity: int, alpha: float) -> None:
        self.slots, self.alpha, self.peak, self.added = [0.0] * capacity, alpha, 1.0, 0

    def add(self) -> None:
        """Give the next slot the largest priority so far."""
        self.slots[self.added % len(self.slots)] = self.peak
        self.added += 1

    def update(self, indices: Sequence[int], priorities: Sequence[float]) -> None:
        """Set priorities one after the other, so that the last of a duplicate counts."""
        for slot, priority in zip(indices, priorities, strict=True):
            self.slots[slot] = 0.0 if priority == 0 else priority**self.alpha
            self.peak = max(self.peak, self.slots[slot])
