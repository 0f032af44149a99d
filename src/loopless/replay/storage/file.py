"""How a buffer outlives its process: its state as a dict, and as one safetensors file.

A state is a flat dict without pickles: sizes and counters are ints, small arrays are NumPy's, and
the data of field "a/b" stand under "data/a/b". A saved state is read back as a whole before
anything changes, so that a bad one changes nothing. It is one file because one file can be
replaced at once: whoever reads finds the old buffer or the new one. `memmap` flushes to the same
format.
"""

import hashlib
import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

import numpy as np

from loopless.files import atomic, tensors
from loopless.refusals import check_count, check_names, refuse
from loopless.replay.casts import convert_all
from loopless.replay.fields import Field
from loopless.replay.locks import locked

VERSION = 1
MANIFEST, CHECKSUM = "loopless", "loopless_sha256"  # keys of the file's metadata
UNCHANGED = "The buffer is unchanged."


class Persistent:
    """Saves, loads and flushes a buffer; the ring buffers and the episodic one inherit it.

    A child has `_storage`, `state()`, `restore()`, and these methods: `_settings()` returns the
    arguments of its constructor without the seed; `_unmapped()` the part of its state that is not
    in the mapped files; `_used()` how many rows of those files may hold data;
    `_reopen(where, state)` takes over what `_unmapped()` returned; `_forget()` empties the buffer.
    """

    _storage: Any
    _lock: Any
    state: Any
    restore: Any
    _settings: Any
    _unmapped: Any
    _used: Any
    _reopen: Any
    _forget: Any

    def __init__(self, *_: Any, **__: Any) -> None:
        raise NotImplementedError

    def save(self, path) -> None:
        """Write the buffer to one file, whole or not at all."""
        write(path, type(self).__name__, self._settings(), self.state())

    @classmethod
    def load(cls, path) -> Self:
        """Return the buffer that `save` wrote, generator included."""
        settings, state = read(path, cls.__name__)
        buffer = cls(**settings)
        buffer.restore(state)
        return buffer

    @locked
    def flush(self) -> None:
        """Make all that a buffer with storage="memmap" holds now permanent, in its files.

        After a crash `open` finds what the last flush left, all of it and nothing else.
        """
        self._storage.flush(type(self).__name__, self._settings(), self._unmapped(), self._used())

    @classmethod
    def open(cls, path) -> Self:
        """Return the buffer in the folder `path` as it was last flushed, generator included."""
        from loopless.replay.storage.memmap import MemMap

        where = f"{cls.__name__}.open"
        storage = MemMap(where, path, new=False)
        try:
            settings, state = storage.read(cls.__name__)
            buffer = cls(**settings, storage=storage)
            buffer._reopen(where, state)
            storage.roll_back(buffer._used())
        except BaseException:
            storage.close()
            raise
        return buffer

    @locked
    def close(self) -> None:
        """Flush a buffer with storage="memmap" and let others open it; it is not used again."""
        if self._storage.in_files and not self._storage.closed:
            self.flush()
            self._storage.close()
            self._forget()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __getstate__(self) -> Any:
        # Copied one by one, the views of the fields would no longer be views of the packed rows.
        # A copy is in memory, wherever its original is.
        return self._settings(), self.state()

    def __setstate__(self, copied: Any) -> None:
        settings, state = copied
        type(self).__init__(self, **settings)
        self.restore(state)


def write(path, kind: str, settings: Mapping[str, Any], state: Mapping[str, Any]) -> None:
    """Write a buffer's `settings` and its `state()`, of ints and arrays, to one file."""
    target = Path(path)
    if not target.parent.is_dir():
        raise FileNotFoundError(f"{kind}.save: there is no folder {target.parent}. Create it.")
    arrays = {
        name: np.ascontiguousarray(value)
        for name, value in state.items()
        if isinstance(value, np.ndarray)
    }
    # Bytes, because safetensors does not know all of NumPy's dtypes
    flat = {name: array.reshape(-1).view(np.uint8) for name, array in arrays.items()}
    checksums = {name: _checksum(array) for name, array in flat.items()}
    manifest = json.dumps(
        {
            "version": VERSION,
            "kind": kind,
            "settings": settings,
            "numbers": {name: value for name, value in state.items() if name not in arrays},
            "arrays": {name: [array.shape, array.dtype.name] for name, array in arrays.items()},
            "sha256": checksums,
        }
    )
    metadata = {MANIFEST: manifest, CHECKSUM: hashlib.sha256(manifest.encode()).hexdigest()}
    with atomic.staged(target) as hidden:
        tensors.write(hidden, flat, metadata=metadata, checksums=checksums, flush=False)


def read(path, kind: str, where: str = "") -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the settings and the state of a buffer of this `kind`; ValueError if damaged."""
    from safetensors import SafetensorError, safe_open

    where = where or f"{kind}.load"
    if not Path(path).is_file():
        raise FileNotFoundError(f"{where}: there is no file {path}.")
    try:
        with safe_open(path, "numpy") as file:
            header = file.metadata() or {}
            if hashlib.sha256(header[MANIFEST].encode()).hexdigest() != header[CHECKSUM]:
                raise ValueError("its manifest differs from its checksum")
            manifest = json.loads(header[MANIFEST])
            arrays = {
                name: file.get_tensor(name).view(dtype).reshape(shape)
                for name, (shape, dtype) in manifest["arrays"].items()
            }
        saved_kind, version = manifest["kind"], manifest["version"]
        settings, numbers, sums = manifest["settings"], manifest["numbers"], manifest["sha256"]
        broken = [name for name, array in arrays.items() if _checksum(array) != sums[name]]
    except (
        SafetensorError, KeyError, TypeError, ValueError, AttributeError, RecursionError
    ) as error:  # fmt: skip
        raise ValueError(
            f"{where}: {path} is not a complete buffer file ({error!r}). Use another copy."
        ) from error
    if broken:
        raise ValueError(
            f"{where}: {path} is damaged: {', '.join(broken)} differ from their checksums. Use "
            f"another copy."
        )
    if version != VERSION or saved_kind != kind:
        raise ValueError(
            f"{where}: {path} holds a {saved_kind} of version {version}, expected a {kind} of "
            f"version {VERSION}. Load it with its own class."
        )
    return settings, numbers | arrays


def read_numbers(
    where: str,
    state: Mapping[str, Any],
    current: Mapping[str, Any],
    fields: Iterable[str],
    *,
    same: Collection[str] = (),
    most: Mapping[str, int] | None = None,
) -> dict[str, Any]:
    """Return copies of what `state` holds beside the data of `fields`, or raise one error.

    `current` is what the buffer holds there now. An int must be at least 0, and equal to the
    buffer's if it is one of the `same`. An array must have the shape and dtype of the buffer's,
    and its numbers must be from 0 to `most[name]`, if `most` has the name.
    """
    problems = check_names(state, [*(f"data/{name}" for name in fields), *current])
    numbers: dict[str, Any] = {}
    for name, mine in current.items():
        if name not in state:
            continue
        value = state[name]
        if isinstance(mine, np.ndarray):
            numbers[name] = array = np.array(value)
            if array.shape != mine.shape or array.dtype != mine.dtype:
                problems.append(f"{name} must be an array {mine.shape} {mine.dtype}")
            elif most and name in most and not ((array >= 0) & (array <= most[name])).all():
                problems.append(f"{name} must be from 0 to {most[name]}")
        elif not_a_count := check_count(name, value, 0):
            problems += not_a_count
        elif value >= 2**63:  # compiled code counts in int64
            problems.append(f"{name} must be below 2⁶³; received {value}")
        elif name in same and value != mine:
            problems.append(f"the state has {value} {name}, the buffer {mine}")
        else:
            numbers[name] = int(value)
    refuse(where, problems, note=UNCHANGED)
    return numbers


def read_fields(
    where: str,
    state: Mapping[str, Any],
    fields: Mapping[str, Field],
    leading: tuple[int, ...],
    library,
) -> dict[str, Any]:
    """Return the data of all `fields` in `state`, [*leading, ...]; dtypes must be equal."""
    exact = {name: replace(field, casting="exact") for name, field in fields.items()}
    values = {name: state[f"data/{name}"] for name, _ in fields.items()}
    return convert_all(where, values, exact, leading, library, note=UNCHANGED)


def _checksum(array: np.ndarray) -> str:
    return hashlib.sha256(array.reshape(-1).view(np.uint8).data).hexdigest()
