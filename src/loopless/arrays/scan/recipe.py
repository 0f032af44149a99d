"""What an estimator tells the scan: two elementwise functions and a few facts about them.

A recipe says how one row's fields become a_t and b_t of x_t = a_t·x_{t+1} + b_t, and how x_t
becomes outputs. It is written once, of elementwise operations and `where`: over whole arrays it
feeds the differentiable scan, and compiled kernels are generated from the same functions.
"""

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, eq=False)
class Recipe:
    """How an estimator uses the scan. Fields come as floats, flags, numbers, then those `ahead`."""

    coefficients: Callable  # (where, last, *fields) -> a, b
    readout: Callable  # (where, last, x, x_next, *fields) -> outputs, a tuple
    outputs: int  # one to three
    ahead: tuple[int, ...] = ()  # which floats and flags are also wanted from the row after
    reads_next: bool = False  # whether `readout` looks at x_next
    lagged: bool = False  # an adjoint: y_t = b_t + a_{t−1}·y_{t−1}, forwards in time
    # From the outputs' gradients (as floats) to the floats', where the recipe is linear in them.
    adjoint: "Recipe | None" = None
