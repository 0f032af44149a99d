"""Programs as people write them: a Q-network's update and PPO's, in eager PyTorch.

A case holds modules, rows and the loss; `Eager` makes updates with them as a training loop does,
with the fastest of PyTorch's own optimizers. The check compares where K updates have moved the
parameters with where float64 moves them.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np

from loopless.bench.contest import Call, Contender, Verdict
from suites.processes import torch

OBS, ACTIONS, GAMMA, RATE = 4, 2, 0.99, 1e-3
TOLERANCE = 0.01  # of the movement's length: Adam amplifies the rounding of gradients near 0


def mlp(sizes: tuple[int, ...], activation: str, seed: int) -> Any:
    """Return a network of linear layers with this activation between them."""
    torch.manual_seed(seed)
    layers = [
        layer
        for inputs, outputs in pairwise(sizes)
        for layer in (torch.nn.Linear(inputs, outputs), getattr(torch.nn, activation)())
    ]
    return torch.nn.Sequential(*layers[:-1])


@dataclass(frozen=True)
class QUpdates:
    """K updates of a Q-network on batches that are there: Huber, clipped, Adam."""

    hidden: tuple[int, ...]
    batch: int
    updates: int
    max_norm: float = 10.0

    @property
    def label(self) -> str:
        return f"Q-network {list(self.hidden)}, batch {self.batch}, K = {self.updates}"

    @cached_property
    def rows(self) -> dict[str, np.ndarray]:
        """Return K batches [K, batch, ...]."""
        rng, shape = np.random.default_rng(0), (self.updates, self.batch)
        obs = rng.standard_normal((*shape, OBS), dtype=np.float32)
        return {
            "obs": obs,
            "action": rng.integers(0, ACTIONS, shape),
            "reward": rng.standard_normal(shape, dtype=np.float32),
            "next_obs": obs + 0.1 * rng.standard_normal((*shape, OBS), dtype=np.float32),
            "done": (rng.random(shape) < 0.05).astype(np.float32),
        }

    indices = None

    def modules(self) -> tuple[Any, Any]:
        """Return the network that learns, and its target."""
        sizes = (OBS, *self.hidden, ACTIONS)
        return mlp(sizes, "ReLU", 0), mlp(sizes, "ReLU", 1)

    @staticmethod
    def loss(net: Any, batch: dict[str, Any], target: Any) -> Any:
        """Return the Huber loss of the taken actions."""
        q = net(batch["obs"]).gather(1, batch["action"][:, None]).squeeze(1)
        with torch.no_grad():
            best = target(batch["next_obs"]).max(1).values
            aims = batch["reward"] + GAMMA * (1 - batch["done"]) * best
        return torch.nn.functional.smooth_l1_loss(q, aims)

    def check(self, contender: Contender, call: Any, output: Any) -> Verdict:
        """Compare the movement of the parameters with float64's."""
        return check_movement(self, contender, call.read(output))


@dataclass(frozen=True)
class PPOUpdates:
    """The minibatches of one rollout: policy and value of two hidden layers each, clipped, Adam."""

    batch: int = 128
    updates: int = 16
    hidden: tuple[int, ...] = (64, 64)
    max_norm: float = 0.5

    @property
    def label(self) -> str:
        return f"PPO {list(self.hidden)}, batch {self.batch}, K = {self.updates}"

    @cached_property
    def rows(self) -> dict[str, np.ndarray]:
        """Return a rollout, whose rows are the minibatches' four times over."""
        rng, count = np.random.default_rng(0), self.batch * self.updates // 4
        names = ("advantage", "return", "value", "log_prob")
        rows = {name: rng.standard_normal(count, dtype=np.float32) for name in names}
        rows["log_prob"] = np.float32(np.log(0.5)) + 0.1 * rows["log_prob"]
        obs = rng.standard_normal((count, OBS), dtype=np.float32)
        return rows | {"obs": obs, "action": rng.integers(0, ACTIONS, count)}

    @cached_property
    def indices(self) -> np.ndarray:
        """Return the rows of each minibatch, [K, batch]."""
        rng, count = np.random.default_rng(1), len(self.rows["action"])
        epochs = [rng.permutation(count) for _ in range(4)]
        return np.concatenate(epochs).reshape(self.updates, self.batch)

    def modules(self) -> tuple[Any]:
        """Return policy and value as one module."""
        policy, value = ((OBS, *self.hidden, width) for width in (ACTIONS, 1))
        parts = {"policy": mlp(policy, "Tanh", 0), "value": mlp(value, "Tanh", 1)}
        return (torch.nn.ModuleDict(parts),)

    @staticmethod
    def loss(nets: Any, batch: dict[str, Any]) -> Any:
        """Return PPO's clipped surrogate, value loss and entropy."""
        policy = torch.distributions.Categorical(logits=nets["policy"](batch["obs"]))
        ratio = (policy.log_prob(batch["action"]) - batch["log_prob"]).exp()
        scaled = batch["advantage"]
        scaled = (scaled - scaled.mean()) / (scaled.std() + 1e-8)
        surrogate = torch.min(scaled * ratio, scaled * ratio.clamp(0.8, 1.2)).mean()
        errors = (nets["value"](batch["obs"]).squeeze(-1) - batch["return"]) ** 2
        return 0.5 * errors.mean() - surrogate - 0.01 * policy.entropy().mean()

    def check(self, contender: Contender, call: Any, output: Any) -> Verdict:
        """Compare the movement of the parameters with float64's."""
        return check_movement(self, contender, call.read(output))


Updates = QUpdates | PPOUpdates


class Eager:
    """A training loop's updates: the loss, backward, clip, and PyTorch's fused Adam."""

    def __init__(self, case: Updates, dtype: Any) -> None:
        self.case = case
        self.net, *self.others = (copy.deepcopy(m).to(dtype) for m in case.modules())
        self.optimizer = torch.optim.Adam(self.net.parameters(), lr=RATE, fused=True)
        self.rows = {name: torch.from_numpy(rows) for name, rows in case.rows.items()}
        self.rows = {n: x.to(dtype) if x.is_floating_point() else x for n, x in self.rows.items()}
        self.indices = None if case.indices is None else torch.from_numpy(case.indices)

    def __call__(self) -> None:
        for k in range(self.case.updates):
            at = k if self.indices is None else self.indices[k]
            batch = {name: x[at] for name, x in self.rows.items()}
            loss = self.case.loss(self.net, batch, *self.others)
            self.optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(self.net.parameters(), self.case.max_norm)
            self.optimizer.step()


def as_vector(module: Any) -> np.ndarray:
    """Return all parameters as one array."""
    return torch.nn.utils.parameters_to_vector(module.parameters()).detach().numpy().copy()


def check_movement(case: Updates, contender: Contender, parameters: np.ndarray) -> Verdict:
    """Compare the parameters after the first call with float64's, by the length of the way."""
    start, exact = as_vector(case.modules()[0]), Eager(case, torch.float64)
    exact()
    way = as_vector(exact.net) - start
    error = float(np.linalg.norm(parameters - start - way) / np.linalg.norm(way))
    wrong = not error <= contender.tolerance
    return Verdict(f"off by {error:.2g} of the way" if wrong else "", error)


def eager(case: Updates) -> Call:
    """Return K updates in eager PyTorch."""
    loop = Eager(case, torch.float32)
    return Call(loop, lambda _: as_vector(loop.net))
