"""Updates of Stable-Baselines3's policies by `fuse`, and what is said where that cannot be."""

import copy
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch

import loopless as ll
from loopless.adapters.sb3 import acting

MOST_BYTES = 64 * 2**20  # of the batches in one call
MOST_UPDATES = 512  # in one call
SIZES = (256, 64, 16, 4, 1)  # of calls whose number of updates varies


class Compiled:
    """What a model of ours has besides Stable-Baselines3's: a fused step, and who acts.

    It is no part of a saved or copied model; a copy makes its own.
    """

    def __init__(self, name: str, read: Callable) -> None:
        self.name, self.read = name, read
        self.step: Any = None
        self.trains: tuple = ()
        self.refusal: str | None = None
        self.numbers: dict[str, torch.Tensor] = {}
        self.actor: Any = None
        self.acts_for: Any = None

    def __reduce__(self) -> tuple:
        return Compiled, (self.name, self.read)

    def refuse(self, reason: object) -> None:
        """Say once that updates go on in Stable-Baselines3's own code, and why."""
        self.refusal = str(reason)
        warnings.warn(
            f"adapters.sb3: the updates of this {self.name} go on in Stable-Baselines3's own code: "
            f"{reason}",
            stacklevel=4,
        )

    def prepare(self, loss: Callable, module: Any, optimizer: Any, max_norm: Any) -> bool:
        """Return whether there is a fused step for these, making one if need be."""
        if self.refusal is not None:
            return False
        trains = module, optimizer, max_norm
        if self.step is not None and all(map(_same, trains, self.trains)):
            return True
        state = np.random.get_state()
        try:
            self.step = ll.fuse(loss, module, optimizer, max_gradient_norm=max_norm)
        except (ImportError, TypeError, ValueError) as error:
            self.refuse(error)
            return False
        finally:  # what is imported for it draws from NumPy's generator
            np.random.set_state(state)
        self.trains = trains
        return True

    def number(self, name: str, value: float) -> torch.Tensor:
        """Return a number as a tensor, the same at each call: it may change at no cost."""
        if name not in self.numbers:
            self.numbers[name] = torch.tensor(0.0)
        return self.numbers[name].fill_(value)

    def find_actor(self, policy: Any) -> Any:
        """Return what acts for `policy`, or None."""
        if self.acts_for is not policy or not (self.actor is None or self.actor.is_current(policy)):
            self.actor, self.acts_for = self.read(policy), policy
        if self.actor is not None and policy.training:
            policy.set_training_mode(False)
        return self.actor

    def predict(self, policy: Any, observation: Any, deterministic: bool) -> Any:
        """Return what `policy.predict` returns as actions, or None for what is not read."""
        observations, vectorized = acting.vectorize(observation, policy.observation_space)
        if observations is None:
            return None
        actor = self.find_actor(policy)
        if actor is None:
            return None
        actions = actor(observations, deterministic)
        return actions if vectorized else actions.squeeze(axis=0)


def _same(a: Any, b: Any) -> bool:
    return a is b or (isinstance(a, float | int) and a == b)


def split(updates: int, bytes_per_update: int, *, constant: bool) -> Iterator[int]:
    """Yield how many updates go into each call.

    A number that is the same each time has a program of its own. One that varies is a sum of a few
    sizes, because each size is compiled.
    """
    most = max(1, min(MOST_UPDATES, MOST_BYTES // max(1, bytes_per_update)))
    while updates > 0:
        call = min(updates, most)
        if not constant:
            call = next(size for size in SIZES if size <= call)
        yield call
        updates -= call


class Snapshot:
    """A copy of a module and its optimizer, to go back to."""

    def __init__(self, module: Any, optimizer: Any) -> None:
        self.module, self.optimizer = module, optimizer
        self.weights = copy.deepcopy(module.state_dict())
        self.moments = copy.deepcopy(optimizer.state_dict())

    def restore(self) -> None:
        """Put everything back as it was."""
        self.module.load_state_dict(self.weights)
        self.optimizer.load_state_dict(copy.deepcopy(self.moments))
