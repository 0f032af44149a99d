"""Arrays that a trainer leaves for its pictures: `snapshots/<step>.npz`, a few dozen over a run.

What a log of numbers cannot hold, such as learned vectors. Nothing resumes from them, so that they
are written without waiting for the disk; whoever reads finds a whole file or none. However many
are saved, no more than `MOST` are kept, evenly spread. Imports NumPy. Tests:
`tests/runs/test_snapshots.py`.
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
    """Write the arrays, "step" among them, into the folder of a run; where."""
    step = int(arrays["step"])
    path = Path(run) / FOLDER / f"{step:012}.npz"
    data = io.BytesIO()
    np.savez(data, allow_pickle=False, **{name: np.asarray(x) for name, x in arrays.items()})
    with writing(str(path)):
        path.parent.mkdir(exist_ok=True)
        atomic.write_file(path, data.getvalue(), flush=False)
        _thin(paths(run))
    return path


def _thin(found: list[Path]) -> None:
    """While there are too many, drop the one that leaves the smallest hole; never the ends."""
    while len(found) > MOST:
        steps = np.array([int(path.stem) for path in found])
        least = int(np.argmin(steps[2:] - steps[:-2])) + 1
        found.pop(least).unlink(missing_ok=True)


def trim_after(run: Path, step: int) -> None:
    """Drop those after `step`, which a resumed run will make again."""
    with writing(f"into {Path(run) / FOLDER}"):
        for path in paths(run):
            if int(path.stem) > step:
                path.unlink(missing_ok=True)


def paths(run: Path) -> list[Path]:
    """The files of a run, oldest first."""
    return sorted(path for path in (Path(run) / FOLDER).glob("*.npz") if path.stem.isdigit())


def read(path: Path) -> dict[str, np.ndarray] | None:
    """The arrays of one file; None if it is gone or no such file."""
    unreadable = suppress(OSError, ValueError, BadZipFile, EOFError)
    with unreadable, np.load(io.BytesIO(path.read_bytes())) as file:
        return {name: file[name] for name in file.files}
    return None


def history(run: Path) -> list[dict[str, np.ndarray]]:
    """All that can be read, oldest first."""
    return [found for path in paths(run) if (found := read(path)) is not None]
