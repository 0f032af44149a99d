"""The laws that samplers must follow, and those that wrong ones follow instead, with their words.

Draws are told from a law by Pearson's χ², by the bound of `chi_squared`: a right sampler is
called wrong once in a million checks. Imports NumPy. Tests: `tests/verify/test_samplers.py`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from loopless.reference.episodic import gap_probabilities
from loopless.reference.replay import importance_weights
from loopless.verify.samplers.chi_squared import misfit


@dataclass(frozen=True)
class Problem:
    """One property of draws: "" if they have it, else what was seen, and perhaps a diagnosis."""

    name: str
    words: str = ""
    diagnosis: str = ""


@dataclass(frozen=True)
class Ring:
    """A buffer with so many filled slots, drawn from evenly."""

    size: int = 37

    def given(self) -> dict:
        return {"size": self.size}

    def problems(self, outputs: list[np.ndarray], batch: int) -> Iterator[Problem]:
        drawn = outputs[0].astype(np.int64)
        outside = (drawn < 0) | (drawn >= self.size)
        yield Problem(
            "filled slots only",
            f"{outside.mean():.1%} of draws lie outside 0 … {self.size - 1}"
            if outside.any()
            else "",
            "Draws slots that hold nothing yet.",
        )
        inside = drawn[~outside]
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
    """Slots with priorities, some of them 0; P(i) = p_i^α / Σ p^α."""

    alpha: float | None  # None where the function is not told of one
    beta: float | None

    @cached_property
    def values(self) -> np.ndarray:
        return np.array([1.0, 2.0, 0.0, 4.0, 0.5, 8.0, 1.5, 0.0, 3.0, 6.0])

    def given(self) -> dict:
        return {"priorities": self.values, "size": len(self.values)}

    def probabilities(self, alpha: float) -> np.ndarray:
        raised = np.where(self.values > 0, self.values**alpha, 0.0)
        return raised / raised.sum()

    def problems(self, outputs: list[np.ndarray], batch: int) -> Iterator[Problem]:
        drawn = outputs[0].astype(np.int64)
        alpha = 1.0 if self.alpha is None else self.alpha
        law = self.probabilities(alpha)
        outside = (drawn < 0) | (drawn >= len(law))
        empty = np.zeros(len(drawn), bool)
        empty[~outside] = law[drawn[~outside]] == 0
        off = outside | empty
        yield Problem(
            "never a slot of priority 0",
            f"{off.mean():.1%} of draws are of priority 0 or no slot at all" if off.any() else "",
            "Draws slots whose priority is 0: empty ones come out of the buffer.",
        )
        words = misfit(drawn[~off], law)
        other = self._other_law(drawn[~outside], alpha, self.values > 0)
        yield Problem("in proportion to the priorities", words, other)
        if len(outputs) > 1 and self.beta is not None and not off.any() and not words:
            yield self._weights(drawn.reshape(-1, batch), outputs[1].reshape(-1, batch), law)

    def _other_law(self, drawn: np.ndarray, alpha: float, positive: np.ndarray) -> str:
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
            if not misfit(drawn, law):
                return words
        return "Draws by another law than p^α / Σ p^α."

    def _weights(self, drawn: np.ndarray, got: np.ndarray, law: np.ndarray) -> Problem:
        name, beta, count = "importance weights", float(self.beta or 0.0), int((law > 0).sum())
        share, got = law[drawn], got.astype(np.float64)
        truth = np.array([importance_weights(row.tolist(), 1.0, len(law), beta) for row in share])
        largest = (count * law[law > 0].min()) ** -beta
        if _close(got, truth) or _close(got, (count * share) ** -beta / largest):
            return Problem(name)
        raw = [(n * share) ** -beta for n in (count, len(law))]
        summed = raw[0] / raw[0].sum(-1, keepdims=True)
        others = {
            "Does not divide the weights by the largest.": raw,
            "Divides the weights by their sum, not by the largest.": [summed],
            "Divides the weights by their mean, not by the largest.": [summed * drawn.shape[1]],
            "Leaves β out of the weights.": [share.min(-1, keepdims=True) / share],
            "Turns the weights round: what is drawn often must weigh less.": [
                (share / share.max(-1, keepdims=True)) ** beta,
                *[x**-1 for x in raw],
            ],
            "Gives every sample the weight 1.": [np.ones_like(got)],
            "Takes priorities for probabilities in the weights.": [self.values[drawn] ** -beta],
        }
        words = next((w for w, many in others.items() if any(_close(got, x) for x in many)), "")
        return Problem(name, "are not (N·P)^−β over the largest", words or "Weighs by another law.")


@dataclass(frozen=True)
class Stream:
    """Episodes one after the other; pairs of a state and a later one of its episode."""

    lengths: tuple[int, ...]
    gamma: float

    @cached_property
    def horizons(self) -> np.ndarray:
        """How many states of its episode follow each."""
        return np.concatenate([np.arange(n - 1, -1, -1) for n in self.lengths])

    @cached_property
    def episode(self) -> np.ndarray:
        return np.repeat(np.arange(len(self.lengths)), self.lengths)

    def given(self) -> dict:
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
        if not crossing.any() and not backward.any():  # what follows would follow from that
            yield self._starts(first)
            yield self._gaps(first, gaps)

    def _inside(self, first: np.ndarray, crossing: np.ndarray) -> Problem:
        name = "inside of one episode"
        if not crossing.any():
            return Problem(name)
        share = f"{crossing.mean():.1%} of pairs"
        diagnosis = f"Samples cross episode ends ({share})."
        beginning = int(self.episode[first[crossing]].min())
        if beginning >= 20:  # the first episodes are all right
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
        """Gaps against a law of them, given how many states follow each start."""
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
