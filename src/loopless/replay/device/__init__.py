"""Buffers as pure functions on pytrees, for use inside `jit`, `vmap` and `scan`. Needs JAX."""

try:
    import jax
except ImportError as error:
    message = "loopless.replay.device needs JAX: pip install 'loopless[jax]'"
    raise ImportError(message, name="jax") from error

from loopless.replay.device.episodes import EpisodicState
from loopless.replay.device.episodic import EpisodicBuffer
from loopless.replay.device.frames import FrameBuffer, FramesState
from loopless.replay.device.prioritized import PrioritizedBuffer, PrioritizedState
from loopless.replay.device.ring import RingBuffer, RingState, Stored
from loopless.replay.device.words import random_words

__all__ = [
    "EpisodicBuffer",
    "EpisodicState",
    "FrameBuffer",
    "FramesState",
    "PrioritizedBuffer",
    "PrioritizedState",
    "RingBuffer",
    "RingState",
    "Stored",
    "random_words",
]
