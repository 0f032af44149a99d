"""How near learned features are to the truth: eigenvectors, eigenvalues, hitting times.

All on the host, in float64, of every agent at once. Imports NumPy, `envs` and `kernels`. Tests:
`tests/train/test_allo_scores.py`.
"""

import numpy as np

from loopless.envs.grids.laplacian import (
    Eigenpairs,
    hitting_times,
    hitting_times_of_eigenpairs,
    truncated_eigenvalues,
)
from loopless.envs.grids.layouts import is_strongly_connected
from loopless.envs.grids.world import GridWorld
from loopless.kernels.laplacian.duals import similarities
from loopless.train.allo.config import ALLO

MOST_STATES = 600  # for whose hitting times, states × states of them, there is time while training


def similarity(features: np.ndarray, truth: Eigenpairs) -> np.ndarray:
    """[agents, d]: the share of each feature that lies in the eigenspace of its place."""
    features = features.astype(np.float64)
    return np.stack([similarities(x, truth.vectors, truth.spaces, truth.weights) for x in features])


def eigenvalue_error(found: np.ndarray, truth: Eigenpairs) -> np.ndarray:
    """[agents]: the largest relative error of eigenvalues [agents, d] after the first, which is 0.

    Of the first, where it is the only one, the error itself.
    """
    exact = truth.values[: found.shape[1]]
    if found.shape[1] == 1:
        return np.abs(found[:, 0] - exact[0])
    return np.abs(found[:, 1:] / exact[1:] - 1).max(1)


class HittingTimes:
    """The exact steps from state to state, and how well learned eigenpairs order them."""

    def __init__(self, config: ALLO, world: GridWorld) -> None:
        # Eigenvalues of one step of the walk, and of the pairs of its episodes.
        self._steps = np.linspace(1 - 1e-6, -1, 4_001)
        self._pairs = truncated_eigenvalues(self._steps, config.discount, config.episode_length)
        self._ranks = _ranks(hitting_times(world.transition_matrix()))

    @staticmethod
    def exist(world: GridWorld) -> bool:
        """Whether every state is reached from every other, and they are not too many."""
        return 1 < world.states <= MOST_STATES and is_strongly_connected(world.layout)

    def correlation(self, features: np.ndarray, values: np.ndarray, weights: np.ndarray) -> float:
        """The rank correlation of the times by features [states, d] and eigenvalues [d]."""
        norms = np.sqrt((features.astype(np.float64) ** 2 * weights[:, None]).sum(0))
        vectors = features / np.where(norms > 0, norms, 1.0)
        steps = np.interp(values.astype(np.float64), self._pairs, self._steps)
        found = hitting_times_of_eigenpairs(vectors, steps)
        return float(np.corrcoef(_ranks(found), self._ranks)[0, 1])


def _ranks(times: np.ndarray) -> np.ndarray:
    """The order of all times between two different states."""
    apart = times[~np.eye(len(times), dtype=bool)]
    order = np.empty(apart.size)
    order[np.argsort(apart, kind="stable")] = np.arange(apart.size)
    return order
