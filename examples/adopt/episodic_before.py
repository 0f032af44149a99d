"""A sampler of successors in the manner of asymexp's episodic buffer: a search for each sample."""

import numpy as np


class Buffer:
    """Keeps arrays [episodes, steps]; the last two observations of an episode are marked."""

    def __init__(self, obs, terminals, lengths, seed=0):
        self.obs, self.terminals, self.lengths = obs, terminals, lengths
        self.rng = np.random.default_rng(seed)

    def sample(self, count, discount=0.9):
        """Return observations and successors at geometric distances within the episode."""
        rows = self.rng.integers(len(self.lengths), size=count)
        pairs = []
        for row in rows:
            length = self.lengths[row]
            while True:
                start = self.rng.integers(length - 1)
                marks = np.flatnonzero(self.terminals[row, start:length])
                if not (len(marks) and marks[0] == 0 and self.terminals[row, start - 1]):
                    break  # a final observation starts nothing
            end = marks[min(1, len(marks) - 1)] if len(marks) else length - 1 - start
            law = discount ** np.arange(end)
            pairs.append((start, start + 1 + self.rng.choice(end, p=law / law.sum())))
        starts, ends = np.array(pairs).T
        return self.obs[rows, starts], self.obs[rows, ends]
