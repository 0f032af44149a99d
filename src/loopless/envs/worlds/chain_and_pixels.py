"""The chain and the pixel grid themselves: rules and right answers, as NumPy tables.

Their compiled faces (`chain.py`, `pixels.py`) and their Gymnasium faces (`gym_worlds.py`) read the
same tables, so that they cannot drift apart. Imports NumPy only. Loop twins of the closed forms
(value iteration, a walk) are in `tests/envs/test_worlds.py`.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np

from loopless.envs.refusals import refuse
from loopless.refusals import check_count

LEFT, RIGHT = 0, 1
MOVES = ("up", "down", "left", "right")


@dataclass(frozen=True)
class ChainWorld:
    """`length` states in a row; action 0 steps left (and stays at the first), 1 steps right.

    Stepping right from the last state pays 1 and terminates; all else pays 0. An episode starts
    anywhere and is truncated after `max_steps`, which says nothing about the values, because the
    observation (one-hot) does not hold the time:

        Q*(s, right) = γ^(n−1−s)        Q*(s, left) = γ^(n − max(s−1, 0))        n = length

    `forever=True` pays 1 for every step and never terminates (right of the last state is the last
    state). Only the time limit ends an episode, and for every policy

        Q(s, a) = 1/(1−γ)

    which code that takes a truncation for a termination misses by far.
    """

    length: int = 5
    max_steps: int = 20
    forever: bool = False

    obs_dtype: ClassVar[str] = "float32"
    actions: ClassVar[int] = 2

    def __post_init__(self) -> None:
        refuse(
            "envs: chain",
            check_count("length", self.length),
            check_count("max_steps", self.max_steps),
        )

    @property
    def obs_shape(self) -> tuple[int, ...]:
        return (self.length,)

    @property
    def starts(self) -> int:
        """An episode starts in one of the first so many states, each equally likely."""
        return self.length

    def is_late(self, steps):
        """Whether an episode of so many steps is truncated."""
        return steps >= self.max_steps

    @cached_property
    def next_states(self) -> np.ndarray:
        """[states, actions]: where an action leads (at the terminating one: nowhere, so s)."""
        states = np.arange(self.length)
        left, right = np.maximum(states - 1, 0), np.minimum(states + 1, self.length - 1)
        return np.stack([left, right], 1).astype(np.int32)

    @cached_property
    def rewards(self) -> np.ndarray:
        """[states, actions]: what it pays."""
        return np.ones((self.length, 2), np.float32) if self.forever else self._arrives(np.float32)

    @cached_property
    def terminates(self) -> np.ndarray:
        """[states, actions]: whether it ends the episode."""
        return np.zeros((self.length, 2), bool) if self.forever else self._arrives(bool)

    @cached_property
    def observations(self) -> np.ndarray:
        """[states, length]: what each state looks like."""
        return np.eye(self.length, dtype=np.float32)

    def optimal_q(self, gamma: float) -> np.ndarray:
        """Q* [states, actions] in closed form."""
        if self.forever:
            return np.full((self.length, 2), 1 / (1 - gamma))
        states = np.arange(self.length)
        left = gamma ** (self.length - np.maximum(states - 1, 0))
        return np.stack([left, gamma ** (self.length - 1 - states)], 1)

    def policy_q(self, policy: np.ndarray, gamma: float) -> np.ndarray:
        """Q [states, actions] of a `policy` [states, actions] of probabilities, solved exactly.

        What SARSA and n-step learning without correction converge to under that policy.
        """
        n = self.length
        goes_on = gamma * ~self.terminates  # V(s') counts where the action does not terminate
        walk = np.zeros((n, n))
        np.add.at(walk, (np.arange(n)[:, None], self.next_states), policy * goes_on)
        values = np.linalg.solve(np.eye(n) - walk, (policy * self.rewards).sum(1))
        return self.rewards + goes_on * values[self.next_states]

    def _arrives(self, dtype) -> np.ndarray:
        table = np.zeros((self.length, 2), dtype)
        table[-1, RIGHT] = 1
        return table


@dataclass(frozen=True)
class PixelsWorld:
    """An agent (red) walks a square of `cells`² fields to a goal (green), seen as an RGB picture.

    Both start anywhere, apart. Actions: up, down, left, right; a wall stops. Arriving pays 1 and
    terminates, all else pays 0, and after `max_steps` the episode is truncated: the mean return
    is the share of goals reached in time, and 1 is reached by every shortest path. Every field is
    `scale`² pixels, so that the picture is [cells·scale, cells·scale, 3] uint8.
    """

    cells: int = 8
    scale: int = 2
    max_steps: int = 32

    obs_dtype: ClassVar[str] = "uint8"
    actions: ClassVar[int] = 4

    def __post_init__(self) -> None:
        refuse(
            "envs: pixels",
            check_count("cells", self.cells, 2),
            check_count("scale", self.scale),
            check_count("max_steps", self.max_steps),
        )

    @property
    def obs_shape(self) -> tuple[int, ...]:
        return (self.cells * self.scale, self.cells * self.scale, 3)

    @cached_property
    def next_fields(self) -> np.ndarray:
        """[fields, actions]: the field that a move leads to. Field = row · cells + column."""
        row, column = np.divmod(np.arange(self.cells**2), self.cells)
        last = self.cells - 1
        rows = [np.maximum(row - 1, 0), np.minimum(row + 1, last), row, row]
        columns = [column, column, np.maximum(column - 1, 0), np.minimum(column + 1, last)]
        return (np.stack(rows, 1) * self.cells + np.stack(columns, 1)).astype(np.int32)

    @cached_property
    def spots(self) -> np.ndarray:
        """[fields, height, width]: 255 where a field is, of which a picture is two layers."""
        spots = np.eye(self.cells**2, dtype=np.uint8).reshape(-1, self.cells, self.cells) * 255
        return spots.repeat(self.scale, 1).repeat(self.scale, 2)

    def distance(self, agent, goal):
        """Steps of a shortest path: the optimal value of a start is γ^(distance − 1)."""
        agent, goal = np.divmod(agent, self.cells), np.divmod(goal, self.cells)
        return abs(agent[0] - goal[0]) + abs(agent[1] - goal[1])
