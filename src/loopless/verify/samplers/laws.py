"""The laws that samplers must follow, and the laws that wrong samplers follow instead.

`misfit` compares draws with a law by Pearson's χ² over cells, with the bound

    P(χ²_k ≥ k + 2√(k t) + 2t) ≤ e^−t          Laurent and Massart 2000, lemma 1

With t = 14 a right sampler fails at most once in a million checks. `Ring`, `Priorities` and
`Stream` are buffers to draw from: `arguments` returns what a sampler is given, and `problems` says
what is wrong with its draws.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from loopless.reference.episodic import gap_probabilities
from loopless.reference.replay import importance_weights

T = 14.0
LEAST_EXPECTED = 8


def misfit(cells: np.ndarray, probabilities: np.ndarray) -> str:
    """Return what is wrong with draws of `cells` that should have `probabilities`, or "".

    Neighboring cells are merged until each is expected often enough for χ².
    """
    draws = len(cells)
    counts = np.bincount(cells, minlength=len(probabilities))
    if len(counts) > len(probabilities):
        return "draws lie outside the law's cells"
    if counts[probabilities == 0].any():
        return f"{counts[probabilities == 0].sum()} of {draws} draws have probability 0"
    groups = _groups(draws * probabilities)
    expected = np.bincount(groups, draws * probabilities)
    observed = np.bincount(groups, counts)
    freedom = len(expected) - 1
    statistic = float((((observed - expected) ** 2) / expected).sum())
    limit = freedom + 2 * math.sqrt(freedom * T) + 2 * T
    if statistic <= limit:
        return ""
    return f"χ² is {statistic:.0f} on {freedom} degrees of freedom; {limit:.0f} is allowed"


def _groups(expected: np.ndarray) -> np.ndarray:
    """Return each cell's group: neighbors share one until enough draws are expected in it."""
    groups, group, so_far = np.zeros(len(expected), np.int64), 0, 0.0
    for cell, number in enumerate(expected.tolist()):
        groups[cell] = group
        so_far += number
        if so_far >= LEAST_EXPECTED:
            group, so_far = group + 1, 0.0
    return np.minimum(groups, max(0, group - 1))  # what is left at the end joins the last group


@dataclass(frozen=True)
class Problem:
    """One property of draws; `words` says how the draws lack it, and is "" if they have it."""

    name: str
    words: str = ""
    diagnosis: str = ""


@dataclass(frozen=True)
class Ring:
    """A buffer with `size` filled slots, all drawn equally often."""

    size: int = 37

    def arguments(self) -> dict:
        return {"size": self.size}

    def problems(self, outputs: list[np.ndarray], batch: int) -> Iterator[Problem]:
        slots = outputs[0].astype(np.int64)
        outside = (slots < 0) | (slots >= self.size)
        words = f"{outside.mean():.1%} of draws lie outside 0 … {self.size - 1}"
        yield Problem(
            "filled slots only",
            words if outside.any() else "",
            "Draws slots that hold nothing yet.",
        )
        inside = slots[~outside]
        even = np.full(self.size, 1 / self.size)
        words, counts = misfit(inside, even), np.bincount(inside, minlength=self.size)
        diagnosis = "Draws some slots more often than others."
        if counts[-1] == 0:
            diagnosis = "Never draws the newest slot: the upper bound is one too small."
        elif counts[0] == 0:
            diagnosis = "Never draws the oldest slot: the lower bound is one too large."
        yield Problem("every slot alike", words, diagnosis)


@dataclass(frozen=True)
class Priorities:
    """A buffer with priorities, some of them 0: P(i) = p_i^α / Σ p^α."""

    alpha: float | None  # None if the function does not take it
    beta: float | None

    @cached_property
    def values(self) -> np.ndarray:
        return np.array([1.0, 2.0, 0.0, 4.0, 0.5, 8.0, 1.5, 0.0, 3.0, 6.0])

    def arguments(self) -> dict:
        exponents = {"alpha": self.alpha, "beta": self.beta}
        return {"priorities": self.values, "size": len(self.values), **exponents}

    def probabilities(self, alpha: float) -> np.ndarray:
        raised = np.where(self.values > 0, self.values**alpha, 0.0)
        return raised / raised.sum()

    def problems(self, outputs: list[np.ndarray], batch: int) -> Iterator[Problem]:
        slots = outputs[0].astype(np.int64)
        alpha = 1.0 if self.alpha is None else self.alpha
        law = self.probabilities(alpha)
        outside = (slots < 0) | (slots >= len(law))
        empty = np.zeros(len(slots), bool)
        empty[~outside] = law[slots[~outside]] == 0
        off = outside | empty
        yield Problem(
            "never a slot of priority 0",
            f"{off.mean():.1%} of draws are of priority 0 or no slot at all" if off.any() else "",
            "Draws slots whose priority is 0: empty ones come out of the buffer.",
        )
        words = misfit(slots[~off], law)
        other = self._other_law(slots[~outside], alpha, self.values > 0)
        yield Problem("in proportion to the priorities", words, other)
        if len(outputs) > 1 and self.beta is not None and not off.any() and not words:
            yield self._weights(slots.reshape(-1, batch), outputs[1].reshape(-1, batch), law)

    def _other_law(self, slots: np.ndarray, alpha: float, positive: np.ndarray) -> str:
        ranks = np.zeros(len(positive))
        ranks[np.argsort(-self.values)] = 1 / np.arange(1, len(positive) + 1)
        others = {
            "Leaves α out: draws in proportion to the priorities themselves.": (
                self.probabilities(1.0)
            ),
            "Draws every slot alike: the priorities have no effect.": positive / positive.sum(),
            "Draws every slot alike, empty ones too: the priorities have no effect.": np.full(
                len(positive), 1 / len(positive)
            ),
            "Raises the priorities to α twice.": self.probabilities(alpha**2),
            "Takes a softmax of the priorities in place of their share.": _softmax(self.values),
            "Draws by rank, not in proportion.": ranks / ranks.sum(),
        }
        for words, law in others.items():
            if not misfit(slots, law):
                return words
        return "Draws by another law than p^α / Σ p^α."

    def _weights(self, slots: np.ndarray, weights: np.ndarray, law: np.ndarray) -> Problem:
        name, beta, count = "importance weights", float(self.beta or 0.0), int((law > 0).sum())
        share, weights = law[slots], weights.astype(np.float64)
        truth = np.array([importance_weights(row.tolist(), 1.0, len(law), beta) for row in share])
        largest = (count * law[law > 0].min()) ** -beta
        if _close(weights, truth) or _close(weights, (count * share) ** -beta / largest):
            return Problem(name)
        raw = [(n * share) ** -beta for n in (count, len(law))]
        summed = raw[0] / raw[0].sum(-1, keepdims=True)
        others = {
            "Does not divide the weights by the largest.": raw,
            "Divides the weights by their sum, not by the largest.": [summed],
            "Divides the weights by their mean, not by the largest.": [summed * slots.shape[1]],
            "Leaves β out of the weights.": [share.min(-1, keepdims=True) / share],
            "Turns the weights round: what is drawn often must weigh less.": [
                (share / share.max(-1, keepdims=True)) ** beta,
                *[x**-1 for x in raw],
            ],
            "Gives every sample the weight 1.": [np.ones_like(weights)],
            "Takes priorities for probabilities in the weights.": [self.values[slots] ** -beta],
        }
        matching = (w for w, laws in others.items() if any(_close(weights, x) for x in laws))
        diagnosis = next(matching, "Weighs by another law.")
        return Problem(name, "are not (N·P)^−β over the largest", diagnosis)


@dataclass(frozen=True)
class Stream:
    """A buffer of consecutive episodes; a draw is a state and a later state of its episode."""

    lengths: tuple[int, ...]
    gamma: float

    @cached_property
    def horizons(self) -> np.ndarray:
        """Return how many states of its episode follow each state."""
        return np.concatenate([np.arange(n - 1, -1, -1) for n in self.lengths])

    @cached_property
    def episode(self) -> np.ndarray:
        return np.repeat(np.arange(len(self.lengths)), self.lengths)

    def arguments(self) -> dict:
        ends = self.horizons == 0
        starts = np.concatenate([[0], np.cumsum(self.lengths)[:-1]])
        return {
            "ends": ends,
            "lengths": np.array(self.lengths),
            "offsets": starts,
            "size": len(ends),
            "gamma": self.gamma,
        }

    def problems(self, outputs: list[np.ndarray], batch: int) -> Iterator[Problem]:
        first, second = (x.astype(np.int64) for x in outputs[:2])
        size = len(self.horizons)
        known = (first >= 0) & (first < size) & (second >= 0) & (second < size)
        words = "" if known.all() else f"{(~known).mean():.1%} of pairs were never stored"
        yield Problem("stored states only", words, "Draws states beyond what is stored.")
        first, second = first[known], second[known]
        gaps, crossing = second - first, self.episode[first] != self.episode[second]
        yield self._inside(first, crossing)
        backward = ~crossing & (gaps < 1)
        share = f"{backward.mean():.1%} of pairs have a gap below 1" if backward.any() else ""
        yield Problem(
            "a later state",
            share,
            "Pairs states with themselves: gaps begin at 0 where the next state is at 1.",
        )
        if not crossing.any() and not backward.any():  # else the starts and gaps are wrong anyway
            yield self._starts(first)
            yield self._gaps(first, gaps)

    def _inside(self, first: np.ndarray, crossing: np.ndarray) -> Problem:
        name = "inside of one episode"
        if not crossing.any():
            return Problem(name)
        share = f"{crossing.mean():.1%} of pairs"
        diagnosis = f"Samples cross episode ends ({share})."
        beginning = int(self.episode[first[crossing]].min())
        if beginning >= 20:  # the first episodes are right
            diagnosis = (
                f"Samples cross episode ends ({share}) from episode {beginning} on: its table of "
                "ends is too short for the rest."
            )
        elif (self.horizons[first[crossing]] == 0).all():
            diagnosis = (
                f"Samples cross episode ends ({share}): the last state of an episode is drawn as a "
                "start."
            )
        return Problem(name, f"{share} cross the end of an episode", diagnosis)

    def _starts(self, first: np.ndarray) -> Problem:
        name, can = "every start alike", self.horizons > 0
        even = can / can.sum()
        counts = np.bincount(self.episode, can)
        by_episode = np.where(can, 1 / np.maximum(counts[self.episode], 1), 0.0)
        by_episode /= by_episode.sum()
        words = misfit(first, even)
        if words and misfit(first, by_episode):
            return Problem(name, words, "Draws some starts more often than others.")
        return Problem(name)

    def _gaps(self, first: np.ndarray, gaps: np.ndarray) -> Problem:
        name = "truncated geometric gaps"
        horizons = self.horizons[first]
        words = self._misfit(horizons, gaps, _truncated)
        if not words:
            return Problem(name)
        others = {
            "Cuts gaps off at the end of the episode: its last state is drawn too often.": _clamped,
            "Draws every later state alike: the discount has no effect.": _even,
            "Never reaches the last state of an episode: the horizon is one too short.": _short,
            "Takes 1 − γ for γ.": lambda n, gamma: _truncated(n, 1 - gamma),
        }
        for diagnosis, law in others.items():
            if not self._misfit(horizons, gaps, law):
                return Problem(name, words, diagnosis)
        return Problem(name, words, "Draws gaps by another law than the truncated geometric one.")

    def _misfit(self, horizons: np.ndarray, gaps: np.ndarray, law) -> str:
        """Return how gaps differ from a law, given how many states follow each start; "" if not."""
        longest = int(self.horizons.max())
        expected = np.zeros((longest + 1, longest + 1))
        share = np.bincount(horizons, minlength=longest + 1) / len(horizons)
        for n in range(1, longest + 1):
            chances = law(n, self.gamma)
            expected[n, 1 : len(chances) + 1] = share[n] * np.asarray(chances)
        return misfit(horizons * (longest + 1) + gaps, expected.reshape(-1))


def _truncated(n: int, gamma: float) -> list[float]:
    return gap_probabilities(n, gamma)


def _clamped(n: int, gamma: float) -> list[float]:
    chances = [(1 - gamma) * gamma**k for k in range(n)]
    return [*chances[:-1], gamma ** (n - 1)]


def _even(n: int, gamma: float) -> list[float]:
    return [1 / n] * n


def _short(n: int, gamma: float) -> list[float]:
    return gap_probabilities(max(n - 1, 1), gamma)


def _softmax(x: np.ndarray) -> np.ndarray:
    exponentials = np.exp(x - x.max())
    return exponentials / exponentials.sum()


def _close(x: np.ndarray, y: np.ndarray) -> bool:
    return bool(np.allclose(x, y, rtol=1e-4, atol=1e-7))
