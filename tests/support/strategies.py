"""A hypothesis strategy: rollouts of several shapes, with ends, padding and per-step discounts."""

import itertools
from typing import NamedTuple

import numpy as np
from hypothesis import strategies as st

from support.situations import padded, rollout

FEW_COLUMNS = ((1,), (7,), (1, 3), (2, 1), (4, 0))  # walked one by one
MANY_COLUMNS = ((5, 4), (6, 2, 3), (9, 11))  # walked side by side


class Layout(NamedTuple):
    """What Numba compiles a kernel anew for, beside the dtype."""

    shapes: tuple[tuple[int, ...], ...]
    padding: bool
    arrays: bool  # gamma and lambda_ are arrays


ALL_LAYOUTS = tuple(
    itertools.starmap(
        Layout, itertools.product((FEW_COLUMNS, MANY_COLUMNS), (False, True), (False, True))
    )
)
# Six of the sixteen specializations of a kernel, in which every two properties meet.
LAYOUTS = {
    "float64": (
        Layout(FEW_COLUMNS, padding=False, arrays=False),
        Layout(FEW_COLUMNS, padding=True, arrays=False),
        Layout(MANY_COLUMNS, padding=True, arrays=True),
    ),
    "float32": (
        Layout(MANY_COLUMNS, padding=False, arrays=False),
        Layout(MANY_COLUMNS, padding=False, arrays=True),
        Layout(FEW_COLUMNS, padding=True, arrays=True),
    ),
}


@st.composite
def rollouts(draw, layouts: tuple[Layout, ...]) -> dict:
    """Draw the arguments of any estimator; time is the first axis."""
    layout = draw(st.sampled_from(layouts))
    shape = draw(st.sampled_from(layout.shapes))
    seed = draw(st.integers(0, 2**16))
    rates = st.sampled_from((0.0, 0.1, 0.5, 1.0))
    data = rollout(
        shape,
        seed,
        terminated=draw(rates),
        truncated=draw(rates),
        gamma=draw(st.sampled_from((0.0, 0.5, 0.99, 1.0))),
        lambda_=draw(st.sampled_from((0.0, 0.3, 0.95, 1.0))),
    )
    rng = np.random.default_rng(seed + 1)
    if layout.arrays:
        by_step = (shape[0], *[1] * (len(shape) - 1))
        data["gamma"] = rng.random(draw(st.sampled_from((by_step, shape))))
        data["lambda_"] = rng.random(draw(st.sampled_from((by_step, shape))))
    if layout.padding:
        lengths = rng.integers(0, shape[0] + 1, shape[1:])
        steps = np.arange(shape[0]).reshape(-1, *[1] * (len(shape) - 1))
        valid = draw(st.sampled_from((steps < lengths, rng.random(shape) < 0.7)))
        data = padded(data, valid, draw(st.sampled_from((np.nan, np.inf, 1e6))))
    return data
