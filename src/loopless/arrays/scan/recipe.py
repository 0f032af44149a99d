"""What an estimator tells the scan: two elementwise functions of a row, and a few facts about them.

A recipe says how a row becomes a_t and b_t of x_t = a_t·x_{t+1} + b_t, and how x_t becomes outputs.
It is written once, of elementwise operations and `where`: over whole arrays it feeds the
differentiable scan, and the compiled kernels are generated from the same functions.
"""

from collections.abc import Callable
from dataclasses import dataclass

from loopless.arrays.library import Library


@dataclass(frozen=True, eq=False)
class Recipe:
    """How an estimator uses the scan.

    `row` is a NamedTuple of what the functions read of one time step: floats first, then flags,
    then numbers such as gamma, then the fields of the step after it that `ahead` lists. Over whole
    arrays each of them is an array, in the compiled kernels a number. `last` is true where no valid
    step follows. Values are masked with `where`, never by multiplying, since 0·NaN is NaN.
    """

    row: Callable  # a NamedTuple class
    coefficients: Callable  # (where, row, last) -> a, b
    readout: Callable  # (where, row, last, x, x_next) -> outputs, a tuple
    outputs: int  # one to three
    ahead: tuple[int, ...] = ()  # which floats and flags are also wanted from the step after
    reads_next: bool = False  # whether `readout` looks at x_next
    lagged: bool = False  # an adjoint: y_t = b_t + a_{t−1}·y_{t−1}, forwards in time
    # The recipe from the outputs' gradients (its floats) to gradients of this one's floats: only
    # where this one is linear in its floats and has just the flags `terminated` and `truncated`.
    adjoint: "Recipe | None" = None
    name: str = ""  # of a recipe with an adjoint, or of an adjoint: compiled programs call it so

    def __post_init__(self) -> None:
        if self.name:
            NAMED[self.name] = self


NAMED: dict[str, Recipe] = {}
ESTIMATORS: dict[str, Callable] = {}  # (time_axis, *fields) -> outputs, checked, by function


def row_numbers(library: Library, like, axis: int, steps: int):
    """Return 0 … steps−1 along `axis`, shaped to spread over `like`."""
    place = {"device": like.device} if library.name == "torch" else {}
    shape = [1] * like.ndim
    shape[axis] = steps
    return library.xp.arange(steps, **place).reshape(shape)


def last_rows(library: Library, like, axis: int, valid):
    """Return where no valid row follows."""
    steps = like.shape[axis]
    final = row_numbers(library, like, axis, steps) == steps - 1
    if valid is None:
        return final
    return final | ~rows_ahead(library.xp, valid, axis, 1)


def rows_ahead(xp, x, axis: int, n: int):
    """Return row t+n of x at row t; past the end the final row stands in."""
    before = (slice(None),) * axis
    shape = tuple(x.shape)
    missing = (*shape[:axis], min(n, shape[axis]), *shape[axis + 1 :])
    final = xp.broadcast_to(x[(*before, slice(-1, None))], missing)
    return xp.concatenate([x[(*before, slice(n, None))], final], axis)


def row_before(xp, x, axis: int):
    """Return row t−1 of x at row t; the first row stands in for the one before it."""
    before = (slice(None),) * axis
    return xp.concatenate([x[(*before, slice(0, 1))], x[(*before, slice(None, -1))]], axis)
