"""Many steps of many environments in arrays that are allocated once, and the episodes in them.

Hosted collection writes here: one observation a step and environment, and a second one only where
an episode ended; the true successors are then one shifted copy. The same arrays, one step long,
are what worker processes share. Imports NumPy; what comes after the last step also Numba, which
workers go without. Tests: `tests/envs/test_blocks.py`.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from loopless.envs.spaces import Box, Space


class Episodes(NamedTuple):
    """Episodes that ended within a block: at which step of it, in which environment."""

    step: np.ndarray
    env: np.ndarray
    episode_return: np.ndarray
    episode_length: np.ndarray


def layout(
    steps: int, envs: int, obs: Box, actions: Space, masks: int = 0
) -> dict[str, tuple[tuple, str]]:
    """The arrays of a block: name → (shape, dtype). masks: booleans in a mask, if there are any."""
    rows = (steps, envs)
    arrays = {
        "all_obs": ((steps + 1, envs, *obs.shape), obs.dtype),
        "next_obs": ((*rows, *obs.shape), obs.dtype),
        "action": ((*rows, *actions.shape), actions.dtype),
        "exact_reward": (rows, "float64"),
        "reward": (rows, "float32"),
        "terminated": (rows, "bool"),
        "truncated": (rows, "bool"),
        "valid": (rows, "bool"),
    }
    return arrays | {"all_masks": ((steps + 1, envs, masks), "bool")} if masks else arrays


class Block:
    """Transitions [steps, envs, ...], time first, and the episodes that ended among them.

    obs, action, reward, next_obs, terminated, truncated: the transitions. `next_obs` holds true
        successors: at an end the final observation.
    valid: false where a row is no experience.
    all_obs: [steps + 1, envs, ...]: `obs`, and behind it `last_obs`, which comes next.
    all_masks: [steps + 1, envs, n]: which actions were legal on `all_obs` (`envs/masks.py`); None
        if the environments have no masks.
    episodes: those that ended here.
    """

    all_obs: np.ndarray
    next_obs: np.ndarray
    action: np.ndarray
    exact_reward: np.ndarray
    reward: np.ndarray
    terminated: np.ndarray
    truncated: np.ndarray
    valid: np.ndarray
    all_masks: np.ndarray | None = None
    episodes: Episodes

    def __init__(
        self,
        steps: int,
        envs: int,
        obs: Box,
        actions: Space,
        allocate: Callable[[tuple, str], np.ndarray] = np.zeros,
        *,
        masks: int = 0,
    ) -> None:
        self.steps = steps
        self.envs = envs
        for name, (shape, dtype) in layout(steps, envs, obs, actions, masks).items():
            setattr(self, name, allocate(shape, dtype))

    @property
    def obs(self) -> np.ndarray:
        return self.all_obs[:-1]

    @property
    def last_obs(self) -> np.ndarray:
        return self.all_obs[-1]

    @property
    def masks(self) -> np.ndarray | None:
        return None if self.all_masks is None else self.all_masks[:-1]

    @property
    def last_mask(self) -> np.ndarray | None:
        return None if self.all_masks is None else self.all_masks[-1]

    def arrays(self) -> dict[str, np.ndarray]:
        """All arrays by name."""
        return {name: value for name, value in vars(self).items() if isinstance(value, np.ndarray)}

    def transitions(self) -> dict[str, np.ndarray]:
        """The rows that are experience, flat [n, ...], by time and then by environment."""
        names = ("obs", "action", "reward", "next_obs", "terminated", "truncated")
        rows = {name: getattr(self, name) for name in names}
        if self.valid.all():
            flat = self.steps * self.envs
            return {name: rows.reshape(flat, *rows.shape[2:]) for name, rows in rows.items()}
        return {name: rows[self.valid] for name, rows in rows.items()}

    def begin(self, obs: np.ndarray, mask: np.ndarray | None = None) -> None:
        """Before the first step: what is acted on, and flags that only ends will set."""
        self.all_obs[0] = obs
        if self.all_masks is not None:
            self.all_masks[0] = mask
        self.terminated.fill(False)
        self.truncated.fill(False)
        self.valid.fill(True)

    def finish(self, final_obs: bool) -> bool:
        """After the last step: successors from the observations that follow; is all of it finite?

        If `final_obs`, the rows of `next_obs` at ends have been written and are kept.
        """
        from loopless.compiled.episodes import finish

        return finish(
            self.all_obs.reshape(self.steps + 1, self.envs, -1),
            self.next_obs.reshape(self.steps, self.envs, -1),
            self.exact_reward, self.reward, self.terminated, self.truncated, final_obs,
        )  # fmt: skip


class Tally:
    """Returns and lengths of the running episodes, kept from block to block."""

    def __init__(self, envs: int) -> None:
        self.returns = np.zeros(envs)
        self.lengths = np.zeros(envs, np.int64)
        from loopless.compiled.episodes import count

        self._count = count

    def count(self, block: Block) -> Episodes:
        """The episodes that ended in `block`."""
        size = block.steps * block.envs
        places, returns = np.empty((2, size), np.int64), np.empty(size)
        lengths = np.empty(size, np.int64)
        ended = self._count(
            block.exact_reward, block.terminated, block.truncated, block.valid,
            self.returns, self.lengths, places, returns, lengths,
        )  # fmt: skip
        return Episodes(places[0, :ended], places[1, :ended], returns[:ended], lengths[:ended])
