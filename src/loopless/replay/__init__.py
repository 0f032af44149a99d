"""Replay and rollout buffers: they store what an agent saw, and draw batches from it.

`host/` has the buffers in NumPy arrays, `device/` those in JAX arrays. `storage/` keeps host
buffers in memory or in mapped files, and saves them. `fields`, `casts` and `sampling` are shared.
"""

from loopless.replay.host.episodic.buffer import EpisodicReplayBuffer
from loopless.replay.host.prioritized import Linear, PrioritizedReplayBuffer
from loopless.replay.host.rollout.buffer import RolloutBuffer
from loopless.replay.host.uniform import ReplayBuffer

__all__ = [
    "EpisodicReplayBuffer",
    "Linear",
    "PrioritizedReplayBuffer",
    "ReplayBuffer",
    "RolloutBuffer",
]
