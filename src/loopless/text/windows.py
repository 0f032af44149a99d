"""Which tokens a training step sees: windows of T + 1 ids, a pure function of seed and step.

No state is kept between steps, so a resumed run sees exactly the windows it would have seen.
Loop twins: `reference.text.window_starts`, `shuffled_place` and `random_bits`.
"""

import math
from operator import index

import numpy as np

ORDERS = ("shuffled", "random")
_ROUNDS = 4


class Windows:
    """Windows [block + 1] of `tokens`: inputs are all but the last id, targets all but the first.

    order="shuffled": the windows that start at 0, block, 2·block, …, each once per epoch, in a new
    order every epoch. So each id is a target once per epoch, except a short rest at the end.
    order="random": windows that start anywhere, drawn with replacement.
    """

    def __init__(
        self, tokens: np.ndarray, block: int, *, seed: int = 0, order: str = "shuffled"
    ) -> None:
        problems = []
        if order not in ORDERS:
            problems.append(f"order={order!r} is unknown; choose {' or '.join(ORDERS)}")
        if isinstance(block, bool) or not isinstance(block, int) or block < 1:
            problems.append(f"block must be an integer of at least 1; received {block!r}")
        elif tokens.ndim != 1 or tokens.dtype.kind not in "iu":
            problems.append(
                f"tokens must be integers [n]; received {tokens.dtype} of shape {tokens.shape}"
            )
        elif len(tokens) <= block:
            problems.append(
                f"{len(tokens):,} tokens are too few for a window of {block:,} and the token after "
                f"it; give more text, or a smaller block"
            )
        if problems:
            raise ValueError(f"windows: {'; '.join(problems)}.")
        self.block, self.seed, self.order = block, index(seed) % (1 << 64), order
        self.count = (len(tokens) - 1) // block
        self._possible_starts = len(tokens) - block
        # Overlapping views of the same memory: gathering one copies block + 1 ids at once.
        self._views = np.lib.stride_tricks.sliding_window_view(tokens, block + 1)

    @property
    def tokens_per_epoch(self) -> int:
        """Return the number of targets in one pass over all windows."""
        return self.count * self.block

    def epoch(self, step: int, batch: int) -> float:
        """Return how many passes over the tokens `step` steps of `batch` windows make."""
        return step * batch / self.count

    def starts(self, step: int, batch: int, steps: int = 1) -> np.ndarray:
        """Return where the windows of `steps` steps from `step` on start, [steps, batch]."""
        first = index(step) * index(batch)
        draws = np.arange(first, first + steps * batch, dtype=np.uint64)
        if self.order == "random":
            starts = random_bits(self.seed, draws) % np.uint64(self._possible_starts)
        else:
            epochs, places = np.divmod(draws, np.uint64(self.count))
            places = shuffle(places, self.count, random_bits(self.seed, epochs))
            starts = places * np.uint64(self.block)
        return starts.astype(np.int64).reshape(steps, batch)

    def batches(self, step: int, batch: int, steps: int) -> np.ndarray:
        """Return the windows of `steps` steps from `step` on, int32 [steps, batch, block + 1]."""
        return self._views[self.starts(step, batch, steps)].astype(np.int32)

    def batch(self, step: int, batch: int) -> np.ndarray:
        """Return the windows of one step, int32 [batch, block + 1]."""
        return self.batches(step, batch, 1)[0]

    def fixed(self, limit: int) -> np.ndarray:
        """Return up to `limit` windows, spread evenly and always the same, to validate with."""
        return self._views[self.fixed_starts(limit)].astype(np.int32)

    def fixed_starts(self, limit: int) -> np.ndarray:
        """Return where the windows of `fixed` start."""
        count = min(limit, self.count)
        return np.arange(count) * self.count // count * self.block


def shuffle(places: np.ndarray, count: int, keys: np.ndarray) -> np.ndarray:
    """Return elements `places` of the permutations of range(count) that `keys` select.

    Both are uint64 [n]. This is a Feistel network on a grid of rows × columns ≥ count (Black and
    Rogaway 2002): each round adds to one coordinate a hash of the other. That can be undone, so
    the whole is a permutation of the grid. A result of `count` or more is sent through again until
    it lands below `count`.
    """
    columns = np.uint64(math.isqrt(count - 1) + 1)
    rows = np.uint64(-(-count // int(columns)))
    results, pending = places.copy(), np.arange(len(places))
    while len(pending):
        row, column = np.divmod(results[pending], columns)
        key = keys[pending]
        for turn in range(_ROUNDS):
            counter = column * np.uint64(2 * _ROUNDS) + np.uint64(2 * turn)
            row = (row + random_bits(key, counter)) % rows
            counter = row * np.uint64(2 * _ROUNDS) + np.uint64(2 * turn + 1)
            column = (column + random_bits(key, counter)) % columns
        results[pending] = row * columns + column
        pending = pending[results[pending] >= count]
    return results


def random_bits(key, counter: np.ndarray) -> np.ndarray:
    """Return 64 random bits for each draw `counter` of the generator `key`, by splitmix64."""
    z = np.uint64(key) if np.ndim(key) == 0 else key
    z = z + (counter + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))
