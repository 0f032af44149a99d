"""Write files and folders whole or not at all, even when the power fails.

New content is staged under a hidden name beside its place, flushed to the disk, and published by
a rename; then the folder is flushed, which makes the new name last. Whoever reads finds the old
content or the new, never a mixture.

    atomic.write_file(path, data)                    # a small file
    with atomic.staged(path) as hidden: ...          # whatever can write to a path
    with atomic.staged_folder(path) as hidden: ...   # a folder of files

`recover` tidies a folder up after a process that died while it wrote. Every change goes through
`os.mkdir, open, write, fsync, rename, replace, unlink, rmdir`: the boundaries at which
`tests/runs/test_checkpoint_failures.py` makes it fail.
"""

import errno
import os
import shutil
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

STAGED, REPLACED = ".staged", ".replaced"  # endings of hidden names: new content, and old content


def staging_path(path: Path) -> Path:
    """Return the hidden name beside `path` under which this process stages its new content."""
    return path.with_name(f".{path.name}.{os.getpid()}{STAGED}")


def write_file(path: Path, data: bytes | memoryview, *, flush: bool = True) -> None:
    """Replace the content of a file. Without `flush` nothing waits for the disk."""
    with staged(path, flush=flush) as hidden:
        create_file(hidden, lambda file: write_all(file, data), flush=False)


@contextmanager
def staged(path: Path, *, flush: bool = True) -> Iterator[Path]:
    """Yield a hidden path; the file written there takes the place of `path` when the block ends.

    If the block raises, `path` stays as it was. Without `flush` nothing waits for the disk.
    """
    hidden = staging_path(path)
    remove(hidden)
    try:
        yield hidden
        if flush:
            synchronize(hidden)
        os.replace(hidden, path)
    except BaseException:
        with suppress(OSError):
            os.unlink(hidden)
        raise
    if flush:
        synchronize(path.parent)


@contextmanager
def staged_folder(path: Path) -> Iterator[Path]:
    """Yield an empty hidden folder that takes the place of `path` when the block ends.

    Fill it by `create_file`. A folder that stands at `path` steps aside first; between the two
    renames neither is there, and `recover` puts the old one back. If the block raises, the hidden
    folder is left to `recover`.
    """
    hidden, old = staging_path(path), path.with_name(f".{path.name}{REPLACED}")
    remove(hidden)
    os.mkdir(hidden)
    yield hidden
    synchronize(hidden)
    if path.exists() or path.is_symlink():
        remove(old)
        os.rename(path, old)
    os.rename(hidden, path)
    synchronize(path.parent)
    remove(old)


def create_file(path: Path, fill: Callable[[int], Any], *, flush: bool = True) -> Any:
    """Create a file, call `fill(file descriptor)`, flush, and return what `fill` returned."""
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o644)
    try:
        result = fill(file)
        if flush:
            os.fsync(file)
    finally:
        os.close(file)
    return result


def write_all(file: int, data: bytes | memoryview) -> None:
    """Call `os.write` until nothing is left: one call writes at most 2 GB, less on a full disk."""
    rest = memoryview(data)
    while rest.nbytes:
        rest = rest[os.write(file, rest) :]


def recover(folder: Path) -> None:
    """Undo what a process that died has left half done in `folder`, unless that is a link."""
    if folder.is_symlink():
        return
    with os.scandir(folder) as entries:
        names = sorted(entry.name for entry in entries if entry.name.startswith("."))
    for name in names:
        left = folder / name
        if name.endswith(REPLACED):
            home = folder / name[1 : -len(REPLACED)]
            if not home.exists():
                os.rename(left, home)
                synchronize(folder)
        if name.endswith((STAGED, REPLACED)):
            remove(left)


def remove(path: Path) -> None:
    """Delete a folder, a file or a link (never what it points to), if there is one."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        with suppress(FileNotFoundError):
            os.unlink(path)


def synchronize(path: Path) -> None:
    """Wait until the disk holds the content of a file, or the names in a folder."""
    file = os.open(path, os.O_RDONLY)
    try:
        os.fsync(file)
    finally:
        os.close(file)


def read_small(path: Path, largest: int, *, follow: bool = True) -> bytes:
    """Return the content of a plain file (no pipe, no device) of at most `largest` bytes."""
    with os.fdopen(open_to_read(path, follow=follow), "rb") as file:
        data = file.read(largest + 1)
    if len(data) > largest:
        raise OSError(errno.EFBIG, f"it is larger than {largest:,} bytes", str(path))
    return data


def open_to_read(path: Path, *, follow: bool = True) -> int:
    """Return a descriptor of a plain file; without `follow` a link is refused."""
    flags = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | (0 if follow else os.O_NOFOLLOW)
    file = os.open(path, flags)
    if not stat.S_ISREG(os.fstat(file).st_mode):
        os.close(file)
        raise OSError(errno.EINVAL, "it is not a regular file", str(path))
    return file
