"""Checksums of the files in a folder, so that a file which has changed is noticed.

`manifest.json` in the folder lists the SHA-256 of each file by its name. It is written after the
files, and read before they are used. Folders of older versions have none.
"""

import hashlib
import json
import os
import re
from collections.abc import Iterable
from pathlib import Path

from loopless.files import atomic

NAME = "manifest.json"
LARGEST = 1 << 20  # bytes of a manifest
PART = 1 << 22  # bytes that are read at once


def write(folder: Path, names: Iterable[str]) -> None:
    """Enter the files `names` as they are now; what was entered before of other files stays."""
    try:
        before = read(folder) or {}
    except ValueError:
        before = {}
    sums = before | {name: digest(folder / name) for name in names}
    text = json.dumps({"format": 1, "sha256": sums}, indent=1, sort_keys=True)
    atomic.write_file(folder / NAME, text.encode() + b"\n")


def read(folder: Path) -> dict[str, str] | None:
    """Return the checksums by name; None if there is no manifest; ValueError if it is broken."""
    try:
        content = json.loads(atomic.read_small(folder / NAME, LARGEST, follow=False))
        sums = content["sha256"]
        if not all(re.fullmatch("[0-9a-f]{64}", value) for value in sums.values()):
            raise ValueError("a checksum is none")
    except FileNotFoundError:
        return None
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError(f"{folder / NAME} is not a list of checksums ({error})") from None
    return sums


def is_unchanged(folder: Path, name: str, sums: dict[str, str] | None) -> bool:
    """Return whether a file is what its checksum says; without a checksum, that is not known."""
    return sums is None or sums.get(name) == digest(folder / name)


def changed(folder: Path, names: Iterable[str], sums: dict[str, str] | None) -> list[str]:
    """Return which files are not what their checksums say; none if there are no checksums."""
    return [name for name in names if not is_unchanged(folder, name, sums)]


def digest(path: Path) -> str:
    """Return the SHA-256 of a file."""
    total = hashlib.sha256()
    with os.fdopen(atomic.open_to_read(path, follow=False), "rb") as file:
        while part := file.read(PART):
            total.update(part)
    return total.hexdigest()
