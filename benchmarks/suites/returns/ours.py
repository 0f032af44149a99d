"""Our own rows: `loopless.gae` on three array libraries, the loop it replaces, and the floor."""

from __future__ import annotations

import numpy as np

from loopless.bench.contender import Call, Contender
from suites.returns.rollout import Answers, Rollout

NUMPY = "loopless, NumPy"
TORCH = "loopless, PyTorch"
JAX = "loopless, JAX jit"
FLOOR = "floor: two in-place adds"
TOLERANCE = 2e-5


def as_numpy(output: tuple) -> Answers:
    advantages, returns = output
    return np.asarray(advantages), np.asarray(returns)


def _numpy(rollout: Rollout) -> Call:
    import loopless as ll

    arrays, scalars = rollout.arrays, rollout.scalars
    return Call(lambda: ll.gae(*arrays, **scalars), as_numpy)


def _torch(rollout: Rollout) -> Call:
    import torch

    import loopless as ll

    arrays, scalars = [torch.from_numpy(x) for x in rollout.arrays], rollout.scalars
    return Call(lambda: ll.gae(*arrays, **scalars), as_numpy)


def _jax(rollout: Rollout) -> Call:
    import jax

    import loopless as ll

    scalars = rollout.scalars
    gae = jax.jit(lambda *arrays: ll.gae(*arrays, **scalars))
    arrays = [jax.numpy.asarray(x) for x in rollout.arrays]
    return Call(lambda: jax.block_until_ready(gae(*arrays)), as_numpy)


def _reference(rollout: Rollout) -> Call:
    from loopless.reference import returns

    return Call(lambda: returns.gae(*rollout.arrays, **rollout.scalars), as_numpy)


def _floor(rollout: Rollout) -> Call:
    totals = np.zeros_like(rollout.rewards), np.zeros_like(rollout.values)

    def stream() -> None:
        np.add(totals[0], rollout.rewards, out=totals[0])
        np.add(totals[1], rollout.values, out=totals[1])

    return Call(stream, None)


OURS = (
    Contender(NUMPY, "loopless", "ours", _numpy, TOLERANCE),
    Contender(TORCH, "loopless", "ours", _torch, TOLERANCE),
    Contender(JAX, "loopless", "ours", _jax, TOLERANCE),
)
LOOP = Contender(
    "reference: env × step loop",
    "loopless",
    "reference",
    _reference,
    TOLERANCE,
    note="plain Python, float64",
    largest=200_000,
)
STREAM = Contender(FLOOR, "numpy", "floor", _floor, note="rewards and values, each added to a sum")
