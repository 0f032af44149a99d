"""Read the log of a run, `metrics.jsonl`, as rows or as columns, whoever wrote it and however long.

`Log` follows a log that grows, and holds its columns in bounded memory: in a very long log,
neighbouring rows are merged. A line that is torn, broken, too long or beyond what a number can be
is no row. `metrics` writes what is read here.
"""

import json
import math
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from loopless.files import atomic
from loopless.runs.glossary import METRICS

Columns = dict[str, np.ndarray]
BLOCK = 1 << 20  # bytes of a log that are read at once
LONGEST_LINE = 1 << 22  # bytes; the rows of many agents have a few hundred thousand
MOST_BYTES = 1 << 25  # of the columns of a log
MOST_EVENTS = 10_000
LONGEST_MESSAGE = 1_000  # letters of an event
LAST_STEP = 2**53  # up to here a float64 counts
LAST_TIME = 1e12  # seconds; thirty thousand years
LARGEST = 1e100  # what is larger cannot be drawn: sums and squares of it overflow


class Lines:
    """Cuts blocks of a log into lines; a line that is too long comes out empty."""

    def __init__(self) -> None:
        self._rest, self._is_too_long = b"", False

    def feed(self, block: bytes) -> list[bytes]:
        """Return the lines that `block` completes; the rest waits for the next block."""
        *lines, self._rest = (self._rest + block).split(b"\n")
        if lines and self._is_too_long:
            lines[0], self._is_too_long = b"", False
        if len(self._rest) > LONGEST_LINE:
            self._rest, self._is_too_long = b"", True
        return [line if len(line) <= LONGEST_LINE else b"" for line in lines]


def read_lines(path: Path) -> Iterator[bytes]:
    """Yield the whole lines of a log; what follows the last newline is being written."""
    lines = Lines()
    with os.fdopen(atomic.open_to_read(path, follow=False), "rb") as file:
        while block := file.read(BLOCK):
            yield from lines.feed(block)


def read(path: Path, problems: list[str] | None = None) -> list[dict[str, Any]]:
    """Return all rows. Torn and broken lines are skipped, and `problems` names the broken ones."""
    rows = []
    for number, line in enumerate(read_lines(path), 1):
        row = row_of(line)
        if row is not None:
            rows.append(row)
        elif problems is not None:
            problems.append(f"{path}, line {number} is not a row of a log; it is left out.")
    return rows


def row_of(line: bytes) -> dict[str, Any] | None:
    """Return the row in a line; None unless it is whole and has its three fixed keys."""
    try:
        row = _JSON.decode(line.decode())
        step, time = row["step"], row["time"]
        fits = type(step) is int and -LAST_STEP < step < LAST_STEP and isinstance(row["kind"], str)
        return row if fits and isinstance(time, int | float) and abs(time) < LAST_TIME else None
    except (ValueError, TypeError, KeyError, RecursionError):
        return None


def _refuse(token: str) -> None:
    raise ValueError(token)


_JSON = json.JSONDecoder(parse_constant=_refuse)  # json.loads would make one for every row


def columns(rows: Iterable[dict[str, Any]], kind: str = "train") -> Columns:
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
    as dictionaries. The columns show the log as it was at the last `refresh`. `broken` counts the
    lines that are no rows, and `first_broken` is the number of the first.
    """

    def __init__(self, path: Path):
        self._path = Path(path)
        self._forget()

    def _forget(self) -> None:
        self._identity, self._read, self._lines, self._number = None, 0, Lines(), 0
        self._tables = {kind: _Table(columns([], kind)) for kind in ("train", "eval")}
        self.events: list[dict[str, Any]] = []
        self.broken, self.first_broken = 0, 0

    @property
    def train(self) -> Columns:
        return self._tables["train"].columns

    @property
    def evaluations(self) -> Columns:
        return self._tables["eval"].columns

    def refresh(self) -> Iterator[list[dict[str, Any]]]:
        """Read what is new, and yield the rows block by block.

        A log that was trimmed is a new file, and is read from its beginning.
        """
        try:
            file = os.fdopen(atomic.open_to_read(self._path, follow=False), "rb")
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
                rows = list(self._rows(self._lines.feed(block)))
                self._take(rows)
                yield rows

    def _rows(self, lines: list[bytes]) -> Iterator[dict[str, Any]]:
        for line in lines:
            self._number += 1
            if (row := row_of(line)) is not None:
                yield row
            else:
                self.broken += 1
                self.first_broken = self.first_broken or self._number

    def _take(self, rows: list[dict[str, Any]]) -> None:
        for kind, table in self._tables.items():
            table.add(columns(rows, kind))
        self.events += [_event(row) for row in rows if row["kind"] == "event"]
        while len(self.events) > MOST_EVENTS:
            self.events = [*self.events[:1], *self.events[1:-1:2], *self.events[-1:]]


def _event(row: dict[str, Any]) -> dict[str, Any]:
    texts = {name: str(row.get(name, ""))[:LONGEST_MESSAGE] for name in ("event", "message")}
    return {"step": row["step"], "time": row["time"], "kind": "event", **texts}


# --- columns of several blocks -------------------------------------------------------------------


class _Table:
    """Columns to which blocks are added. If they grow too large, neighbouring rows are merged."""

    def __init__(self, empty: Columns):
        self.columns, self._halvings = empty, 0

    def add(self, block: Columns) -> None:
        if not len(block["step"]):
            return
        for _ in range(self._halvings):  # so that all rows stand for about as many lines
            block = _halve(block)
        joined = _join(self.columns, block)
        while sum(array.nbytes for array in joined.values()) > MOST_BYTES and _is_long(joined):
            joined = _halve(joined)
            self._halvings += 1
        self.columns = joined


def _join(old: Columns, new: Columns) -> Columns:
    """Return the rows of both; NaN where one of them lacks a column."""
    joined: Columns = {}
    room = 3 * MOST_BYTES  # what would be mostly gaps must not fill the memory
    for name in {**old, **new}:
        shape = _shape_of(name, old, new)
        size = 8 * math.prod((len(old["step"]) + len(new["step"]), *shape))
        if size <= room:
            joined[name] = _stack(name, shape, old, new)
            room -= size
    return joined


def _shape_of(name: str, *parts: Columns) -> tuple[int, ...]:
    """Return the shape of a row: with one number per seed, if any part has that."""
    return max((part[name].shape[1:] for part in parts if name in part), key=len)


def _stack(name: str, shape: tuple[int, ...], *parts: Columns) -> np.ndarray:
    """Return a column of all parts; those of other shapes become NaN."""
    padded = [
        part[name]
        if name in part and part[name].shape[1:] == shape
        else np.full((len(part["step"]), *shape), np.nan)
        for part in parts
    ]
    return np.concatenate(padded)


def _is_long(table: Columns) -> bool:
    return len(table["step"]) >= 4


def _halve(table: Columns) -> Columns:
    """Return half as many rows: means of two neighbours, but for the first row and the last."""
    if not _is_long(table):
        return table
    return {name: _merge(name, array) for name, array in table.items()}


def _merge(name: str, array: np.ndarray) -> np.ndarray:
    whole = 1 + (len(array) - 2) // 2 * 2
    left, right, rest = array[1:whole:2], array[2 : whole + 1 : 2], array[whole:]
    if name in ("step", "time"):
        pairs = right
    else:
        gaps = np.isnan(left), np.isnan(right)
        pairs = np.where(gaps[0], right, np.where(gaps[1], left, (left + right) / 2))
    return np.concatenate([array[:1], pairs, rest])


# --- one block -----------------------------------------------------------------------------------


def _column(values: list[Any]) -> np.ndarray:
    seeds = max((len(value) for value in values if isinstance(value, list)), default=0)
    if not seeds or _is_mostly_gaps(values, seeds):
        return np.array([_number(value) for value in values], np.float64)
    gap = [None] * seeds
    rows = [value if isinstance(value, list) and len(value) == seeds else gap for value in values]
    return np.array([[_number(value) for value in row] for row in rows], np.float64)


def _columns_of_components(values: list[Any]) -> np.ndarray:
    shapes = [_shape(value) for value in values]
    shape = next(filter(None, shapes), (0, 0))
    if _is_mostly_gaps(values, math.prod(shape)):
        return np.full((len(values), 0, 0), np.nan)
    gap = np.full(shape, None)
    rows = [value if its == shape else gap for value, its in zip(values, shapes, strict=True)]
    flat = [[_number(x) for row in value for x in row] for value in rows]
    return np.array(flat, np.float64).reshape(len(values), *shape)


def _is_mostly_gaps(values: list[Any], width: int) -> bool:
    """Return whether rows of `width` numbers would hold far more gaps than there are numbers."""
    numbers = sum(_count(value) for value in values)
    return len(values) * width > 8 * numbers + (1 << 16)


def _count(value: Any) -> int:
    if not isinstance(value, list):
        return 1
    return sum(len(part) if isinstance(part, list) else 1 for part in value)


def _shape(value: Any) -> tuple[int, int] | None:
    """Return [seeds, components] of lists of lists of equal length; None for anything else."""
    if not isinstance(value, list) or not all(isinstance(row, list) for row in value):
        return None
    widths = {len(row) for row in value}
    flat = not any(isinstance(number, list) for row in value for number in row)
    return (len(value), widths.pop()) if flat and len(widths) == 1 else None


def _number(value: Any) -> float:
    if isinstance(value, int | float) and -LARGEST < value < LARGEST:
        return float(value)
    return math.nan
