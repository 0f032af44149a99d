"""Where the numbers of a case come from: a seeded generator, or hypothesis, which can shrink them.

A property is written once against `Source` and serves both: many cases at random, and the search
for the smallest one that fails. Imports NumPy, and hypothesis when a case is to be shrunk. Tests:
`tests/verify/test_sources.py`.
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
    """What a case is made of."""

    def shape(self) -> tuple[int, int]:
        """[T, B], or [B, A]."""
        ...

    def numbers(self, shape: tuple[int, ...]) -> np.ndarray: ...

    def flags(self, shape: tuple[int, ...], rate: float = 0.3) -> np.ndarray: ...

    def below(self, bound: int, shape: tuple[int, ...]) -> np.ndarray: ...

    def pick(self, choices: Sequence[Choice]) -> Choice: ...


class Seeded:
    """Numbers of unit scale from a seeded generator, in a few shapes: JAX compiles each anew."""

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


class _Drawn:
    """Small whole numbers from hypothesis, which prefers few of them, and zeros."""

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

    def _array(self, one: Any, shape: tuple[int, ...], dtype: Any) -> np.ndarray:
        size = int(np.prod(shape))
        cells = self._draw(self._st.lists(one, min_size=size, max_size=size))
        return np.array(cells, dtype).reshape(shape)


class _TimeOver(BaseException):
    """Not an Exception: hypothesis would take it for a failure, and shrink it."""


def smallest(
    make: Make,
    fails: Callable[[dict], bool],
    seconds: float = 5.0,
    shapes: Sequence[tuple[int, int]] = SMALL,
) -> dict | None:
    """The simplest case of a property that still fails, or None if hypothesis finds none.

    The search is the same each time. It ends with the best so far after `seconds` of work, or four
    times as many of waiting for the machine.
    """
    try:
        from hypothesis import HealthCheck, Phase, find, settings
        from hypothesis import strategies as st
        from hypothesis.errors import HypothesisException
    except ModuleNotFoundError:  # then a case that fails is shown as it came
        return None

    best: list[dict] = []
    end, latest = process_time() + seconds, monotonic() + 4 * seconds

    def condition(case: dict) -> bool:
        if process_time() > end or monotonic() > latest:
            raise _TimeOver
        if not fails(case):
            return False
        best[:] = [case]  # hypothesis only goes on to simpler ones
        return True

    cases = st.composite(lambda draw: make(_Drawn(draw, shapes)))()
    chosen = settings(
        max_examples=300,
        derandomize=True,
        database=None,
        deadline=None,
        phases=(Phase.generate, Phase.shrink),
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    )
    try:
        return find(cases, condition, settings=chosen, random=random.Random(0))
    except (HypothesisException, _TimeOver):
        return best[0] if best else None
