"""Where the segments of one padded row end, and how far each of its steps may look, in a graph.

Imports JAX only. Twins: `replay/segments.py`, in loops `reference/episodic.py`. Tests:
`tests/replay/test_device_episodic.py`.
"""

from typing import Any

import jax
import jax.numpy as jnp
from jax import lax


def horizons(
    marks: jax.Array, length: Any, convention: str, valid: jax.Array | None = None
) -> tuple[jax.Array, jax.Array]:
    """How many steps each step is before its segment's end, int32 [steps], 0 past `length`.

    n_t = end(t) − t,  end(t) the first segment end ≥ t

    And whether the marks are sound: an odd run of marks, unless the end of the row clips it, is
    none that the convention "double" knows. `marks` and `valid` are boolean [steps].
    """
    steps = lax.iota(jnp.int32, marks.size)
    inside, last = steps < length, steps == length - 1
    marks, sound = marks & inside, jnp.array(True)
    ends = last
    if convention == "single":
        ends = ends | marks
    elif convention == "double":
        before = lax.cummax(jnp.where(marks, -1, steps))  # the step just before a run of marks
        odd = (steps - before) % 2 == 1
        ends = ends | (marks & ~odd)
        goes_on = jnp.append(marks[1:], False) | last
        sound = ~jnp.any(marks & odd & ~goes_on)
    if valid is not None:
        ends = ends | ~valid | jnp.append(~valid[1:], False)
    ahead = lax.cummin(jnp.where(ends, steps, marks.size), reverse=True) - steps
    return jnp.where(inside, ahead, 0), sound
