"""The update written plainly in eager PyTorch, one operation after the other: what we replace.

Double DQN as users write it: rows of contiguous tensors, targets without gradient, Huber loss,
backward, clip, Adam. No debug line, no host read: kinder than what the founding plan was about.
Imports PyTorch when prepared. Tests: `tests/suites/q_learning/test_bench_updates.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from loopless.bench.contest import Call, Contender
from suites.q_learning.plain import Layers, Rules
from suites.q_learning.updates import TOLERANCE, Learned, Update

EAGER, FUSED_ADAM = "PyTorch, eager", "PyTorch, eager, fused Adam"


def network(layers: Layers) -> Any:
    """A `torch.nn.Sequential` with these weights."""
    import torch

    parts: list[Any] = []
    for weight, bias in layers:
        linear = torch.nn.Linear(*weight.shape)
        linear.weight.data = torch.from_numpy(np.ascontiguousarray(weight.T))
        linear.bias.data = torch.from_numpy(bias.copy())
        parts += [linear, torch.nn.ReLU()]
    return torch.nn.Sequential(*parts[:-1])


def layers_of(net: Any) -> Layers:
    """The other way round."""
    parts = [part.detach().numpy().copy() for part in net.parameters()]
    return [(weight.T, bias) for weight, bias in zip(parts[::2], parts[1::2], strict=True)]


class Learner:
    """An online network, a target network, an optimizer, and one update."""

    def __init__(self, online: Layers, target: Layers, rules: Rules, fused: bool = False) -> None:
        import torch

        self.rules = rules
        self.online, self.target = network(online), network(target)
        self.parameters = list(self.online.parameters())
        self.optimizer = torch.optim.Adam(self.parameters, lr=rules.rate, fused=fused)

    def targets(self, batch: dict) -> Any:
        import torch

        with torch.no_grad():
            values = self.target(batch["next_obs"])
            judge = self.online(batch["next_obs"]) if self.rules.double else values
            value = values.gather(1, judge.argmax(1, keepdim=True)).squeeze(1)
            ahead = batch["reward"] + self.rules.gamma * value
            return torch.where(batch["terminated"], batch["reward"], ahead)

    def loss(self, batch: dict) -> Any:
        from torch.nn.functional import smooth_l1_loss

        q = self.online(batch["obs"]).gather(1, batch["action"].unsqueeze(1)).squeeze(1)
        return smooth_l1_loss(q, self.targets(batch))

    def update(self, batch: dict) -> None:
        self.step(self.loss(batch))

    def step(self, loss: Any) -> None:
        self.optimizer.zero_grad()
        loss.backward()
        self.apply()

    def apply(self) -> None:
        """Clip the gradients that are there, and follow them."""
        import torch

        if self.rules.max_norm is not None:
            torch.nn.utils.clip_grad_norm_(self.parameters, self.rules.max_norm)
        self.optimizer.step()


class Sampler:
    """Rows of contiguous tensors, drawn uniformly; remembers which until it is asked."""

    def __init__(self, stored: dict[str, np.ndarray], remembers: bool = True) -> None:
        import torch

        self.fields = {name: torch.from_numpy(values) for name, values in stored.items()}
        self.count = len(stored["obs"])
        self._drawn: list[Any] | None = [] if remembers else None

    def rows(self, batch: int) -> Any:
        import torch

        rows = torch.randint(self.count, (batch,))
        if self._drawn is not None:
            self._drawn.append(rows)
        return rows

    def __call__(self, batch: int) -> dict:
        rows = self.rows(batch)
        return {name: values[rows] for name, values in self.fields.items()}

    def drawn(self) -> np.ndarray:
        """All rows so far; from now on none is remembered."""
        found, self._drawn = self._drawn or [], None
        return np.concatenate([rows.numpy() for rows in found])


def call(case: Update, learner: Learner, sampler: Sampler, event: Callable[[], None]) -> Call:
    """The timed call of an event, and what it did until it was asked."""

    def read(_: None) -> Learned:
        rows = sampler.drawn().reshape(-1, case.batch)
        return Learned(rows, layers_of(learner.online), case.rules)

    return Call(event, read)


def start(case: Update, fused: bool = False) -> tuple[Learner, Sampler]:
    import torch

    torch.manual_seed(case.seed)
    return Learner(case.online, case.target, case.rules, fused), Sampler(case.stored)


def _eager(case: Update, fused: bool = False) -> Call:
    learner, sampler = start(case, fused)

    def event() -> None:
        for _ in range(case.draws):
            batch = sampler(case.batch)
            for _ in range(case.repeats):
                learner.update(batch)

    return call(case, learner, sampler, event)


PLAIN_ADAM = Contender(EAGER, "torch", "peer", _eager, TOLERANCE)
WITH_FUSED_ADAM = Contender(FUSED_ADAM, "torch", "peer", partial(_eager, fused=True), TOLERANCE)
CONTENDERS = (PLAIN_ADAM, WITH_FUSED_ADAM)
