"""The rules of the small worlds and their right answers, as NumPy tables.

The compiled environments (`envs.compiled.tables`) and the Gymnasium ones (`envs.worlds.gym`) read
the same tables, so that they cannot drift apart.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np

from loopless.envs import refuse
from loopless.refusals import check_count

LEFT, RIGHT = 0, 1


@dataclass(frozen=True)
class ChainWorld:
    """`length` states in a row; action 0 steps left (and stays at the first), 1 steps right.

    Stepping right from the last state pays 1 and terminates; all else pays 0. An episode starts
    anywhere and is truncated after `max_steps`. That does not change the values, because the
    observation (one-hot) does not contain the time:

        Q*(s, right) = γ^(n−1−s)        Q*(s, left) = γ^(n − max(s−1, 0))        n = length

    `forever=True` pays 1 for every step and never terminates (right of the last state is the last
    state). Only the time limit ends an episode, and for every policy

        Q(s, a) = 1/(1−γ)

    Code that takes a truncation for a termination learns much smaller values.
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
        """Return how many of the first states an episode may start in, all equally likely."""
        return self.length

    def is_late(self, steps):
        """Return whether an episode of so many steps is truncated."""
        return steps >= self.max_steps

    @cached_property
    def next_states(self) -> np.ndarray:
        """[states, actions]: where an action leads; a terminating one stays where it is."""
        states = np.arange(self.length)
        left, right = np.maximum(states - 1, 0), np.minimum(states + 1, self.length - 1)
        return np.stack([left, right], 1).astype(np.int32)

    @cached_property
    def rewards(self) -> np.ndarray:
        """[states, actions]: what an action pays."""
        return np.ones((self.length, 2), np.float32) if self.forever else self._arrives(np.float32)

    @cached_property
    def terminates(self) -> np.ndarray:
        """[states, actions]: whether an action ends the episode."""
        return np.zeros((self.length, 2), bool) if self.forever else self._arrives(bool)

    @cached_property
    def observations(self) -> np.ndarray:
        """[states, length]: what each state looks like."""
        return np.eye(self.length, dtype=np.float32)

    def optimal_q(self, gamma: float) -> np.ndarray:
        """Return Q* [states, actions] in closed form."""
        if self.forever:
            return np.full((self.length, 2), 1 / (1 - gamma))
        states = np.arange(self.length)
        left = gamma ** (self.length - np.maximum(states - 1, 0))
        return np.stack([left, gamma ** (self.length - 1 - states)], 1)

    def policy_q(self, policy: np.ndarray, gamma: float) -> np.ndarray:
        """Return the exact Q [states, actions] of a `policy` [states, actions] of probabilities.

        SARSA and n-step learning without correction converge to this under that policy.
        """
        n = self.length
        discounts = gamma * ~self.terminates  # V(s') counts where the action does not terminate
        walk = np.zeros((n, n))
        np.add.at(walk, (np.arange(n)[:, None], self.next_states), policy * discounts)
        values = np.linalg.solve(np.eye(n) - walk, (policy * self.rewards).sum(1))
        return self.rewards + discounts * values[self.next_states]

    def _arrives(self, dtype) -> np.ndarray:
        table = np.zeros((self.length, 2), dtype)
        table[-1, RIGHT] = 1
        return table


@dataclass(frozen=True)
class MaskedWorld:
    """The chain with more actions, of which only two are legal; which two depends on the state.

    In state s, action s mod `actions` steps right, and the next one (cyclically) steps left. The
    others are not legal: they pay −1 and terminate. `legal` says so beforehand.

        Q*(s, right) = γ^(n−1−s)        Q*(s, left) = γ^(n − max(s−1, 0))        Q*(s, other) = −1

    A random walk over legal actions never gets a negative reward, while one over all actions ends
    with −1 with probability 1 − 2/`actions` at every step.
    """

    length: int = 5
    max_steps: int = 20
    actions: int = 4

    obs_dtype: ClassVar[str] = "float32"

    def __post_init__(self) -> None:
        refuse(
            "envs: masked",
            check_count("length", self.length),
            check_count("max_steps", self.max_steps),
            check_count("actions", self.actions, 2),
        )

    @property
    def obs_shape(self) -> tuple[int, ...]:
        return (self.length,)

    @property
    def starts(self) -> int:
        return self.length

    def is_late(self, steps):
        """Return whether an episode of so many steps is truncated."""
        return steps >= self.max_steps

    @cached_property
    def legal(self) -> np.ndarray:
        """[states, actions]: whether an action may be chosen."""
        return self._widen(np.ones((self.length, 2), bool), False)

    @cached_property
    def next_states(self) -> np.ndarray:
        stays = np.arange(self.length, dtype=np.int32)[:, None]
        return self._widen(self._chain.next_states, stays)

    @cached_property
    def rewards(self) -> np.ndarray:
        return self._widen(self._chain.rewards, -1)

    @cached_property
    def terminates(self) -> np.ndarray:
        return self._widen(self._chain.terminates, True)

    @property
    def observations(self) -> np.ndarray:
        return self._chain.observations

    def optimal_q(self, gamma: float) -> np.ndarray:
        """Return Q* [states, actions] in closed form."""
        return self._widen(self._chain.optimal_q(gamma), -1)

    @cached_property
    def _chain(self) -> ChainWorld:
        return ChainWorld(self.length, self.max_steps)

    def _widen(self, table: np.ndarray, illegal) -> np.ndarray:
        """Return a table of the chain's two actions for all actions, `illegal` where not legal."""
        states = np.arange(self.length)
        columns = np.stack([states + 1, states], 1) % self.actions
        wide = np.empty((self.length, self.actions), table.dtype)
        wide[...] = illegal
        np.put_along_axis(wide, columns, table, 1)
        return wide


@dataclass(frozen=True)
class MemoryWorld:
    """A cue, 0 or 1, is shown once; after `length` blank steps the agent is asked for it.

    Observations are (cue is 0, cue is 1, asked): the cue alone, then zeros, then the question.
    Naming the cue when asked pays 1, the other answer and everything before pay 0, so the mean
    return is the share of right answers.

        with memory       mean return 1, value of a start γ^(length + 1)
        without           mean return ½, whatever the policy

    Without memory the question looks the same after both cues, so the policy answers 0 with some
    probability p after either, and is right with probability ½ p + ½ (1 − p). No episode is
    truncated.
    """

    length: int = 8

    obs_shape: ClassVar[tuple[int, ...]] = (3,)
    obs_dtype: ClassVar[str] = "float32"
    actions: ClassVar[int] = 2
    starts: ClassVar[int] = 2

    def __post_init__(self) -> None:
        refuse("envs: memory", check_count("length", self.length, 0))

    @property
    def max_steps(self) -> int:
        """Return the length of every episode: the cue, the blanks, the question."""
        return self.length + 2

    def is_late(self, steps):
        """Return whether an episode of so many steps is truncated; it never is."""
        return steps > self.max_steps

    @cached_property
    def next_states(self) -> np.ndarray:
        """[states, actions]: a step later, with the same cue. State = 2 · time + cue."""
        states = np.arange(2 * self.max_steps, dtype=np.int32)
        after = np.where(self.terminates[:, 0], states, states + 2).astype(np.int32)
        return np.stack([after, after], 1)

    @cached_property
    def rewards(self) -> np.ndarray:
        table = np.zeros((2 * self.max_steps, 2), np.float32)
        table[-2:] = np.eye(2)
        return table

    @cached_property
    def terminates(self) -> np.ndarray:
        table = np.zeros((2 * self.max_steps, 2), bool)
        table[-2:] = True
        return table

    @cached_property
    def observations(self) -> np.ndarray:
        table = np.zeros((2 * self.max_steps, 3), np.float32)
        table[:2, :2], table[-2:, 2] = np.eye(2), 1
        return table

    def optimal_q(self, gamma: float) -> np.ndarray:
        """Return Q* [states, actions] in closed form, of an agent that remembers the cue."""
        waits = self.length + 1 - np.arange(2 * self.max_steps) // 2
        return np.where(waits[:, None] > 0, gamma ** waits[:, None], self.rewards)


@dataclass(frozen=True)
class PixelsWorld:
    """An agent (red) walks a square of `cells`² cells to a goal (green), seen as an RGB picture.

    Both start anywhere, on different cells. Actions: up, down, left, right; walls stop the agent.
    Arriving pays 1 and terminates, all else pays 0, and after `max_steps` the episode is truncated.
    The mean return is the share of goals reached in time; shortest paths get 1. Every cell is
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
    def next_cells(self) -> np.ndarray:
        """[cells², actions]: the cell that a move leads to. Cell = row · cells + column."""
        row, column = np.divmod(np.arange(self.cells**2), self.cells)
        last = self.cells - 1
        rows = [np.maximum(row - 1, 0), np.minimum(row + 1, last), row, row]
        columns = [column, column, np.maximum(column - 1, 0), np.minimum(column + 1, last)]
        return (np.stack(rows, 1) * self.cells + np.stack(columns, 1)).astype(np.int32)

    @cached_property
    def spots(self) -> np.ndarray:
        """[cells², height, width]: a picture of each cell alone, 255 there and 0 elsewhere."""
        spots = np.eye(self.cells**2, dtype=np.uint8).reshape(-1, self.cells, self.cells) * 255
        return spots.repeat(self.scale, 1).repeat(self.scale, 2)

    def distance(self, agent, goal):
        """Return the steps of a shortest path; the optimal value of a start is γ^(distance − 1)."""
        agent, goal = np.divmod(agent, self.cells), np.divmod(goal, self.cells)
        return abs(agent[0] - goal[0]) + abs(agent[1] - goal[1])
