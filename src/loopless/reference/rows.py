"""What the loops share: reading arguments, and walking a column's valid rows backwards."""

import numpy as np

from loopless.reference.scan import columns, numbers


def backwards(shape, terminated, truncated, valid, time_axis):
    """Walk the valid rows of each column, last to first: the row, and the row that follows it.

    At an end the row that follows is None.
    """
    terminated, truncated = flags(terminated, shape), flags(truncated, shape)
    valid = np.ones(shape, dtype=bool) if valid is None else flags(valid, shape)
    for _, rows in columns(shape, time_axis):
        for t in reversed(range(len(rows))):
            i = rows[t]
            if not valid[i]:
                continue
            if terminated[i] or truncated[i] or t == len(rows) - 1 or not valid[rows[t + 1]]:
                yield i, None
            else:
                yield i, rows[t + 1]


def bootstrapped(i, rewards, next_values, terminated, gamma):
    """r_t + γ_t V(s'_t), or r_t where terminated."""
    if terminated[i]:
        return rewards[i]
    return rewards[i] + gamma[i] * next_values[i]


def data(x, shape):
    if np.shape(x) != shape:
        raise ValueError(f"expected an array of shape {shape} like the rewards, got {np.shape(x)}.")
    return numbers(x, shape)


def coefficient(x, shape):
    if np.ndim(x) not in (0, len(shape)):
        raise ValueError(
            f"gamma and lambda_ are numbers or have as many axes as rewards ({len(shape)}); "
            f"got shape {np.shape(x)}."
        )
    return numbers(x, shape)


def flags(x, shape):
    if np.shape(x) != shape:
        raise ValueError(f"expected flags of shape {shape} like the rewards, got {np.shape(x)}.")
    return np.asarray(x).astype(bool)
