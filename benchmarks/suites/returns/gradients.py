"""PyTorch's forward and backward through `gae`, checked against autograd through a loop over T."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from loopless.bench.contest import Entry
from loopless.bench.result import Measurement
from suites.returns.ours import TOLERANCE, TORCH
from suites.returns.proposals import time_loop
from suites.returns.rollout import Rollout, largest_error, within

PLAIN = f"{TORCH}, no gradients"
BOTH = f"{TORCH}, forward + backward"


def gradient_entries(rollout: Rollout) -> list[Entry]:
    """The call without gradients, and forward plus backward to rewards, values, next values."""
    rows = [
        Measurement("gradients", rollout.label, name, "loopless", "ours") for name in (PLAIN, BOTH)
    ]
    try:
        import torch

        import loopless as ll
    except ImportError as problem:
        return [Entry(replace(row, status="unavailable", reason=str(problem))) for row in rows]
    floats = [torch.from_numpy(x) for x in rollout.arrays[:3]]
    flags = [torch.from_numpy(x) for x in rollout.arrays[3:]]
    generator = torch.Generator().manual_seed(0)
    weights = [torch.randn(floats[0].shape, generator=generator) for _ in range(2)]

    def plain() -> Any:
        return ll.gae(*floats, *flags, **rollout.scalars)

    def gradients(function: Callable, dtype: torch.dtype) -> Callable[[], Any]:
        leaves = [x.detach().to(dtype).requires_grad_() for x in floats]
        cotangents = [x.to(dtype) for x in weights]
        return lambda: torch.autograd.grad(
            function(*leaves, *flags, **rollout.scalars), leaves, cotangents
        )

    both = gradients(ll.gae, torch.float32)
    try:
        plain()
        found = tuple(x.numpy() for x in both())
        right = tuple(x.numpy() for x in gradients(time_loop, torch.float64)())
        error = largest_error(found, right)
    except Exception as problem:
        reason = f"{type(problem).__name__}: {problem}"
        return [Entry(replace(row, status="failed", reason=reason)) for row in rows]
    verdict = within(TOLERANCE, error, "gradients")
    status = "disagrees" if verdict.reason else "ok"
    checked = replace(rows[1], status=status, reason=verdict.reason, max_error=verdict.error)
    return [Entry(rows[0], plain), Entry(checked, both)]
