"""The loss alone: `q_targets` and `q_loss` on PyTorch tensors, as a training loop calls them.

Imports PyTorch when prepared, and the loop twins for the check. Tests:
`tests/suites/q_learning/test_bench_losses.py`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import numpy as np

from loopless.bench.contest import Call, Contender, Verdict
from suites.q_learning.plain import Rules
from suites.q_learning.updates import ACTIONS

FORWARD, RECORDING = "loopless, PyTorch", "loopless, PyTorch, q requires grad"
EAGER, EAGER_RECORDING = "PyTorch, eager", "PyTorch, eager, q requires grad"
TOLERANCE = 1e-6
GAMMA = Rules().gamma


@dataclass(frozen=True)
class Losses:
    """Double targets and the Huber loss of a batch, from values that are there already."""

    batch: int

    @property
    def label(self) -> str:
        return f"targets and loss, batch {self.batch}"

    @property
    def size(self) -> int:
        return self.batch

    @cached_property
    def arrays(self) -> dict[str, np.ndarray]:
        generator = np.random.default_rng(0)
        values = {
            name: generator.standard_normal((self.batch, ACTIONS), dtype=np.float32)
            for name in ("q", "next_q", "next_q_online")
        }
        return values | {
            "actions": generator.integers(0, ACTIONS, self.batch),
            "rewards": generator.standard_normal(self.batch, dtype=np.float32),
            "terminated": generator.random(self.batch) < 0.1,
        }

    def check(self, contender: Contender, call: Any, output: Any) -> Verdict:
        """Loss and errors against the loop twins."""
        from loopless.reference import q_learning

        x = self.arrays
        targets = q_learning.q_targets(
            x["rewards"], x["terminated"], x["next_q"], gamma=GAMMA,
            next_q_online=x["next_q_online"],
        )  # fmt: skip
        expected = q_learning.q_loss(x["q"], x["actions"], targets, loss="huber")
        found = call.read(output)
        error = max(float(np.max(np.abs(a - b))) for a, b in zip(found, expected, strict=True))
        wrong = not error <= contender.tolerance
        return Verdict(f"off by up to {error:.2g}" if wrong else "", error)


def _tensors(case: Losses, records: bool) -> dict[str, Any]:
    import torch

    x = {name: torch.from_numpy(values) for name, values in case.arrays.items()}
    return x | {"q": x["q"].clone().requires_grad_(records)}


def _read(output: Any) -> list[np.ndarray]:
    return [part.detach().numpy() for part in output]


def _ours(case: Losses, records: bool) -> Call:
    from loopless import q_loss, q_targets

    x = _tensors(case, records)

    def run() -> Any:
        targets = q_targets(
            x["rewards"], x["terminated"], x["next_q"], gamma=GAMMA,
            next_q_online=x["next_q_online"],
        )  # fmt: skip
        return q_loss(x["q"], x["actions"], targets, loss="huber")

    return Call(run, _read)


def _eager(case: Losses, records: bool) -> Call:
    import torch
    from torch.nn.functional import smooth_l1_loss

    x = _tensors(case, records)

    def run() -> Any:
        with torch.no_grad():
            best = x["next_q_online"].argmax(1, keepdim=True)
            value = x["next_q"].gather(1, best).squeeze(1)
            targets = torch.where(x["terminated"], x["rewards"], x["rewards"] + GAMMA * value)
        q = x["q"].gather(1, x["actions"].unsqueeze(1)).squeeze(1)
        return smooth_l1_loss(q, targets), (q - targets).detach()

    return Call(run, _read)


CONTENDERS = (
    Contender(FORWARD, "loopless", "ours", partial(_ours, records=False), TOLERANCE),
    Contender(RECORDING, "loopless", "ours", partial(_ours, records=True), TOLERANCE),
    Contender(EAGER, "torch", "peer", partial(_eager, records=False), TOLERANCE),
    Contender(EAGER_RECORDING, "torch", "peer", partial(_eager, records=True), TOLERANCE),
)
