"""Draw the numbers of a case, from a seeded generator or from hypothesis, which can shrink them.

A property is written once against `Source` and used twice: to make many random cases, and to
search for the smallest case that fails. Hypothesis is imported for the search only.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from time import monotonic, process_time
from typing import Any, Protocol, TypeVar

import numpy as np

SHAPES = ((5, 3), (2, 1), (8, 2), (3, 4))
SMALL = ((1, 1), (2, 1), (3, 1), (2, 2), (4, 2))

Choice = TypeVar("Choice")
Make = Callable[["Source"], dict]


class Source(Protocol):
    """What draws the random parts of a case."""

    def shape(self) -> tuple[int, int]:
        """Return a shape: [T, B], or [B, A] with A actions."""
        ...

    def numbers(self, shape: tuple[int, ...]) -> np.ndarray: ...

    def flags(self, shape: tuple[int, ...], rate: float = 0.3) -> np.ndarray: ...

    def below(self, bound: int, shape: tuple[int, ...]) -> np.ndarray: ...

    def pick(self, choices: Sequence[Choice]) -> Choice: ...


class Seeded:
    """Draws unit-scale numbers from a seeded generator, in few shapes: JAX compiles for each."""

    def __init__(
        self, seed: int | Sequence[int], shapes: Sequence[tuple[int, int]] = SHAPES
    ) -> None:
        self._rng, self._shapes = np.random.default_rng(seed), shapes

    def shape(self) -> tuple[int, int]:
        return self.pick(self._shapes)

    def numbers(self, shape: tuple[int, ...]) -> np.ndarray:
        return self._rng.standard_normal(shape)

    def flags(self, shape: tuple[int, ...], rate: float = 0.3) -> np.ndarray:
        return self._rng.random(shape) < rate

    def below(self, bound: int, shape: tuple[int, ...]) -> np.ndarray:
        return self._rng.integers(0, bound, shape)

    def pick(self, choices: Sequence[Choice]) -> Choice:
        return choices[int(self._rng.integers(len(choices)))]


class _Shrinkable:
    """Draws small whole numbers by hypothesis, which shrinks to small arrays and zeros."""

    def __init__(self, draw: Callable, shapes: Sequence[tuple[int, int]]) -> None:
        from hypothesis import strategies

        self._draw, self._st, self._shapes = draw, strategies, shapes

    def shape(self) -> tuple[int, int]:
        return self.pick(self._shapes)

    def numbers(self, shape: tuple[int, ...]) -> np.ndarray:
        return self._array(self._st.integers(-4, 4), shape, np.float64)

    def flags(self, shape: tuple[int, ...], rate: float = 0.3) -> np.ndarray:
        return self._array(self._st.booleans(), shape, np.bool_)

    def below(self, bound: int, shape: tuple[int, ...]) -> np.ndarray:
        return self._array(self._st.integers(0, bound - 1), shape, np.int64)

    def pick(self, choices: Sequence[Choice]) -> Choice:
        return self._draw(self._st.sampled_from(list(choices)))

    def _array(self, cell: Any, shape: tuple[int, ...], dtype: Any) -> np.ndarray:
        size = int(np.prod(shape))
        cells = self._draw(self._st.lists(cell, min_size=size, max_size=size))
        return np.array(cells, dtype).reshape(shape)


class _OutOfTime(BaseException):
    """Ends the search. It is no Exception, because hypothesis would shrink that as a failure."""


def smallest(
    make: Make,
    fails: Callable[[dict], bool],
    seconds: float = 5.0,
    shapes: Sequence[tuple[int, int]] = SMALL,
) -> dict | None:
    """Return the simplest failing case that `make` can make, or None if none is found.

    The search is deterministic. It returns the best case so far after `seconds` of processor time,
    or four times that on the clock.
    """
    try:
        from hypothesis import HealthCheck, Phase, find, settings
        from hypothesis import strategies as st
        from hypothesis.errors import HypothesisException
    except ModuleNotFoundError:  # then the report shows a failing case as it was drawn
        return None

    best: list[dict] = []
    end, latest = process_time() + seconds, monotonic() + 4 * seconds

    def condition(case: dict) -> bool:
        if process_time() > end or monotonic() > latest:
            raise _OutOfTime
        if not fails(case):
            return False
        best[:] = [case]  # hypothesis only tries simpler cases after this
        return True

    cases = st.composite(lambda draw: make(_Shrinkable(draw, shapes)))()
    options = settings(
        max_examples=300,
        derandomize=True,
        database=None,
        deadline=None,
        phases=(Phase.generate, Phase.shrink),
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    )
    try:
        return find(cases, condition, settings=options, random=random.Random(0))
    except (HypothesisException, _OutOfTime):
        return best[0] if best else None
