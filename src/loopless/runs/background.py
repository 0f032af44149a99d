"""Checkpoints written beside training: the thread that trains pays for a copy and nothing else.

Hashing, writing and waiting for the disk happen in one other thread, in the order of the calls;
the bytes are the same. A failed write is raised by the next call here. It needs room for one copy
of the state; `Checkpoints.save` does the same without. Imports NumPy.
Tests: `tests/runs/test_background.py`.
"""

from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import numpy as np

from loopless.runs.checkpoint import Checkpoints
from loopless.runs.metrics import MetricsLog


class BackgroundSaver:
    """Saves to `checkpoints` in a thread; use it with `with`, which waits for the last one."""

    def __init__(self, checkpoints: Checkpoints, log: MetricsLog | None = None):
        self._checkpoints, self._log = checkpoints, log
        self._thread = ThreadPoolExecutor(1, "checkpoints")
        self._last: Future[str] | None = None
        self._copies: dict[str, np.ndarray] = {}

    def save(self, step: int, arrays: Mapping[str, Any], numbers: Mapping[str, Any], **options):
        """Copy the arrays and return; options as in `Checkpoints.save`.

        Waits for the save before, if that is still being written: one copy at a time.
        """
        self.wait()
        self._copies = {name: self._copy(name, np.asarray(a)) for name, a in arrays.items()}
        if self._log:
            self._log.flush()
        self._last = self._thread.submit(self._save, step, self._copies, dict(numbers), options)

    def wait(self) -> str | None:
        """Until the last save is on the disk; its name, or the error that it met."""
        last, self._last = self._last, None
        return last.result() if last else None

    def close(self) -> None:
        """Wait for the last save, and end the thread."""
        try:
            self.wait()
        finally:
            self._thread.shutdown()

    def __enter__(self) -> "BackgroundSaver":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _copy(self, name: str, array: np.ndarray) -> np.ndarray:
        # Into the memory of the copy before: fresh memory costs more to fill than the copying.
        old = self._copies.get(name)
        if old is None or (old.shape, old.dtype) != (array.shape, array.dtype):
            return np.array(array, order="C")
        np.copyto(old, array)
        return old

    def _save(self, step: int, arrays: dict, numbers: dict, options: dict) -> str:
        # The rows up to this step first: a run resumed from here must not lack them.
        if self._log:
            self._log.sync_file()
        return self._checkpoints.save(step, arrays, numbers, **options)
