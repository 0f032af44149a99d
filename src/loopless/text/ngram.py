"""The model to beat: counts of short runs of tokens, no network.

    p_1(c)     = (n(c) + δ) / (n + δ V)
    p_k(c | h) = (n(hc) + α p_{k−1}(c | h')) / (n(h) + α)       h' is h without its first token

Each order leans on the one below it as if that had been seen α times (MacKay and Peto 1995), so
probabilities sum to one and none is zero. Imports NumPy. Loop twin: `loops.ngram_log_probability`.
Tests: `tests/text/test_ngram.py`.
"""

from typing import NamedTuple

import numpy as np


class _Counts(NamedTuple):
    """How often each run of some length occurred; runs as numbers in base V, in order."""

    runs: np.ndarray
    times: np.ndarray

    def of(self, runs: np.ndarray) -> np.ndarray:
        at = np.minimum(np.searchsorted(self.runs, runs), len(self.runs) - 1)
        return np.where(self.runs[at] == runs, self.times[at], 0)


class NgramModel:
    """Probabilities of the next token given the last `order` − 1: a trigram model by default."""

    def __init__(
        self, tokens, vocabulary: int, *, order: int = 3, alpha: float = 16.0, delta: float = 1.0
    ) -> None:
        tokens = np.asarray(tokens)
        problems = []
        if order < 1 or vocabulary < 1 or vocabulary**order >= 1 << 62:
            problems.append(
                f"order {order} over {vocabulary} tokens: both are from 1 up, and there are at "
                f"most 2⁶² runs"
            )
        if not (alpha > 0 and delta > 0):
            problems.append(f"alpha and delta are more than 0; received {alpha} and {delta}")
        if tokens.ndim != 1 or len(tokens) < order:
            problems.append(f"tokens [n] with n ≥ {order}; received shape {tokens.shape}")
        elif tokens.min() < 0 or tokens.max() >= vocabulary:
            problems.append(
                f"tokens go from {tokens.min()} to {tokens.max()}, and the vocabulary from 0 to "
                f"{vocabulary - 1}"
            )
        if problems:
            raise ValueError(f"ngram: {'; '.join(problems)}.")
        self.vocabulary, self.order, self.alpha, self.delta = vocabulary, order, alpha, delta
        self._seen = [_Counts(*np.unique(_runs(tokens, vocabulary, 1), return_counts=True))]
        self._before: list[_Counts] = []  # runs of each length that another token followed
        for length in range(2, order + 1):
            runs, times = np.unique(_runs(tokens, vocabulary, length), return_counts=True)
            self._seen.append(_Counts(runs, times))
            before, first = np.unique(runs // vocabulary, return_index=True)
            self._before.append(_Counts(before, np.add.reduceat(times, first)))
        self._tokens = len(tokens)

    def log_probabilities(self, windows) -> np.ndarray:
        """log p [..., T] of all but the first token of each window [..., T + 1].

        A token near the beginning is given as many tokens as there are before it.
        """
        windows = np.asarray(windows)
        p = self._seen[0].of(windows[..., 1:].astype(np.int64)) + self.delta
        p = p / (self._tokens + self.delta * self.vocabulary)
        for length in range(2, min(self.order, windows.shape[-1]) + 1):
            runs = _runs(windows, self.vocabulary, length)
            given = self._before[length - 2].of(runs // self.vocabulary)
            leant = self._seen[length - 1].of(runs) + self.alpha * p[..., length - 2 :]
            p[..., length - 2 :] = leant / (given + self.alpha)
        return np.log(p)

    def cross_entropy(self, windows) -> float:
        """Nats per token over the targets of windows [..., T + 1]."""
        return float(-self.log_probabilities(windows).mean())


def _runs(tokens: np.ndarray, vocabulary: int, length: int) -> np.ndarray:
    """Each run of `length` tokens [..., n] as a number [..., n − length + 1]."""
    tokens = tokens.astype(np.int64)
    runs = tokens[..., : tokens.shape[-1] - length + 1]
    for offset in range(1, length):
        last = tokens.shape[-1] - length + 1 + offset
        runs = runs * vocabulary + tokens[..., offset:last]
    return runs
