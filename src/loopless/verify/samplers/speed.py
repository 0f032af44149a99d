"""A large buffer for samplers to be timed on: as their arguments, and as our buffer.

Imports `replay`. Tests: `tests/verify/test_samplers.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any

import numpy as np

from loopless.verify.samplers.laws import Priorities, Ring, Stream

STEPS, LENGTH = 100_000, 100


class _Many(Priorities):
    @cached_property
    def values(self) -> np.ndarray:
        return np.random.default_rng(0).uniform(0.1, 1.0, STEPS)


def large(claim: str) -> Any:
    """What a sampler is given: 100,000 slots, in episodes of 100 steps."""
    if claim == "uniform_sampler":
        return Ring(STEPS)
    if claim == "prioritized_sampler":
        return _Many(0.6, 0.4)
    return Stream((LENGTH,) * (STEPS // LENGTH), 0.9)


def ours(claim: str) -> Callable[[], Any]:
    """One draw of 256 from our buffer of that size."""
    fields = {"obs": ((), np.float32)}
    if claim == "geometric_sampler":
        from loopless.replay.host.episodic.buffer import EpisodicReplayBuffer

        obs = np.arange(STEPS, dtype=np.float32).reshape(-1, LENGTH)
        episodic = EpisodicReplayBuffer.from_padded(obs, convention="none")
        return lambda: episodic.sample(256, discount=0.9)
    rows = {"obs": np.arange(STEPS, dtype=np.float32)}
    if claim == "uniform_sampler":
        from loopless.replay.host.ring import ReplayBuffer

        ring = ReplayBuffer(STEPS, fields)
        ring.add(**rows)
        return lambda: ring.sample(256)
    from loopless.replay.host.prioritized import PrioritizedReplayBuffer

    prioritized = PrioritizedReplayBuffer(STEPS, fields)
    prioritized.add(**rows)
    return lambda: prioritized.sample(256, beta=0.4)
