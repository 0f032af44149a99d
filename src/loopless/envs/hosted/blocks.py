"""Many steps of many environments in arrays that are allocated once, and the episodes in them.

Hosted collection writes one observation for each step and environment, and a second one only where
an episode ended; the true successors are then one shifted copy. Worker processes share the same
arrays, one step long (`workers.py`). `Transfer` puts a block into one piece of memory for a
compiled call. Only what is done after the last step needs Numba, so that workers do not load it.
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from loopless.envs.spaces import Box, Space

WORD = 4  # bytes
TRANSFERRED = (
    "all_obs", "next_obs", "action", "reward", "terminated", "truncated", "valid", "all_masks",
)  # fmt: skip


class Episodes(NamedTuple):
    """Episodes that ended within a block: at which of its steps, in which environment."""

    step: np.ndarray
    env: np.ndarray
    episode_return: np.ndarray
    episode_length: np.ndarray


def layout(
    steps: int, envs: int, obs: Box, actions: Space, masks: int = 0
) -> dict[str, tuple[tuple, str]]:
    """Return the arrays of a block: name → (shape, dtype). masks: how many booleans a mask has."""
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
    valid: false where a step is not experience.
    all_obs: [steps + 1, envs, ...]: `obs`, followed by `last_obs`, to act on next.
    all_masks: [steps + 1, envs, n]: which actions were legal on `all_obs` (`envs/spaces.py`); None
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
        self._bounds = obs.bounds()
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
        """Return all arrays by name."""
        arrays = {k: x for k, x in vars(self).items() if isinstance(x, np.ndarray)}
        return {name: array for name, array in arrays.items() if not name.startswith("_")}

    def transitions(self) -> dict[str, np.ndarray]:
        """Return the steps that are experience, flat [n, ...], by time and then by environment."""
        names = ("obs", "action", "reward", "next_obs", "terminated", "truncated")
        arrays = {name: getattr(self, name) for name in names}
        if self.valid.all():
            size = self.steps * self.envs
            return {name: x.reshape(size, *x.shape[2:]) for name, x in arrays.items()}
        return {name: x[self.valid] for name, x in arrays.items()}

    def begin(self, obs: np.ndarray, mask: np.ndarray | None = None) -> None:
        """Prepare for the first step: write what is acted on, and clear the flags."""
        self.all_obs[0] = obs
        if self.all_masks is not None:
            self.all_masks[0] = mask
        self.terminated.fill(False)
        self.truncated.fill(False)
        self.valid.fill(True)

    def finish(self, final_obs: bool) -> tuple[bool, int]:
        """Fill in the successors after the last step.

        Returns whether all numbers are finite, and how many of the successors' numbers are outside
        the observation space. If `final_obs`, the rows of `next_obs` at ends are already written,
        and are kept.
        """
        from loopless.compiled.environments import finish

        return finish(
            self.all_obs.reshape(self.steps + 1, self.envs, -1),
            self.next_obs.reshape(self.steps, self.envs, -1),
            self.exact_reward, self.reward, self.terminated, self.truncated, final_obs,
            self._bounds,
        )  # fmt: skip


class Tally:
    """Returns and lengths of the running episodes, carried from block to block."""

    def __init__(self, envs: int) -> None:
        self.returns = np.zeros(envs)
        self.lengths = np.zeros(envs, np.int64)
        from loopless.compiled.environments import count

        self._count = count

    def count(self, block: Block) -> Episodes:
        """Return the episodes that ended in `block`."""
        size = block.steps * block.envs
        places, returns = np.empty((2, size), np.int64), np.empty(size)
        lengths = np.empty(size, np.int64)
        ended = self._count(
            block.exact_reward, block.terminated, block.truncated, block.valid,
            self.returns, self.lengths, places, returns, lengths,
        )  # fmt: skip
        return Episodes(places[0, :ended], places[1, :ended], returns[:ended], lengths[:ended])


class Transfer:
    """A block of `steps` steps of `envs` (a HostedEnvs), with more arrays, in one piece of memory.

    Every array that a compiled call receives costs the same few microseconds, however small it is,
    and a block has seven. Here all of them are one array: nothing is packed, and unpacking is part
    of the program.

    own: more arrays by name, (shape, dtype) each, to be written by the caller.

        transfer = Transfer(envs, steps=10, own={"number": ((), "int32")})
        envs.collect(policy, 10, out=transfer.block)
        transfer.own["number"][...] = 7
        jitted(transfer.words)        # in which `transfer.unpack(words)` returns the arrays

    A call that is still running reads the same memory, so write the next block into another
    `Transfer`.
    """

    def __init__(self, envs: Any, steps: int, own: Mapping[str, tuple] | None = None) -> None:
        placed: dict[str, tuple[int, tuple, str]] = {}
        words = 0

        def reserve(name: str, shape: tuple, dtype: str) -> None:
            nonlocal words
            placed[name] = words, tuple(shape), dtype
            size = int(np.prod(shape)) * np.dtype(dtype).itemsize
            words += -(-size // WORD)

        self.block = envs.block(steps)
        arrays = self.block.arrays()
        names = [name for name in TRANSFERRED if name in arrays]
        for name in names:
            reserve(name, arrays[name].shape, str(arrays[name].dtype))
        for name, (shape, dtype) in (own or {}).items():
            reserve(name, shape, dtype)
        self.words = np.zeros(words, np.uint32)
        views = {name: self._view(*place) for name, place in placed.items()}
        for name in names:
            setattr(self.block, name, views[name])
        self.own = {name: views[name] for name in own or {}}
        self._placed = placed

    def _view(self, start: int, shape: tuple, dtype: str) -> np.ndarray:
        return np.ndarray(shape, dtype, self.words, start * WORD)

    def unpack(self, words: Any) -> dict[str, Any]:
        """Return the arrays by name, in a traced function; `obs` is all_obs without its last."""
        arrays = {name: _array(words, *place) for name, place in self._placed.items()}
        return arrays | {"obs": arrays["all_obs"][:-1]}


def _array(words: Any, start: int, shape: tuple, dtype: str) -> Any:
    import jax.numpy as jnp
    from jax import lax

    count, size = int(np.prod(shape)), np.dtype(dtype).itemsize
    part = words[start : start - (-count * size // WORD)]
    if size == WORD:
        return lax.bitcast_convert_type(part, jnp.dtype(dtype)).reshape(shape)
    octets = lax.bitcast_convert_type(part, jnp.uint8).reshape(-1)[:count].reshape(shape)
    return octets != 0 if dtype == "bool" else octets
