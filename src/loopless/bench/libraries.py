"""Settings that hold for all rows of a library, ours and peers' alike, and quiet imports of peers.

Imports libraries only when called. Tests: `tests/bench/test_bench_contest.py`.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager


def prepare(threads: int) -> None:
    """Threads for PyTorch; no asynchronous dispatch for JAX."""
    try:
        import torch

        torch.set_num_threads(threads)
    except ImportError:
        pass
    try:
        import jax

        # Every row waits for its answer: a hop to another thread would only add noise.
        jax.config.update("jax_cpu_enable_async_dispatch", False)
    except ImportError:
        pass


def prepare_like_training(threads: int) -> None:
    """`prepare`, and first the settings that a training command makes before JAX starts."""
    from loopless.train import commands
    from loopless.train.dqn.config import DQN

    commands.prepare(DQN())
    prepare(threads)


@contextmanager
def warnings_of_peers_ignored() -> Iterator[None]:
    """Peers warn about their own dependencies when imported; that is not our caller's concern."""
    with warnings.catch_warnings():
        for category in (DeprecationWarning, PendingDeprecationWarning, FutureWarning, UserWarning):
            warnings.simplefilter("ignore", category)
        yield
