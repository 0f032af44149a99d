"""The log of a run: `metrics.jsonl`, one JSON object a line, which all plots are drawn from.

Lines are gathered and handed to the operating system about once a second, so that logging costs
the training thread next to nothing; `sync` waits for the disk when a checkpoint is saved. After a
crash the last line may be torn: it is cut when the log is opened again, and readers skip it. `Log`
follows a log that grows. The table of metrics is in `glossary`.
"""

import json
import math
import os
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, Literal

import numpy as np

from loopless.files import atomic
from loopless.refusals import did_you_mean
from loopless.runs.failures import writing
from loopless.runs.glossary import METRICS, Metric

__all__ = ["METRICS", "Metric", "MetricsLog", "columns", "read"]

Kind = Literal["train", "eval"]
Columns = dict[str, np.ndarray]
BLOCK = 1 << 22  # bytes of a growing log that are read at once


class MetricsLog:
    """Appends to `metrics.jsonl`. One process at a time: whoever holds the run's lock."""

    def __init__(self, path: Path, flush_s: float = 1.0, clock: Callable[[], float] = time.time):
        self.path, self._flush_s, self._clock = Path(path), flush_s, clock
        self._pending = bytearray()
        self._flushed_at = clock()
        with writing(str(path)):
            self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
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
        lines = self.path.read_bytes().split(b"\n")[:-1]
        rest = [line for line in lines if (row := _row(line)) is not None and row["step"] <= step]
        if len(rest) < len(lines):
            with writing(str(self.path), kept="The old log is kept"):
                atomic.write_file(self.path, b"".join(line + b"\n" for line in rest))
                new = os.open(self.path, os.O_RDWR | os.O_APPEND)
            os.close(self._file)
            self._file = new
        return len(lines) - len(rest)

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


def read(path: Path, problems: list[str] | None = None) -> list[dict[str, Any]]:
    """Return all rows. Torn and broken lines are skipped, and `problems` names the broken ones."""
    lines = Path(path).read_bytes().split(b"\n")
    rows = []
    for number, line in enumerate(lines[:-1], 1):  # what follows the last newline is being written
        row = _row(line)
        if row is not None:
            rows.append(row)
        elif problems is not None:
            problems.append(f"{path}, line {number} is not a row of a log; it is left out.")
    return rows


def columns(rows: Iterable[dict[str, Any]], kind: str = "train") -> dict[str, np.ndarray]:
    """Return rows of one kind as arrays by name, with "step" and "time"; NaN marks gaps.

    A metric with one number per seed has shape [rows, seeds], one by component [rows, seeds,
    components], any other [rows].
    """
    chosen = [row for row in rows if row["kind"] == kind]
    names = dict.fromkeys(name for row in chosen for name in row if name in METRICS)
    readers = {"seed": _column, "component": _columns_of_components}
    arrays = {
        name: readers[METRICS[name].each]([row.get(name) for row in chosen]) for name in names
    }
    steps = np.array([row["step"] for row in chosen], np.int64)
    times = np.array([row["time"] for row in chosen], np.float64)
    return {"step": steps, "time": times} | arrays


class Log:
    """Reads a log while it grows: each line once, kept as columns.

    A picture every few seconds must not read a long run from its beginning each time, nor hold it
    as dictionaries. The columns show the log as it was at the last `refresh`.
    """

    def __init__(self, path: Path):
        self._path = Path(path)
        self._forget()

    def _forget(self) -> None:
        self._identity, self._read, self._rest = None, 0, b""
        self.train: Columns = columns([], "train")
        self.evaluations: Columns = columns([], "eval")
        self.events: list[dict[str, Any]] = []

    def refresh(self) -> Iterator[list[dict[str, Any]]]:
        """Read what is new, and yield the rows block by block.

        A log that was trimmed is a new file, and is read from its beginning.
        """
        try:
            file = open(self._path, "rb")  # noqa: SIM115
        except FileNotFoundError:
            return
        with file:
            status = os.fstat(file.fileno())
            identity = (status.st_dev, status.st_ino)
            if identity != self._identity or status.st_size < self._read:
                self._forget()
                self._identity = identity
            file.seek(self._read)
            while block := file.read(BLOCK):
                self._read += len(block)
                # What follows the last newline is being written; it is read next time.
                *lines, self._rest = (self._rest + block).split(b"\n")
                rows = [row for row in map(_row, lines) if row is not None]
                self._take(rows)
                yield rows

    def _take(self, rows: list[dict[str, Any]]) -> None:
        self.train = _join(self.train, columns(rows, "train"))
        self.evaluations = _join(self.evaluations, columns(rows, "eval"))
        self.events += [row for row in rows if row["kind"] == "event"]


def _join(old: Columns, new: Columns) -> Columns:
    """Return the rows of both; NaN where one of them lacks a column."""
    if not len(new["step"]):
        return old
    return {name: _stack(name, old, new) for name in {**old, **new}}


def _stack(name: str, *parts: Columns) -> np.ndarray:
    arrays = [part[name] for part in parts if name in part]
    # If any part has one number per seed, so has the column; parts of other shapes become NaN.
    shape = max((array.shape[1:] for array in arrays), key=len)
    padded = [
        part[name]
        if name in part and part[name].shape[1:] == shape
        else np.full((len(part["step"]), *shape), np.nan)
        for part in parts
    ]
    return np.concatenate(padded)


def _column(values: list[Any]) -> np.ndarray:
    seeds = max((len(value) for value in values if isinstance(value, list)), default=0)
    if not seeds:
        return np.array([_number(value) for value in values], np.float64)
    gap = [None] * seeds
    rows = [value if isinstance(value, list) and len(value) == seeds else gap for value in values]
    return np.array([[_number(value) for value in row] for row in rows], np.float64)


def _columns_of_components(values: list[Any]) -> np.ndarray:
    shapes = [_shape(value) for value in values]
    shape = next(filter(None, shapes), (0, 0))
    gap = np.full(shape, None)
    rows = [value if its == shape else gap for value, its in zip(values, shapes, strict=True)]
    flat = [[_number(x) for row in value for x in row] for value in rows]
    return np.array(flat, np.float64).reshape(len(values), *shape)


def _shape(value: Any) -> tuple[int, int] | None:
    """Return [seeds, components] of lists of lists of equal length; None for anything else."""
    if not isinstance(value, list) or not all(isinstance(row, list) for row in value):
        return None
    widths = {len(row) for row in value}
    flat = not any(isinstance(number, list) for row in value for number in row)
    return (len(value), widths.pop()) if flat and len(widths) == 1 else None


def _number(value: Any) -> float:
    try:
        return float(value) if isinstance(value, int | float) else math.nan
    except OverflowError:
        return math.nan


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


def _row(line: bytes) -> dict[str, Any] | None:
    """Return the row in a line; None unless it is whole and has its three fixed keys."""
    try:
        row = json.loads(line, parse_constant=_refuse)
        fixed = type(row["step"]) is int and isinstance(row["kind"], str)
        return row if fixed and isinstance(row["time"], int | float) else None
    except (ValueError, TypeError, KeyError, RecursionError):
        return None


def _refuse(token: str) -> None:
    raise ValueError(token)


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
