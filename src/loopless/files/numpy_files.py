"""Read .npy and .npz files that may come from anybody, without trusting what they say.

`np.load` believes the header: a file of a few bytes can ask for all memory, and a small archive can
inflate to gigabytes. Here an array is refused by what its header declares, before anything is
allocated, and then exactly that many bytes are read, whatever the archive would inflate to. There
is no limit on the ratio: an array of zeros is honest and shrinks a thousandfold.
"""

import math
import os
import zlib
from collections.abc import Container
from pathlib import Path
from typing import Any
from zipfile import ZIP_DEFLATED, ZIP_STORED, BadZipFile, ZipFile

import numpy as np

from loopless.files import atomic

READERS = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
PART = 1 << 22  # bytes that are inflated at once
MOST_MEMBERS = 1_000


def read_npz(
    path: Path, most_bytes: int, names: Container[str] | None = None
) -> dict[str, np.ndarray]:
    """Return the arrays of an .npz file, or those in `names`, together at most `most_bytes`.

    Raises ValueError or OSError, whose message says what is wrong. Never unpickles.
    """
    with _open(path) as file:
        try:
            with ZipFile(file) as archive:
                return _read_members(archive, most_bytes, names)
        except (BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError) as error:
            raise ValueError(f"it is not a whole .npz file ({_in_words(error)})") from None


def read_npy(path: Path, most_bytes: int) -> np.ndarray:
    """Return the array of an .npy file, of at most `most_bytes`; errors as in `read_npz`."""
    with _open(path) as file:
        return _read_array(file, "it", most_bytes)


def _open(path: Path) -> Any:
    return os.fdopen(atomic.open_to_read(path), "rb")


def _read_members(
    archive: ZipFile, most_bytes: int, names: Container[str] | None
) -> dict[str, np.ndarray]:
    members = archive.infolist()
    if len(members) > MOST_MEMBERS:
        raise ValueError(f"it has {len(members):,} members, more than {MOST_MEMBERS:,}")
    arrays: dict[str, np.ndarray] = {}
    for member in members:
        name = member.filename.removesuffix(".npy")
        if names is not None and name not in names:
            continue
        if member.flag_bits & 1:
            raise ValueError(f"{name} is encrypted")
        if member.compress_type not in (ZIP_STORED, ZIP_DEFLATED):
            raise ValueError(f"{name} is packed by method {member.compress_type}, not by deflate")
        with archive.open(member) as file:
            arrays[name] = _read_array(file, name, most_bytes)
        most_bytes -= arrays[name].nbytes
    return arrays


def _read_array(file: Any, name: str, most_bytes: int) -> np.ndarray:
    try:
        version = np.lib.format.read_magic(file)
        if version not in READERS:
            raise ValueError(f"its version is {version}")
        shape, is_fortran, dtype = READERS[version](file)
        size = math.prod(shape) * dtype.itemsize
        if dtype.hasobject or any(length < 0 for length in shape):
            raise ValueError("it holds Python objects, not numbers")
    except (ValueError, TypeError, SyntaxError, RecursionError, OverflowError) as error:
        raise ValueError(f"{name} is not an .npy file ({_in_words(error)})") from None
    if size > most_bytes:
        raise ValueError(
            f"{name} {list(shape)} {dtype} needs {size:,} bytes, and there is room for "
            f"{max(0, most_bytes):,}"
        )
    try:
        flat = np.empty(size, np.uint8)
    except MemoryError:
        raise ValueError(f"{name} {list(shape)} {dtype} does not fit into memory") from None
    data = flat.data
    while data.nbytes:
        part = file.read(min(PART, data.nbytes))
        if not part:
            raise ValueError(f"{name} ends {data.nbytes:,} bytes too early")
        data[: len(part)] = part
        data = data[len(part) :]
    return flat.view(dtype).reshape(shape, order="F" if is_fortran else "C")


def _in_words(error: Exception) -> str:
    return f"{error or type(error).__name__}".rstrip(".")[:200]
