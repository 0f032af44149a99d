"""Files of token ids: flat, little-endian uint16 or uint32, with nothing else in them.

That is what other tools write too, so their files are read as they are. Ours have a JSON file
beside them that says what they hold. Files are mapped into memory, not read. Imports NumPy.
Tests: `tests/text/test_token_files.py`.
"""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from loopless.files import atomic

DTYPES = {"uint16": np.dtype("<u2"), "uint32": np.dtype("<u4")}
_AT_ONCE = 1 << 24  # ids looked at in one go


def dtype_for(vocabulary: int) -> np.dtype:
    """The smallest of the two types that holds ids below `vocabulary`."""
    return DTYPES["uint16" if vocabulary <= 1 << 16 else "uint32"]


def write_tokens(path, pieces: Iterable[np.ndarray], vocabulary: int, **about: Any) -> int:
    """Write ids one after the other, and `about` beside them; how many there are."""
    path, dtype, count = Path(path), dtype_for(vocabulary), 0
    with atomic.staged(path) as hidden, open(hidden, "wb") as file:
        for ids in pieces:
            _check_range(path, ids, vocabulary)
            file.write(np.ascontiguousarray(ids, dtype).data)
            count += len(ids)
    beside = {"tokens": count, "dtype": dtype.name, "vocabulary": vocabulary, **about}
    atomic.write_file(_beside(path), json.dumps(beside, indent=1).encode())
    return count


def read_tokens(path, *, vocabulary: int | None = None, dtype: str | None = None) -> np.ndarray:
    """The ids in a file, mapped into memory and not to be written to.

    Their type is what `dtype` or the JSON file beside says, or else the smallest that holds
    `vocabulary` ids. All ids are looked at once: one beyond the vocabulary is refused.
    """
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"tokens: there is no file {path}.")
    said = json.loads(_beside(path).read_bytes()) if _beside(path).is_file() else {}
    vocabulary = vocabulary or said.get("vocabulary")
    dtype = dtype or said.get("dtype")
    if dtype is None and vocabulary is not None:
        dtype = dtype_for(vocabulary).name
    if dtype not in DTYPES:
        raise ValueError(
            f"tokens: {path} does not say how large its ids are; received dtype={dtype!r}. Pass "
            f"dtype={' or '.join(DTYPES)}, or the size of its vocabulary."
        )
    size, width = path.stat().st_size, DTYPES[dtype].itemsize
    problems = []
    if size == 0:
        problems.append("is empty")
    if size % width:
        problems.append(f"has {size:,} bytes, which is no multiple of the {width} of a {dtype}")
    if said.get("dtype", dtype) != dtype:
        problems.append(f"holds {said['dtype']} by the JSON file beside it, not {dtype}")
    elif "tokens" in said and said["tokens"] * width != size:
        problems.append(f"has {size:,} bytes, and {said['tokens']:,} tokens need another number")
    if problems:
        raise ValueError(f"tokens: {path} {'; it '.join(problems)}. Use a whole file of {dtype}.")
    ids = np.memmap(path, DTYPES[dtype], "r").view(np.ndarray)
    if vocabulary is not None:
        _check_range(path, ids, vocabulary)
    return ids


def _check_range(path: Path, ids: np.ndarray, vocabulary: int) -> None:
    for start in range(0, len(ids), _AT_ONCE):
        part = ids[start : start + _AT_ONCE]
        if part.max() >= vocabulary or part.min() < 0:
            at = start + int(np.flatnonzero((part >= vocabulary) | (part < 0))[0])
            raise ValueError(
                f"tokens: {path}: token {at:,} is {ids[at]}, and the vocabulary has ids from 0 to "
                f"{vocabulary - 1}. Give the vocabulary that the file was made with, or its dtype."
            )


def _beside(path: Path) -> Path:
    return path.with_name(path.name + ".json")
