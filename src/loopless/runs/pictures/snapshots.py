"""Arrays that a trainer saves for its pictures: `snapshots/<step>.npz`, a few dozen over a run.

They hold what a log of numbers cannot, such as learned vectors. No run resumes from them, so they
are written without waiting for the disk; a reader finds a whole file or none. However many are
saved, at most `MOST` remain, evenly spread.
"""

from __future__ import annotations

import io
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np

from loopless.files import atomic
from loopless.runs.failures import writing

MOST = 64
FOLDER = "snapshots"


def save(run: Path, arrays: Mapping[str, Any]) -> Path:
    """Save arrays, with their "step", into the folder of a run, and return the path."""
    step = int(arrays["step"])
    path = Path(run) / FOLDER / f"{step:012}.npz"
    data = io.BytesIO()
    np.savez(data, allow_pickle=False, **{name: np.asarray(x) for name, x in arrays.items()})
    with writing(str(path)):
        path.parent.mkdir(exist_ok=True)
        atomic.write_file(path, data.getvalue(), flush=False)
        _thin(paths(run))
    return path


def _thin(files: list[Path]) -> None:
    """Delete files until `MOST` remain: those that leave the smallest gaps, never the ends."""
    while len(files) > MOST:
        steps = np.array([int(path.stem) for path in files])
        least = int(np.argmin(steps[2:] - steps[:-2])) + 1
        files.pop(least).unlink(missing_ok=True)


def trim_after(run: Path, step: int) -> None:
    """Delete the snapshots after `step`, which a resumed run will make again."""
    with writing(f"into {Path(run) / FOLDER}"):
        for path in paths(run):
            if int(path.stem) > step:
                path.unlink(missing_ok=True)


def paths(run: Path) -> list[Path]:
    """Return the snapshot files of a run, oldest first."""
    return sorted(path for path in (Path(run) / FOLDER).glob("*.npz") if path.stem.isdigit())


def read(path: Path) -> dict[str, np.ndarray] | None:
    """Return the arrays of one file; None if it cannot be read."""
    unreadable = suppress(OSError, ValueError, BadZipFile, EOFError)
    with unreadable, np.load(io.BytesIO(path.read_bytes())) as file:
        return {name: file[name] for name in file.files}
    return None


def history(run: Path) -> list[dict[str, np.ndarray]]:
    """Return all snapshots that can be read, oldest first."""
    return [arrays for path in paths(run) if (arrays := read(path)) is not None]
