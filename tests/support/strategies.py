"""A hypothesis strategy: rollouts of several shapes, with ends, padding and per-step discounts."""

import numpy as np
from hypothesis import strategies as st

from support.situations import padded, rollout

# JAX compiles every operation again for each shape, so shapes come from a short list.
SHAPES = ((1,), (7,), (1, 3), (2, 1), (5, 4), (6, 2, 3), (4, 0), (9, 11))


@st.composite
def rollouts(draw, shapes=SHAPES, padding: bool = True, arrays: bool = True) -> dict:
    """Draw the arguments of any estimator; time is the first axis."""
    shape = draw(st.sampled_from(shapes))
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
    if arrays and draw(st.booleans()):
        by_step = (shape[0], *[1] * (len(shape) - 1))
        data["gamma"] = rng.random(draw(st.sampled_from((by_step, shape))))
        data["lambda_"] = rng.random(draw(st.sampled_from((by_step, shape))))
    if padding:
        kind = draw(st.sampled_from(("none", "lengths", "holes")))
        fill = draw(st.sampled_from((np.nan, np.inf, 1e6)))
        if kind == "lengths":
            lengths = rng.integers(0, shape[0] + 1, shape[1:])
            steps = np.arange(shape[0]).reshape(-1, *[1] * (len(shape) - 1))
            data = padded(data, steps < lengths, fill)
        elif kind == "holes":
            data = padded(data, rng.random(shape) < 0.7, fill)
    return data
