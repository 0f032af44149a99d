"""The log of a run: `metrics.jsonl`, one JSON object a line, which all plots are drawn from.

Lines are gathered and handed to the operating system about once a second, so that logging costs
the training thread next to nothing; `sync` waits for the disk when a checkpoint is saved. After a
crash the last line may be torn: it is cut when the log is opened again, and readers skip it.
`columns` reads what is written here. The table of metrics is in `glossary`.
"""

import json
import math
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal

import numpy as np

from loopless.files import atomic
from loopless.refusals import did_you_mean
from loopless.runs.columns import columns, read, read_lines, row_of
from loopless.runs.failures import writing
from loopless.runs.folder import open_in_place
from loopless.runs.glossary import METRICS, Metric

__all__ = ["METRICS", "Metric", "MetricsLog", "columns", "read"]

Kind = Literal["train", "eval"]
COPIED = 1 << 20  # bytes of a log that are copied at once


class MetricsLog:
    """Appends to `metrics.jsonl`. One process at a time: whoever holds the run's lock."""

    def __init__(self, path: Path, flush_s: float = 1.0, clock: Callable[[], float] = time.time):
        self.path, self._flush_s, self._clock = Path(path), flush_s, clock
        self._pending = bytearray()
        self._flushed_at = clock()
        self._file = open_in_place(path, os.O_APPEND)
        with writing(str(path)):
            os.ftruncate(self._file, _end_of_last_line(self._file))

    def write(self, step: int, kind: Kind = "train", **values: Any) -> None:
        """Log the metrics of one step: each a number, one per seed, or a list per seed."""
        unknown = [name for name in values if name not in METRICS]
        if unknown:
            raise ValueError(" ".join(map(_unknown, unknown)) + " Enter new names in METRICS.")
        self._append(step, kind, {name: _plain(name, value) for name, value in values.items()})

    def event(self, step: int, event: str, message: str = "") -> None:
        """Log an event: "start", "resume", "interrupt", "nan", "error", "remark" or "end"."""
        self._append(step, "event", {"event": event, "message": message})

    def flush(self) -> None:
        """Hand pending lines to the operating system, where they outlive this process."""
        with writing(str(self.path), kept="What was logged before is kept"):
            while self._pending:
                # A full disk takes a part. The rest stays pending, so that no line is written
                # twice if there is room later.
                del self._pending[: os.write(self._file, self._pending)]
        self._flushed_at = self._clock()

    def sync(self) -> None:
        """Flush, and wait until the disk has everything."""
        self.flush()
        self.sync_file()

    def sync_file(self) -> None:
        """Wait until the disk has what was flushed. Any thread may call this."""
        with writing(str(self.path)):
            os.fsync(self._file)

    def trim_after(self, step: int) -> int:
        """Delete the rows after `step`, which a resumed run writes again, and return their number.

        Rows that cannot be read are deleted too.
        """
        self.flush()
        with writing(str(self.path), kept="The old log is kept"):
            late = sum(not _is_until(line, step) for line in read_lines(self.path))
            if late:
                with atomic.staged(self.path) as hidden:
                    atomic.create_file(hidden, lambda file: self._copy(file, step), flush=False)
                new = os.open(self.path, os.O_RDWR | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC)
                os.close(self._file)
                self._file = new
        return late

    def _copy(self, file: int, step: int) -> None:
        """Write the rows until `step` to another file."""
        gathered = bytearray()
        for line in read_lines(self.path):
            if _is_until(line, step):
                gathered += line + b"\n"
            if len(gathered) > COPIED:
                atomic.write_all(file, bytes(gathered))
                gathered.clear()
        atomic.write_all(file, bytes(gathered))

    def close(self) -> None:
        """Flush and let go of the file; a second call does nothing."""
        if self._file >= 0:
            try:
                self.flush()
            finally:
                os.close(self._file)
                self._file = -1

    def __enter__(self) -> "MetricsLog":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _append(self, step: int, kind: str, values: dict[str, Any]) -> None:
        now = self._clock()
        row = {"step": int(step), "time": round(now, 3), "kind": kind, **values}
        text = json.dumps(row, ensure_ascii=False, allow_nan=False, separators=(", ", ": "))
        self._pending += text.encode("utf-8", "replace") + b"\n"
        if not 0 <= now - self._flushed_at < self._flush_s:
            self.flush()


def _is_until(line: bytes, step: int) -> bool:
    return (row := row_of(line)) is not None and row["step"] <= step


def _unknown(name: str) -> str:
    hint = did_you_mean(name, METRICS, '"{}"'.format)
    return f'metrics: "{name}" is not in the table of metrics.{hint}'


def _plain(name: str, value: Any) -> Any:
    """Return a number, or lists of numbers, for JSON: what is not finite becomes null."""
    if type(value) in (int, float) and METRICS[name].each == "seed":
        return value if math.isfinite(value) else None
    array = np.asarray(value)
    if METRICS[name].each == "component":
        fits, wanted = array.ndim == 2, "[seeds, components]"
    else:
        fits, wanted = array.ndim <= 1, "a number, or one number per seed"
    if not fits or array.dtype.kind not in "iuf":
        raise TypeError(
            f"metrics: {name} has shape {array.shape} and dtype {array.dtype}; log {wanted}."
        )
    plain = array.tolist()
    if array.ndim == 2:
        return [[number if math.isfinite(number) else None for number in row] for row in plain]
    if isinstance(plain, list):
        return [number if math.isfinite(number) else None for number in plain]
    return plain if math.isfinite(plain) else None


def _end_of_last_line(file: int) -> int:
    """Return how many bytes of a log are whole lines."""
    end = os.fstat(file).st_size
    for start in _blocks_from(end):
        block = os.pread(file, end - start, start)
        if (newline := block.rfind(b"\n")) >= 0:
            return start + newline + 1
        end = start
    return 0


def _blocks_from(end: int, size: int = 1 << 16) -> Iterator[int]:
    """Return where the blocks of a file start, from the last to the first."""
    return iter(range((max(end, 1) - 1) // size * size, -1, -size))
