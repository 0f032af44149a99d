"""Which tokens a training step sees: windows of T + 1 ids, a pure function of seed and step.

Nothing is kept between steps, so that a resumed run sees what it would have seen. Imports NumPy.
Loop twin: `loops.window_starts`. Tests: `tests/text/test_windows.py`.
"""

import math
from operator import index

import numpy as np

ORDERS = ("shuffled", "random")
_ROUNDS = 4


class Windows:
    """Windows [block + 1] of `tokens`: inputs are all but the last id, targets all but the first.

    order="shuffled": the windows that begin at 0, block, 2·block, …, each once an epoch, in
    another order every epoch. Every id but those of a short rest is a target once an epoch.
    order="random": windows that begin anywhere, drawn with replacement.
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
                f"tokens are integers [n]; received {tokens.dtype} of shape {tokens.shape}"
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
        self._places = len(tokens) - block
        # Rows that overlap in memory: a gather of them copies block + 1 ids at a time.
        self._views = np.lib.stride_tricks.sliding_window_view(tokens, block + 1)

    @property
    def tokens_per_epoch(self) -> int:
        """Targets in one pass over all windows."""
        return self.count * self.block

    def epoch(self, step: int, batch: int) -> float:
        """How many passes over the tokens are done after `step` steps of `batch` windows."""
        return step * batch / self.count

    def starts(self, step: int, batch: int, steps: int = 1) -> np.ndarray:
        """Where the windows [steps, batch] of the steps from `step` on begin."""
        first = index(step) * index(batch)
        draws = np.arange(first, first + steps * batch, dtype=np.uint64)
        if self.order == "random":
            starts = bits(self.seed, draws) % np.uint64(self._places)
        else:
            epochs, places = np.divmod(draws, np.uint64(self.count))
            starts = shuffled(places, self.count, bits(self.seed, epochs)) * np.uint64(self.block)
        return starts.astype(np.int64).reshape(steps, batch)

    def batches(self, step: int, batch: int, steps: int) -> np.ndarray:
        """The windows of `steps` steps from `step` on, int32 [steps, batch, block + 1]."""
        return self._views[self.starts(step, batch, steps)].astype(np.int32)

    def batch(self, step: int, batch: int) -> np.ndarray:
        """The windows of one step, int32 [batch, block + 1]."""
        return self.batches(step, batch, 1)[0]

    def fixed(self, most: int) -> np.ndarray:
        """Up to `most` windows spread evenly over the tokens, to validate with: always the same."""
        return self._views[self.fixed_starts(most)].astype(np.int32)

    def fixed_starts(self, most: int) -> np.ndarray:
        """Where those begin."""
        chosen = np.arange(min(most, self.count)) * self.count // min(most, self.count)
        return chosen * self.block


def shuffled(places: np.ndarray, count: int, keys: np.ndarray) -> np.ndarray:
    """Element `places` of the permutation of range(count) that `keys` names, both uint64 [n].

    A Feistel network on the grid rows × columns ≥ count (Black and Rogaway 2002): each round adds
    to one coordinate a hash of the other, which can be undone, so it permutes. What lands behind
    `count` goes round again.
    """
    columns = np.uint64(math.isqrt(count - 1) + 1)
    rows = np.uint64(-(-count // int(columns)))
    found, open_ = places.copy(), np.arange(len(places))
    while len(open_):
        row, column = np.divmod(found[open_], columns)
        own = keys[open_]
        for turn in range(_ROUNDS):
            row = (row + bits(own, column * np.uint64(2 * _ROUNDS) + np.uint64(2 * turn))) % rows
            column = column + bits(own, row * np.uint64(2 * _ROUNDS) + np.uint64(2 * turn + 1))
            column = column % columns
        found[open_] = row * columns + column
        open_ = open_[found[open_] >= count]
    return found


def bits(key, counter: np.ndarray) -> np.ndarray:
    """64 random bits for each draw `counter` of the generator `key`: the mixer of splitmix64."""
    z = np.uint64(key) if np.ndim(key) == 0 else key
    z = z + (counter + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))
