"""The baseline to beat: an n-gram model, which counts short runs of tokens and needs no network.

    p_1(c)     = (n(c) + δ) / (n + δ V)
    p_k(c | h) = (n(hc) + α p_{k−1}(c | h')) / (n(h) + α)       h' is h without its first token

Each order adds α imaginary observations to its counts, distributed as the order below predicts
(MacKay and Peto 1995), so probabilities sum to one and none is zero.

Loop twin: `reference.text.ngram_log_probability`.
"""

from typing import NamedTuple

import numpy as np


class _Counts(NamedTuple):
    """How often each run of some length occurred. Runs are numbers in base V, sorted."""

    runs: np.ndarray
    counts: np.ndarray

    def of(self, runs: np.ndarray) -> np.ndarray:
        places = np.minimum(np.searchsorted(self.runs, runs), len(self.runs) - 1)
        return np.where(self.runs[places] == runs, self.counts[places], 0)


class NgramModel:
    """Probabilities of the next token given the last `order` − 1; a trigram model by default."""

    def __init__(
        self, tokens, vocabulary: int, *, order: int = 3, alpha: float = 16.0, delta: float = 1.0
    ) -> None:
        tokens = np.asarray(tokens)
        problems = []
        if order < 1 or vocabulary < 1 or vocabulary**order >= 1 << 62:
            problems.append(
                f"order {order} over {vocabulary} tokens: both must be at least 1, with fewer than "
                f"2⁶² possible runs"
            )
        if not (alpha > 0 and delta > 0):
            problems.append(f"alpha and delta must be above 0; received {alpha} and {delta}")
        if tokens.ndim != 1 or len(tokens) < order:
            problems.append(f"tokens must be [n] with n ≥ {order}; received shape {tokens.shape}")
        elif tokens.min() < 0 or tokens.max() >= vocabulary:
            problems.append(
                f"tokens go from {tokens.min()} to {tokens.max()}, but the vocabulary from 0 to "
                f"{vocabulary - 1}"
            )
        if problems:
            raise ValueError(f"ngram: {'; '.join(problems)}.")
        self.vocabulary, self.order, self.alpha, self.delta = vocabulary, order, alpha, delta
        self._runs = [_Counts(*np.unique(_runs(tokens, vocabulary, 1), return_counts=True))]
        self._contexts: list[_Counts] = []  # the same without each run's last token
        for length in range(2, order + 1):
            runs, counts = np.unique(_runs(tokens, vocabulary, length), return_counts=True)
            self._runs.append(_Counts(runs, counts))
            contexts, first = np.unique(runs // vocabulary, return_index=True)
            self._contexts.append(_Counts(contexts, np.add.reduceat(counts, first)))
        self._tokens = len(tokens)

    def log_probabilities(self, windows) -> np.ndarray:
        """Return log p [..., T] of all but the first token of each window [..., T + 1].

        A token near the start of a window is conditioned on the tokens that are there before it.
        """
        windows = np.asarray(windows)
        p = self._runs[0].of(windows[..., 1:].astype(np.int64)) + self.delta
        p = p / (self._tokens + self.delta * self.vocabulary)
        for length in range(2, min(self.order, windows.shape[-1]) + 1):
            runs = _runs(windows, self.vocabulary, length)
            context_counts = self._contexts[length - 2].of(runs // self.vocabulary)
            counts = self._runs[length - 1].of(runs) + self.alpha * p[..., length - 2 :]
            p[..., length - 2 :] = counts / (context_counts + self.alpha)
        return np.log(p)

    def cross_entropy(self, windows) -> float:
        """Return the mean nats per target token of windows [..., T + 1]."""
        return float(-self.log_probabilities(windows).mean())


def _runs(tokens: np.ndarray, vocabulary: int, length: int) -> np.ndarray:
    """Return each run of `length` tokens [..., n] as a number, [..., n − length + 1]."""
    tokens = tokens.astype(np.int64)
    count = tokens.shape[-1] - length + 1
    runs = tokens[..., :count]
    for offset in range(1, length):
        runs = runs * vocabulary + tokens[..., offset : count + offset]
    return runs
