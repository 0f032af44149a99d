"""What the terminal marks of stored rows mean: where segments end, and how far each step may look.

A row is a sequence of observations that may hold several segments, each an episode or a piece of
one. No pair of a state and a later one may cross from one segment to the next. Rows arrive laid
end to end, so that one row and a thousand take the same few array operations, all O(steps).

    n_t = end(t) − t,  end(t) the first segment end ≥ t

Imports NumPy only. Loop twin: `reference.episodic.horizons`. Tests:
`tests/replay/test_segments.py`.
"""

import numpy as np

CONVENTIONS = ("double", "single", "none")


def horizons(marks, last, convention: str, valid=None, places=None) -> np.ndarray:
    """How many steps each step is before its segment's end, int32 [steps]; 0 is no start.

    `marks` and `last`, the last steps of rows, are boolean [steps]. Segment ends are

        double   the 2nd, 4th, … of each run of marks: an episode's acting state and its final
                 observation are both marked
        single   every mark
        none     no mark

    and the last step of each row. Where `valid` is false the step is out of bounds: it is neither
    start nor successor, and the step before it ends a segment. Its mark, if any, counts. `places`
    are the `places_in_runs`, if they are known.
    """
    ends = last.copy()
    if convention == "single":
        ends |= marks
    elif convention == "double":
        places = places_in_runs(marks, last) if places is None else places
        ends |= marks & (places % 2 == 0)
    if valid is not None:
        ends |= ~valid
        ends[:-1] |= ~valid[1:]
    steps = np.arange(ends.size, dtype=np.int32)
    ahead = np.where(ends, steps, np.int32(ends.size))
    return np.minimum.accumulate(ahead[::-1])[::-1] - steps


def places_in_runs(marks, last) -> np.ndarray:
    """1 at the first mark of a run within a row, 2 at the second, …; 0 where there is no mark."""
    steps = np.arange(marks.size)
    before = np.where(marks, -1, steps)  # the step just before the run that a step is in
    first_of_later_rows = np.flatnonzero(last[:-1]) + 1
    cut = first_of_later_rows[marks[first_of_later_rows]]
    before[cut] = cut - 1
    return steps - np.maximum.accumulate(before)


def odd_run(marks, last, places=None) -> tuple[int, int, int] | None:
    """(row, step within the row, length) of the first run with an odd number of marks.

    Runs that the end of a row clips may be odd. None if there is no such run. `places` are the
    `places_in_runs`, if they are known.
    """
    places = places_in_runs(marks, last) if places is None else places
    closed = marks & ~last
    closed[:-1] &= ~marks[1:]
    odd = np.flatnonzero(closed & (places % 2 == 1))
    if odd.size == 0:
        return None
    length = int(places[odd[0]])
    step = int(odd[0]) - length + 1
    earlier = np.flatnonzero(last[:step])
    begin = int(earlier[-1]) + 1 if earlier.size else 0
    return earlier.size, step - begin, length


def sums_over_rows(of_steps, lengths) -> np.ndarray:
    """Sums over the steps of each row: int64 of flags, float64 of numbers."""
    begins = np.cumsum(lengths) - lengths
    if of_steps.dtype == bool:
        return np.add.reduceat(of_steps, begins, dtype=np.int64)
    with np.errstate(over="ignore"):
        return np.add.reduceat(of_steps, begins, dtype=np.float64)
