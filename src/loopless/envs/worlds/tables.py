"""Two worlds for policies that need more than the observation: a mask, or a memory.

Rules and right answers as NumPy tables, like those of `worlds.py`, for the compiled faces in
`tables.py` and the Gymnasium faces in `gym_worlds.py`. Imports NumPy only. Loop twins of the closed
forms are in `tests/envs/test_table_worlds.py`.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np

from loopless.envs.refusals import refuse
from loopless.envs.worlds.chain_and_pixels import ChainWorld
from loopless.refusals import check_count


@dataclass(frozen=True)
class MaskedWorld:
    """The chain of `ChainWorld` with more buttons than work: which two do changes with the state.

    In state s, action s mod `actions` steps right, and the next one (cyclically) steps left. The
    others are not legal: they pay −1 and terminate. `legal` says so beforehand.

        Q*(s, right) = γ^(n−1−s)        Q*(s, left) = γ^(n − max(s−1, 0))        Q*(s, other) = −1

    Who keeps to the legal ones never loses: a random walk over them is paid 0 or more, while one
    over all buttons ends with −1 with probability 1 − 2/`actions` at every step.
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
        """An episode starts in one of the first so many states, each equally likely."""
        return self.length

    def is_late(self, steps):
        """Whether an episode of so many steps is truncated."""
        return steps >= self.max_steps

    @cached_property
    def legal(self) -> np.ndarray:
        """[states, actions]: whether it may be chosen."""
        return self._on_buttons(np.ones((self.length, 2), bool), False)

    @cached_property
    def next_states(self) -> np.ndarray:
        """[states, actions]: where an action leads (at a terminating one: nowhere, so s)."""
        stays = np.arange(self.length, dtype=np.int32)[:, None]
        return self._on_buttons(self._chain.next_states, stays)

    @cached_property
    def rewards(self) -> np.ndarray:
        """[states, actions]: what it pays."""
        return self._on_buttons(self._chain.rewards, -1)

    @cached_property
    def terminates(self) -> np.ndarray:
        """[states, actions]: whether it ends the episode."""
        return self._on_buttons(self._chain.terminates, True)

    @property
    def observations(self) -> np.ndarray:
        """[states, length]: what each state looks like."""
        return self._chain.observations

    def optimal_q(self, gamma: float) -> np.ndarray:
        """Q* [states, actions] in closed form."""
        return self._on_buttons(self._chain.optimal_q(gamma), -1)

    @cached_property
    def _chain(self) -> ChainWorld:
        return ChainWorld(self.length, self.max_steps)

    def _on_buttons(self, table: np.ndarray, other) -> np.ndarray:
        """A table of the chain's two actions as one of all buttons, `other` on those not legal."""
        states = np.arange(self.length)
        buttons = np.stack([states + 1, states], 1) % self.actions
        full = np.empty((self.length, self.actions), table.dtype)
        full[...] = other
        np.put_along_axis(full, buttons, table, 1)
        return full


@dataclass(frozen=True)
class MemoryWorld:
    """A cue, 0 or 1, is shown once, and after `length` blank steps it is asked for.

    Observations are (cue is 0, cue is 1, asked): the cue alone, then zeros, then the question.
    Naming the cue when asked pays 1, the other answer and everything before pay 0: the mean return
    is the share of right answers.

        with memory       mean return 1, value of a start γ^(length + 1)
        without           mean return ½, whatever the policy

    Without, because the question looks the same after both cues: who sees nothing else answers 0
    with the same probability p after either, and is right with probability ½ p + ½ (1 − p).
    Nothing is ever truncated.
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
        """How long every episode is: the cue, the blanks, the question."""
        return self.length + 2

    def is_late(self, steps):
        """Whether an episode of so many steps is truncated: there is none."""
        return steps > self.max_steps

    @cached_property
    def next_states(self) -> np.ndarray:
        """[states, actions]: a step later, with the same cue. State = 2 · time + cue."""
        states = np.arange(2 * self.max_steps, dtype=np.int32)
        after = np.where(self.terminates[:, 0], states, states + 2).astype(np.int32)
        return np.stack([after, after], 1)

    @cached_property
    def rewards(self) -> np.ndarray:
        """[states, actions]: what it pays."""
        table = np.zeros((2 * self.max_steps, 2), np.float32)
        table[-2:] = np.eye(2)
        return table

    @cached_property
    def terminates(self) -> np.ndarray:
        """[states, actions]: whether it ends the episode."""
        table = np.zeros((2 * self.max_steps, 2), bool)
        table[-2:] = True
        return table

    @cached_property
    def observations(self) -> np.ndarray:
        """[states, 3]: what each state looks like."""
        table = np.zeros((2 * self.max_steps, 3), np.float32)
        table[:2, :2], table[-2:, 2] = np.eye(2), 1
        return table

    def optimal_q(self, gamma: float) -> np.ndarray:
        """Q* [states, actions] in closed form, for who remembers the cue."""
        waits = self.length + 1 - np.arange(2 * self.max_steps) // 2
        return np.where(waits[:, None] > 0, gamma ** waits[:, None], self.rewards)
