"""Files that are there whole or not at all, even after a power cut.

Everything is staged under a hidden name beside its place, flushed to the disk, and published by a
rename; then the folder is flushed, which is what makes the new name last. Every change goes
through `os.mkdir, open, write, fsync, rename, replace, unlink, rmdir`: the boundaries at which the
tests make it fail. Whoever calls holds the run's lock, so staged names need no salt.
Imports the standard library only. Tests: `tests/runs/test_checkpoint_failures.py`.
"""

import errno
import os
import shutil
import stat
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

STAGED, REPLACED = ".staged", ".replaced"  # endings of hidden names: new ones, and old ones aside


def beside(path: Path, ending: str = STAGED) -> Path:
    """The hidden sibling of `path` with this ending."""
    return path.with_name(f".{path.name}{ending}")


def write(path: Path, fill: Callable[[int], Any]) -> Any:
    """A new file, filled by `fill(file descriptor)` and flushed; what `fill` returned."""
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o644)
    try:
        result = fill(file)
        os.fsync(file)
    finally:
        os.close(file)
    return result


def write_all(file: int, data: bytes | memoryview) -> None:
    """`os.write` until nothing is left: one call writes 2 GB at most, less on a filling disk."""
    rest = memoryview(data)
    while rest.nbytes:
        rest = rest[os.write(file, rest) :]


def replace(path: Path, data: bytes | memoryview) -> None:
    """Write a small file: whoever reads finds the old content or the new, never a mixture."""
    staged = beside(path)
    remove(staged)
    try:
        write(staged, lambda file: write_all(file, data))
        os.replace(staged, path)
    except BaseException:
        with suppress(OSError):
            os.unlink(staged)
        raise
    sync_folder(path.parent)


def publish_folder(staged: Path, path: Path) -> None:
    """Give a staged folder its name. One that stands there already steps aside first.

    Between the two renames neither is at `path`; `recover` puts the old one back.
    """
    sync_folder(staged)
    old = beside(path, REPLACED)
    if path.exists() or path.is_symlink():
        remove(old)
        os.rename(path, old)
    os.rename(staged, path)
    sync_folder(path.parent)
    remove(old)


def recover(folder: Path) -> None:
    """Undo what a process left half done in `folder` when it died."""
    with os.scandir(folder) as entries:
        names = sorted(entry.name for entry in entries if entry.name.startswith("."))
    for name in names:
        left = folder / name
        if name.endswith(REPLACED):
            home = folder / name[1 : -len(REPLACED)]
            if not home.exists():
                os.rename(left, home)
                sync_folder(folder)
        if name.endswith((STAGED, REPLACED)):
            remove(left)


def remove(path: Path) -> None:
    """Delete a folder, file or link, never what a link points to; nothing if it is not there."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        with suppress(FileNotFoundError):
            os.unlink(path)


def sync_folder(path: Path) -> None:
    """Have the disk hold the names in a folder."""
    folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def read_small(path: Path, largest: int, follow: bool = True) -> bytes:
    """A file of at most `largest` bytes that is a file: no pipe that blocks, no device."""
    with os.fdopen(open_to_read(path, follow), "rb") as file:
        data = file.read(largest + 1)
    if len(data) > largest:
        raise OSError(errno.EFBIG, f"it is larger than {largest:,} bytes")
    return data


def open_to_read(path: Path, follow: bool = True) -> int:
    """A descriptor of a plain file; with `follow` off, of no file behind a link."""
    flags = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | (0 if follow else os.O_NOFOLLOW)
    file = os.open(path, flags)
    if not stat.S_ISREG(os.fstat(file).st_mode):
        os.close(file)
        raise OSError(errno.EINVAL, "it is no plain file")
    return file
