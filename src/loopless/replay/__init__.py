"""Buffers: what an agent saw, kept and handed out without a Python loop over it."""

from loopless.replay.rollout import RolloutBuffer

__all__ = ["RolloutBuffer"]
