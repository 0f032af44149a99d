"""How likely the rows of an episodic buffer are, and the starts within them, if not all alike.

    episode       P(row) ∝ w_row, of the rows with a start of weight > 0;  P(start | row) ∝ w_start
    transition    P(start) ∝ w_row · w_start

Both are a row first, by a search in cumulative sums, then one of its starts, by an alias table of
that row: what comes and goes elsewhere leaves it alone. Imports `refusals` and
`saved`; Numba when steps are weighed. Loop twin: `reference.episodic.pair_probabilities`. Tests:
`tests/replay/test_episodic_weights.py`.
"""

import numpy as np

from loopless.refusals import refuse
from loopless.replay.storage.saved import UNCHANGED

LEAST, MOST = 1e-200, 1e200  # of sums, so that neither they nor draws from them lose precision
NONE = np.zeros((0, 2))


class StepWeights:
    """The weight of each step by its place in the storage, alias tables by start; or neither."""

    def __init__(self, weights: np.ndarray = NONE[:, 0], aliases: np.ndarray = NONE) -> None:
        self.weights, self.aliases = weights, aliases

    @property
    def used(self) -> bool:
        return self.weights.size > 0

    @property
    def nbytes(self) -> int:
        return self.weights.nbytes + self.aliases.nbytes

    def balance(self, pairs: np.ndarray, starts_before: np.ndarray, totals: np.ndarray) -> None:
        """Make the tables of these rows, and sum up in `totals` what the starts of each weigh."""
        from loopless.compiled.aliases import balance

        balance(self.weights, pairs, starts_before, self.aliases, totals)


def chances(row_weights: np.ndarray, of_starts: np.ndarray, by_row: bool) -> np.ndarray:
    """How likely each row is, up to a factor; `of_starts` is what its starts weigh together."""
    return row_weights * ((of_starts > 0) if by_row else of_starts)


def read_weights(where: str, weights, count: int) -> np.ndarray:
    """`weights` as float64 [count]; an error unless all are finite numbers from 0 up."""
    try:
        array = np.asarray(weights)
    except ValueError:  # ragged
        array = np.empty(0, object)
    if array.shape != (count,) or array.dtype.kind not in "iuf":
        received = f"received {array.shape} {array.dtype}"
        refuse(where, [f"weights are numbers [{count:,}]; {received}"], note=UNCHANGED)
    array = array.astype(np.float64)
    wrong = np.flatnonzero(~((array >= 0) & (array < np.inf)))
    if wrong.size:
        named = f"number {wrong[0]} is {array[wrong[0]]}"
        refuse(where, [f"weights are finite numbers from 0 up; {named}"], note=UNCHANGED)
    return array


def weight_problems(row_weights: np.ndarray, of_starts: np.ndarray, by_row: bool) -> list[str]:
    """What is wrong with weights that are finite numbers from 0 up, one by one."""
    with np.errstate(over="ignore"):
        total = chances(row_weights, of_starts, by_row).sum()
    if total == 0:
        return ["weights are not all 0: some start has to be left, in a row of weight > 0"]
    sums = np.append(of_starts[of_starts > 0], total)
    if not ((sums > LEAST) & (sums < MOST)).all():
        worst = sums.max() if sums.max() >= MOST else sums.min()
        return [f"weights sum up to {worst}, not to between {LEAST} and {MOST} (scale them)"]
    return []
