"""Buffers: what an agent saw, kept and handed out without a Python loop over it."""

from loopless.replay.host.episodic.buffer import EpisodicReplayBuffer
from loopless.replay.host.prioritized import Linear, PrioritizedReplayBuffer
from loopless.replay.host.ring import ReplayBuffer
from loopless.replay.host.rollout.buffer import RolloutBuffer

__all__ = [
    "EpisodicReplayBuffer",
    "Linear",
    "PrioritizedReplayBuffer",
    "ReplayBuffer",
    "RolloutBuffer",
]
