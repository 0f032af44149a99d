"""Arrays that a trainer saves for its pictures: `snapshots/<step>.npz`, a few dozen over a run.

They hold what a log of numbers cannot, such as learned vectors. No run resumes from them, so they
are written without waiting for the disk; a reader finds a whole file or none. However many are
saved, at most `MOST` remain, evenly spread.
"""

from __future__ import annotations

import io
import re
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from loopless.files import atomic, plain
from loopless.files.numpy_files import read_npz
from loopless.runs.failures import writing

MOST = 64
FOLDER = "snapshots"
LARGEST = 1 << 28  # bytes of a snapshot
MOST_BYTES = 1 << 30  # of all of them in memory
MOST_CELLS = 1 << 22  # of a grid
_NAME = re.compile(r"[0-9]{1,18}")


def save(run: Path, arrays: Mapping[str, Any]) -> Path:
    """Save arrays, with their "step", into the folder of a run, and return the path."""
    step = int(arrays["step"])
    path = Path(run) / FOLDER / f"{step:012}.npz"
    data = io.BytesIO()
    np.savez(data, allow_pickle=False, **{name: np.asarray(x) for name, x in arrays.items()})
    with writing(str(path)):
        plain.make_folder(path.parent)
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
    """Return the snapshot files of a run, oldest first; none if their folder is a link."""
    folder = Path(run) / FOLDER
    if folder.is_symlink():
        return []
    return sorted(path for path in folder.glob("*.npz") if _NAME.fullmatch(path.stem))


def read(path: Path) -> dict[str, np.ndarray] | None:
    """Return the arrays of one file; None if it cannot be read."""
    with suppress(OSError, ValueError):
        return read_npz(path, LARGEST)
    return None


def drawable(run: Path) -> list[dict[str, np.ndarray]]:
    """Return the snapshots of eigenvectors whose shapes are those of the newest, oldest first."""
    whole = [arrays for arrays in history(run) if _fit_together(arrays)]
    return [arrays for arrays in whole if _shapes(arrays) == _shapes(whole[-1])]


def newest(run: Path) -> dict[str, np.ndarray] | None:
    """Return the newest snapshot, if it can be drawn."""
    files = paths(run)
    arrays = read(files[-1]) if files else None
    return arrays if arrays is not None and _fit_together(arrays) else None


def _shapes(arrays: Mapping[str, np.ndarray]) -> dict[str, tuple[int, ...]]:
    return {name: array.shape for name, array in arrays.items()}


def _fit_together(arrays: Mapping[str, np.ndarray]) -> bool:
    """Return whether the shapes are those that `eigenvectors` lists: anybody may write a file."""
    if not {"step", "learned"} <= arrays.keys() or arrays["learned"].ndim != 3:
        return False
    if any(x.dtype.kind not in "iufb" or (abs(x) > 1e30).any() for x in arrays.values()):
        return False
    seeds, states, count = arrays["learned"].shape
    basis = arrays["truth"].shape[-1] if "truth" in arrays else count
    shapes = {
        "step": (), "cells": (states, 2), "visits": (states,), "weights": (states,),
        "truth": (states, basis), "spaces": (basis,), "similarities": (seeds, count),
        "eigenvalues": (seeds, count), "duals": (seeds, count),
    }  # fmt: skip
    fits = all(arrays[name].shape == shape for name, shape in shapes.items() if name in arrays)
    values, step = arrays.get("kernel_eigenvalues", np.zeros(count)), float(arrays["step"].max())
    fits = fits and values.ndim == 1 and len(values) >= count and basis >= count
    if not (fits and seeds * states * count and step >= 0):
        return False
    return "walls" not in arrays or _are_on_grid(arrays)


def _are_on_grid(arrays: Mapping[str, np.ndarray]) -> bool:
    walls, cells = arrays["walls"], arrays.get("cells")
    if walls.ndim != 2 or walls.size > MOST_CELLS or cells is None or cells.dtype.kind not in "iu":
        return False
    return bool((cells >= 0).all() and (cells < walls.shape).all())


def history(run: Path) -> list[dict[str, np.ndarray]]:
    """Return the snapshots that can be read, oldest first; the newest, if all are too large."""
    snapshots: list[dict[str, np.ndarray]] = []
    room = MOST_BYTES
    for path in reversed(paths(run)):
        if (arrays := read(path)) is None:
            continue
        room -= sum(array.nbytes for array in arrays.values())
        if room < 0 and snapshots:
            break
        snapshots.append(arrays)
    return snapshots[::-1]
