"""How an epoch's items are shuffled and cut into batches.

One seed gives one order, whatever library the data live in. Imports NumPy only. Tests:
`tests/replay/test_rollout_batches.py`.
"""

from collections.abc import Iterator
from itertools import pairwise

import numpy as np


class Shuffler:
    """Permutations that follow from a seed and from how many were drawn before."""

    def __init__(self, seed: int) -> None:
        self.seed, self.draws = seed, 0

    def batches(self, items, bounds, epochs: int, shuffle: bool) -> Iterator[np.ndarray]:
        """`items` cut at `bounds`, anew for each epoch."""
        for _epoch in range(epochs):
            order = items
            if shuffle:
                order = np.random.default_rng((self.seed, self.draws)).permutation(items)
                self.draws += 1
            for first, end in pairwise(bounds):
                yield order[first:end]


def batch_bounds(where: str, total: int, size, count, drop_last: bool) -> list[int]:
    """Where batches of `total` items start and end: of `size`, or `count` of them, or one."""
    if size is not None and count is not None:
        raise ValueError(f"{where}: pass batch_size or count, not both.")
    given = count if size is None else size
    if given is not None and (not isinstance(given, int | np.integer) or given < 1):
        raise ValueError(f"{where}: sizes and counts of batches are from 1 up; received {given!r}.")
    if total == 0:
        raise RuntimeError(f"{where}: there are no valid rows. Add some first.")
    if size is None:
        count = int(count or 1)
        if count > total:
            raise ValueError(f"{where}: {total} items do not make {count} batches.")
        whole = total - total % count if drop_last else total
        return (np.arange(count + 1) * whole // count).tolist()
    if drop_last and size > total:
        raise ValueError(
            f"{where}: with drop_last, {total} items make no batch of {size}. Use smaller batches."
        )
    rest = [] if drop_last or total % size == 0 else [total]
    return [*range(0, total + 1, int(size)), *rest]
