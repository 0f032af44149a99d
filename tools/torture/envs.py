"""Environments that misbehave at a random step: every fault is named, none changes the data."""

from typing import Any

import gymnasium
import numpy as np

from loopless.envs import EnvError, EnvFault, HostedEnvs
from torture.failure import Failure

VALUES = (
    None, "False", "1.0", b"", 1j, (), [], {}, object(), np.zeros(1), np.zeros((2, 2)),
    np.float32(1),
    np.array("x"), 300.7, -1.0, 2, np.zeros(4, complex), float("nan"), [1.0, [2.0]], np.int64(7),
)  # fmt: skip


class Misbehaving(gymnasium.Env):
    """Returns `value` at `place` of what step number `at` returns, or raises there."""

    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, at: int, place: int, value: Any, space: Any) -> None:
        self.observation_space = space
        self.at, self.place, self.value, self.count = at, place, value, 0

    def reset(self, *, seed=None, options=None):
        return np.zeros(4, self.observation_space.dtype), {}

    def step(self, action):
        self.count += 1
        returned = [np.ones(4, self.observation_space.dtype), 1.0, False, False, {}]
        if self.count == self.at:
            if self.place == 4:
                raise RuntimeError("a fault of the environment")
            returned[self.place] = self.value
        return tuple(returned)


if "torture/Misbehaving-v0" not in gymnasium.registry:
    gymnasium.register("torture/Misbehaving-v0", Misbehaving)


def fuzz(seed: int) -> dict[str, int]:
    """Step one environment past its fault; return what to count."""
    rng = np.random.default_rng(seed)
    dtype = (np.float32, np.uint8, np.float64)[rng.integers(3)]
    at, place = int(rng.integers(1, 9)), int(rng.integers(5))
    value = VALUES[rng.integers(len(VALUES))]
    options = {
        "at": at,
        "place": place,
        "value": value,
        "space": gymnasium.spaces.Box(0, 255, (4,), dtype),
    }
    said = f"{value!r} at place {place} of step {at}, {np.dtype(dtype)}"
    with HostedEnvs("torture/Misbehaving-v0", 1, env_kwargs=options) as world:
        try:
            block = world.collect(lambda obs: np.zeros(1, int), 10)
        except EnvError as error:
            if isinstance(error, EnvFault) and f"at its step {at - 1}" not in str(error):
                raise Failure(f"{said}: the step is not named: {error}") from error
            return {"environments": 1, "environments refused": 1}
        except Exception as error:
            raise Failure(f"{said}: {type(error).__name__}: {error}") from error
    usual = np.delete(block.next_obs[:, 0], at - 1, 0)
    if place == 4 or not (usual == 1).all() or not np.isfinite(block.reward).all():
        raise Failure(f"{said}: was let through")
    return {"environments": 1}
