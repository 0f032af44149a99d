"""Samplers that go wrong, in NumPy."""

import numpy as np


def newest_left_out(size, batch_size, rng):
    """An upper bound that is taken as inclusive, and is not."""
    return rng.integers(0, max(size - 1, 1), batch_size)


def seeded_inside(buffer_size, batch_size):
    """The same numbers in every call."""
    return np.random.default_rng(0).integers(0, buffer_size, batch_size)


def no_exponent(priorities, batch_size, alpha, beta, rng):
    """α is asked for and not used."""
    p = priorities / priorities.sum()
    indices = rng.choice(len(p), batch_size, p=p)
    weights = (len(p) * p[indices]) ** -beta
    return indices, weights / weights.max()


def weights_of_any_size(priorities, batch_size, alpha, beta, rng):
    """Importance weights above 1."""
    p = np.where(priorities > 0, priorities**alpha, 0)
    p = p / p.sum()
    indices = rng.choice(len(p), batch_size, p=p)
    return indices, (len(p) * p[indices]) ** -beta


def empty_slots(priorities, batch_size, alpha, rng):
    """A constant for stability also raises what is empty."""
    p = (priorities + 0.1) ** alpha
    return rng.choice(len(p), batch_size, p=p / p.sum())


def _gaps(rng, gamma, horizons):
    u = rng.random(len(horizons))
    return np.floor(np.log1p(-u * (1 - gamma**horizons)) / np.log(gamma)).astype(int)


def _horizons(dones):
    ends = np.flatnonzero(dones)
    return ends[np.searchsorted(ends, np.arange(len(dones)))] - np.arange(len(dones))


def across_resets(dones, batch_size, gamma, rng):
    """A geometric gap from any state, whatever ends in between."""
    start = rng.integers(0, len(dones) - 1, batch_size)
    gap = rng.geometric(1 - gamma, batch_size)
    return start, np.minimum(start + gap, len(dones) - 1)


def capped_table(terminals, batch_size, gamma, rng):
    """A table of episode ends with room for a hundred of them."""
    ends = np.flatnonzero(terminals)[:100]
    known = np.zeros_like(terminals)
    known[ends] = True
    known[-1] = True
    horizons = _horizons(known)
    start = rng.choice(np.flatnonzero(horizons > 0), batch_size)
    gap = 1 + np.minimum(_gaps(rng, gamma, horizons[start]), horizons[start] - 1)
    return start, start + gap


def cut_off(dones, batch_size, discount, rng):
    """Gaps beyond the end of the episode are brought back to its last state."""
    horizons = _horizons(dones)
    start = rng.choice(np.flatnonzero(horizons > 0), batch_size)
    gap = rng.geometric(1 - discount, batch_size)
    return start, start + np.minimum(gap, horizons[start])


def from_the_start_itself(dones, batch_size, gamma, rng):
    """A gap of 0 is a state paired with itself."""
    horizons = _horizons(dones)
    start = rng.choice(np.flatnonzero(horizons > 0), batch_size)
    return start, start + _gaps(rng, gamma, horizons[start])
