"""Buffers: what an agent saw, kept and handed out without a Python loop over it."""

from loopless.replay.episodic import EpisodicReplayBuffer
from loopless.replay.prioritized import Linear, PrioritizedReplayBuffer
from loopless.replay.ring import ReplayBuffer
from loopless.replay.rollout import RolloutBuffer

__all__ = [
    "EpisodicReplayBuffer",
    "Linear",
    "PrioritizedReplayBuffer",
    "ReplayBuffer",
    "RolloutBuffer",
]
