"""Files of token ids: flat, little-endian uint16 or uint32, with nothing else in them.

Other tools write the same format, so their files are read as they are. Beside each file of ours
stands a JSON file that describes it. Files are mapped into memory rather than read.
"""

import json
import os
from pathlib import Path
from typing import Any

import numpy as np

from loopless.files import atomic

DTYPES = {"uint16": np.dtype("<u2"), "uint32": np.dtype("<u4")}
LARGEST_DESCRIPTION = 1 << 16  # bytes
_CHECKED_AT_ONCE = 1 << 24  # ids; comparing a larger part at once would need much memory


def dtype_for(vocabulary: int) -> np.dtype:
    """Return the smaller of the two types that holds ids below `vocabulary`."""
    return DTYPES["uint16" if vocabulary <= 1 << 16 else "uint32"]


def write_tokens(path, ids: np.ndarray, vocabulary: int) -> None:
    """Write token ids, and beside them the JSON file that describes them."""
    path, dtype = Path(path), dtype_for(vocabulary)
    _check_range(path, ids, vocabulary)
    atomic.write_file(path, np.ascontiguousarray(ids, dtype).view(np.uint8).data)
    about = {"tokens": len(ids), "dtype": dtype.name, "vocabulary": vocabulary}
    atomic.write_file(description_file(path), json.dumps(about, indent=1).encode())


def read_tokens(path, *, vocabulary: int | None = None, dtype: str | None = None) -> np.ndarray:
    """Map the token ids of a file into memory, read-only.

    Their type is `dtype`, or what the JSON file beside it says, or else the smallest that holds
    `vocabulary` ids. Every id is checked once; one beyond the vocabulary is refused.
    """
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"tokens: there is no file {path}.")
    description = description_file(path)
    about = read_description(description) if description.exists() else {}
    vocabulary = vocabulary or about.get("vocabulary")
    dtype = dtype or about.get("dtype")
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
        problems.append(f"has {size:,} bytes, which is not a multiple of the {width} of a {dtype}")
    if about.get("dtype", dtype) != dtype:
        problems.append(f"holds {about['dtype']} by the JSON file beside it, not {dtype}")
    elif "tokens" in about and about["tokens"] * width != size:
        needed = about["tokens"] * width
        problems.append(f"has {size:,} bytes, but its {about['tokens']:,} tokens need {needed:,}")
    if problems:
        raise ValueError(f"tokens: {path} {'; it '.join(problems)}. Use a whole file of {dtype}.")
    with os.fdopen(atomic.open_to_read(path), "rb") as file:
        ids = np.memmap(file, DTYPES[dtype], "r").view(np.ndarray)
    if vocabulary is not None:
        _check_range(path, ids, vocabulary)
    return ids


def description_file(path: Path) -> Path:
    """Return the path of the JSON file that describes a token file of ours."""
    return path.with_name(path.name + ".json")


def read_description(path: Path) -> dict[str, Any]:
    """Return what a JSON file says about the token file beside it; ValueError if it is broken."""
    try:
        about = json.loads(atomic.read_small(path, LARGEST_DESCRIPTION))
        size = about.get("vocabulary", 1), about.get("tokens", 0)
        if not all(type(count) is int and 0 <= count < 2**48 for count in size):
            raise ValueError(f"vocabulary and tokens must be counts; received {size}")
        if about.get("dtype", "uint16") not in DTYPES:
            raise ValueError(f"dtype must be {' or '.join(DTYPES)}")
    except (ValueError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError(f"tokens: {path} does not describe tokens ({error}).") from None
    return about


def _check_range(path: Path, ids: np.ndarray, vocabulary: int) -> None:
    for start in range(0, len(ids), _CHECKED_AT_ONCE):
        part = ids[start : start + _CHECKED_AT_ONCE]
        if part.max() >= vocabulary or part.min() < 0:
            first = start + int(np.flatnonzero((part >= vocabulary) | (part < 0))[0])
            raise ValueError(
                f"tokens: {path}: token {first:,} is {ids[first]}, but the vocabulary has ids from "
                f"0 to {vocabulary - 1}. Give the vocabulary that the file was made with, or its "
                f"dtype."
            )
