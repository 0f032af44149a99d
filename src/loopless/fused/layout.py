"""Many arrays as one flat vector for each dtype: a compiled call pays for every argument."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from typing import Any

import jax.numpy as jnp
import numpy as np


@dataclass(frozen=True)
class Layout:
    """Arrays, each in a cell; the cells of one dtype stand one after the other in a vector."""

    shapes: list[tuple[int, ...]]
    dtypes: list[np.dtype]

    @cached_property
    def kinds(self) -> list[np.dtype]:
        """Return the dtypes that occur, in the order of the vectors."""
        return sorted(set(self.dtypes), key=str)

    def cells(self, kind: np.dtype) -> list[int]:
        """Return the cells of one dtype."""
        return [cell for cell, dtype in enumerate(self.dtypes) if dtype == kind]

    def sizes(self, kind: np.dtype) -> list[int]:
        """Return how long the cells of one dtype are."""
        return [math.prod(self.shapes[cell]) for cell in self.cells(kind)]

    def slices(self) -> list[tuple]:
        """Return where each cell is: the number of its vector, start, stop and shape."""
        places: list = [None] * len(self.shapes)
        for number, kind in enumerate(self.kinds):
            stops = list(accumulate(self.sizes(kind), initial=0))
            for cell, start, stop in zip(self.cells(kind), stops, stops[1:], strict=False):
                places[cell] = number, start, stop, self.shapes[cell]
        return places

    def split(self, vectors: Sequence[Any]) -> list:
        """Return the arrays of all cells."""
        return [vectors[n][start:stop].reshape(shape) for n, start, stop, shape in self.slices()]


def join(arrays: Sequence[Any]) -> tuple[Layout, list]:
    """Return arrays of JAX as vectors, and the layout of these."""
    layout = Layout([a.shape for a in arrays], [np.dtype(a.dtype) for a in arrays])
    cells = [layout.cells(kind) for kind in layout.kinds]
    return layout, [concatenate([arrays[cell] for cell in some]) for some in cells]


def concatenate(arrays: Sequence[Any]) -> Any:
    """Return arrays as one vector."""
    flat = [array.reshape(-1) for array in arrays]
    return flat[0] if len(flat) == 1 else jnp.concatenate(flat)


def cut(vector: Any, shapes: Sequence[tuple[int, ...]]) -> list:
    """Return the arrays of some shapes that a vector is made of."""
    stops = list(accumulate(map(math.prod, shapes), initial=0))
    bounds = zip(stops, stops[1:], shapes, strict=False)
    return [vector[start:stop].reshape(shape) for start, stop, shape in bounds]
