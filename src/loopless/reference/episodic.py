"""The episodic buffer in plain loops, which `replay.EpisodicReplayBuffer` is tested against.

Rows are sequences of terminal marks, one for each step. `legacy_horizons` is the rule of the code
that the buffer replaces, mistakes included, for comparison only.
"""

import math
from collections.abc import Sequence


def segment_ends(marks: Sequence, convention: str, valid: Sequence | None = None) -> list[bool]:
    """Return which steps of a row end a segment, from left to right.

    double   the 2nd, 4th, … of each run of marks; an odd run is an error, except at the row's end
    single   every mark
    none     no mark

    The last step always ends one. So do a step that is not valid, and the step before it.
    """
    length = len(marks)
    ends = [False] * length
    run = 0
    for t in range(length):
        if marks[t]:
            run += 1
            if convention == "single" or (convention == "double" and run % 2 == 0):
                ends[t] = True
        else:
            if convention == "double" and run % 2 == 1:
                raise ValueError(f"{run} marks in a row from step {t - run} on")
            run = 0
    for t in range(length):
        if valid is not None and not valid[t]:
            ends[t] = True
            if t > 0:
                ends[t - 1] = True
    ends[length - 1] = True
    return ends


def horizons(marks: Sequence, convention: str, valid: Sequence | None = None) -> list[int]:
    """Return n_t = end(t) − t, by looking ahead from each step to the first segment end."""
    ends = segment_ends(marks, convention, valid)
    distances = []
    for t in range(len(marks)):
        end = t
        while not ends[end]:
            end += 1
        distances.append(end - t)
    return distances


def legacy_horizons(marks: Sequence) -> list[int]:
    """Return horizons by the old rule: to the second mark from t on, else the first, else the end.

    Right for doubly marked rows, except at a segment's final observation: from there the second
    mark is the next episode's first, and the pair crosses a reset. There is no error for n = 0.
    """
    length = len(marks)
    distances = []
    for t in range(length):
        ahead = []
        for s in range(t, length):
            if marks[s]:
                ahead.append(s)
        if len(ahead) >= 2:
            distances.append(ahead[1] - t)
        elif len(ahead) == 1:
            distances.append(ahead[0] - t)
        else:
            distances.append(length - 1 - t)
    return distances


def gap_probabilities(n: int, discount: float, max_horizon: int | None = None) -> list[float]:
    """Return P(gap) for gap = 1 … n: (1−γ) γ^(gap−1) / (1−γⁿ), all alike at γ = 1."""
    if max_horizon is not None:
        n = min(n, max_horizon)
    if discount == 1:
        return [1 / n] * n
    mass = 1 - discount**n
    return [(1 - discount) * discount**k / mass for k in range(n)]


def pair_probabilities(
    rows: Sequence[Sequence[int]],
    discount: float,
    law: str = "episode",
    max_horizon: int | None = None,
    weights: Sequence[float] | None = None,
    step_weights: Sequence[Sequence[float]] | None = None,
) -> dict[tuple[int, int, int], float]:
    """Return P of each (row, start, gap) from the `horizons` of each row; all others have P = 0.

    With weights w_e of rows and v_t of steps, all 1 if left out, and V_e = Σ v_t over starts of e:

    episode      w_e / Σ w · v_t / V_e · P(gap),  Σ over rows with V_e > 0
    transition   w_e v_t / Σ w v · P(gap)
    """
    starts = [[t for t in range(len(row)) if row[t] >= 1] for row in rows]
    if weights is None:
        weights = [1.0] * len(rows)
    if step_weights is None:
        step_weights = [[1.0] * len(row) for row in rows]
    masses = []
    for e in range(len(rows)):
        mass = 0.0
        for t in starts[e]:
            mass += step_weights[e][t]
        masses.append(mass)
    total = 0.0
    for e in range(len(rows)):
        if masses[e] > 0:
            total += weights[e] * (1 if law == "episode" else masses[e])
    probabilities = {}
    for e in range(len(rows)):
        if masses[e] == 0:
            continue
        of_row = weights[e] / total * (1 if law == "episode" else masses[e])
        for t in starts[e]:
            of_start = of_row * step_weights[e][t] / masses[e]
            gaps = gap_probabilities(rows[e][t], discount, max_horizon)
            for k in range(len(gaps)):
                if of_start * gaps[k] > 0:
                    probabilities[e, t, k + 1] = of_start * gaps[k]
    return probabilities


def search_sample(
    rows: Sequence[Sequence], convention: str, discount: float, batch_size: int, random
) -> list[tuple[int, int, int]]:
    """Draw (row, start, gap) by law "episode", searching the segment's end for each draw.

    `rows` are marks; `random` is a `random.Random`. The gap is drawn by inverting the geometric
    distribution that is truncated at the segment's end.
    """
    draws = []
    while len(draws) < batch_size:
        row = random.randrange(len(rows))
        marks = rows[row]
        ahead = horizons(marks, convention)
        starts = [t for t in range(len(marks)) if ahead[t] >= 1]
        start = starts[random.randrange(len(starts))]
        n = ahead[start]
        u = random.random()
        if discount == 0:
            k = 0
        elif discount == 1:
            k = math.floor(u * n)
        else:
            k = math.floor(math.log1p(-u * (1 - discount**n)) / math.log(discount))
        draws.append((row, start, min(k, n - 1) + 1))
    return draws
