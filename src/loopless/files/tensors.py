"""Write arrays to one safetensors file as a stream, with the checksum of each, and read them back.

The layout follows from names, types and shapes alone. So equal arrays give equal bytes, and a
reader who has them from the manifest knows the whole header beforehand: a file is compared with
what it must be, never trusted. Its size is compared before anything is allocated.
The safetensors library can read these files too; it does not write them, because a checkpoint must
not hold a second copy of a replay buffer in memory.
"""

import hashlib
import json
import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from loopless.files import atomic

# The format's names of types. Other types are stored as bytes, with one more axis.
_NAMES = {
    "float64": "F64", "float32": "F32", "float16": "F16", "bfloat16": "BF16",
    "int64": "I64", "int32": "I32", "int16": "I16", "int8": "I8",
    "uint64": "U64", "uint32": "U32", "uint16": "U16", "uint8": "U8", "bool": "BOOL",
}  # fmt: skip
_AS_BYTES = {"complex64", "complex128", "float8_e4m3fn", "float8_e5m2"}
DTYPES = _NAMES.keys() | _AS_BYTES
_FROM_ML_DTYPES = {"bfloat16", "float8_e4m3fn", "float8_e5m2"}


class Broken(Exception):
    """A file is not what its manifest says; the message says why."""


class Entry(NamedTuple):
    """One array as the manifest lists it."""

    dtype: str
    shape: tuple[int, ...]
    sha256: str = ""

    @property
    def bytes(self) -> int:
        return math.prod(self.shape) * _dtype(self.dtype).itemsize


def entry_of(array: Any) -> Entry:
    """Return the type and shape of an array, without its checksum."""
    return Entry(array.dtype.name, tuple(array.shape))


def storable(arrays: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """Return `arrays` in C order; TypeError names all that a file cannot hold."""
    plain = {name: np.asarray(array) for name, array in arrays.items()}
    refused = [f"{n} ({a.dtype})" for n, a in plain.items() if a.dtype.name not in DTYPES]
    refused += [f"{name!r} as a name" for name in arrays if name in ("", "__metadata__")]
    if refused:
        raise TypeError(f"checkpoint: cannot store {', '.join(refused)}; convert to plain numbers.")
    return {n: a.astype(a.dtype.newbyteorder("<"), "C", copy=False) for n, a in plain.items()}


def write(
    path: Path,
    arrays: Mapping[str, np.ndarray],
    *,
    metadata: Mapping[str, str] | None = None,
    checksums: Mapping[str, str] | None = None,
    flush: bool = True,
) -> dict[str, Entry]:
    """Write `storable` arrays to a new file and flush it; return entries with their checksums.

    `metadata` is text for the header; `checksums` are the arrays', if they are known. Without
    `flush` nothing waits for the disk.
    """
    entries = {name: entry_of(array) for name, array in arrays.items()}

    def fill(file: int) -> dict[str, Entry]:
        atomic.write_all(file, _header(entries, metadata))
        sums = {}
        for name in _order(entries):
            data = _bytes(arrays[name])
            atomic.write_all(file, data)
            sha256 = checksums[name] if checksums else hashlib.sha256(data).hexdigest()
            sums[name] = entries[name]._replace(sha256=sha256)
        return {name: sums[name] for name in sorted(sums)}

    return atomic.create_file(path, fill, flush=flush)


def read(path: Path, entries: Mapping[str, Entry]) -> dict[str, np.ndarray]:
    """Return the arrays of a file that must hold exactly these `entries`; Broken says why not."""
    header = _header(entries)
    with os.fdopen(atomic.open_to_read(path, follow=False), "rb", buffering=0) as file:
        size, expected = os.fstat(file.fileno()).st_size, len(header) + _total(entries)
        if size != expected:
            raise Broken(f"{path.name} has {size:,} bytes, expected {expected:,}")
        if _fill(file, memoryview(stored := bytearray(len(header)))) or stored != header:
            raise Broken(f"the header of {path.name} is not what the manifest says")
        arrays = {}
        for name in _order(entries):
            entry = entries[name]
            try:
                arrays[name] = np.empty(entry.shape, _dtype(entry.dtype))
            except (MemoryError, ValueError):
                raise Broken(f"{name} {list(entry.shape)} does not fit into memory") from None
            data = _bytes(arrays[name])
            if _fill(file, data) or hashlib.sha256(data).hexdigest() != entry.sha256:
                raise Broken(f"{name} differs from its checksum")
    return {name: arrays[name] for name in entries}


def _fill(file, data: memoryview) -> int:
    """Read until `data` is full, and return how many bytes are missing."""
    while data.nbytes and (count := file.readinto(data)):
        data = data[count:]
    return data.nbytes


def _total(entries: Mapping[str, Entry]) -> int:
    return sum(entry.bytes for entry in entries.values())


def _order(entries: Mapping[str, Entry]) -> list[str]:
    """Return the names, large types first, so that all stay aligned in a file mapped to memory."""
    return sorted(entries, key=lambda name: (-_dtype(entries[name].dtype).itemsize, name))


def _header(entries: Mapping[str, Entry], metadata: Mapping[str, str] | None = None) -> bytes:
    """Return the header: eight bytes of length, then names, types, shapes and places as JSON."""
    places: dict[str, Any] = {"__metadata__": dict(metadata)} if metadata else {}
    start = 0
    for name in _order(entries):
        entry = entries[name]
        whole = entry.dtype in _NAMES
        shape = [*entry.shape] if whole else [*entry.shape, _dtype(entry.dtype).itemsize]
        places[name] = {
            "dtype": _NAMES.get(entry.dtype, "U8"),
            "shape": shape,
            "data_offsets": [start, start + entry.bytes],
        }
        start += entry.bytes
    text = json.dumps(places, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text


def _bytes(array: np.ndarray) -> memoryview:
    return array.reshape(-1).view(np.uint8).data


def _dtype(name: str) -> np.dtype:
    if name in _FROM_ML_DTYPES:
        import ml_dtypes  # JAX brings it

        return np.dtype(getattr(ml_dtypes, name))
    return np.dtype(name)
