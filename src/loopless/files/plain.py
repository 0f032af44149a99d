"""Decide whether a folder that may come from a stranger holds nothing but files and folders.

An archive keeps links: a run that somebody sent could have `checkpoints` point into your home, and
whoever tidies that folder up would delete what is yours. So whoever opens a run asks `problems`
first, and opens single files by `open_to_append` and `atomic.open_to_read`, which follow no link.
"""

import errno
import os
import stat
from collections.abc import Collection
from pathlib import Path

MOST = 3  # problems that are listed


def problems(folder: Path, files: Collection[str] = (), folders: Collection[str] = ()) -> list[str]:
    """Return in words what is in `folder`, however deep, that is no file or folder of its own.

    Names directly in `folder` that are listed in `files` must be files, those in `folders` folders.
    `folder` itself may be a link. At most `MOST` problems are returned.
    """
    found: list[str] = []
    unvisited = [Path(folder)]
    while unvisited and len(found) < MOST:
        place = unvisited.pop()
        try:
            with os.scandir(place) as entries:
                for entry in entries:
                    is_folder = entry.is_dir(follow_symlinks=False)
                    wanted = {"folder": folders, "file": files} if place == folder else {}
                    if problem := _problem(entry, is_folder, wanted):
                        found.append(f"{entry.path} {problem}")
                    elif is_folder:
                        unvisited.append(Path(entry.path))
        except OSError as error:
            found.append(f"{place} cannot be read: {error.strerror}")
    return sorted(found)[:MOST]


def _problem(entry: os.DirEntry, is_folder: bool, wanted: dict[str, Collection[str]]) -> str:
    if entry.is_symlink():
        return "is a link"
    if not is_folder and not entry.is_file(follow_symlinks=False):
        return "is neither a file nor a folder (a pipe, a socket or a device)"
    kind = "folder" if is_folder else "file"
    expected = next((name for name, names in wanted.items() if entry.name in names), kind)
    return "" if kind == expected else f"is a {kind}, but must be a {expected}"


def open_to_append(path: Path, flags: int = 0) -> int:
    """Return a descriptor of a file that is written in place; create the file if there is none.

    OSError if it is a link, no plain file, or a file with a second name (a hard link), whose
    content would change under the other name, too.
    """
    flags |= os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
    file = os.open(path, flags, 0o644)
    status = os.fstat(file)
    if not stat.S_ISREG(status.st_mode):
        reason = "it is not a regular file"
    elif status.st_nlink > 1:
        reason = "the same file has another name elsewhere (a hard link); put a copy in its place"
    else:
        return file
    os.close(file)
    raise OSError(errno.EINVAL, reason, str(path))


def make_folder(path: Path) -> None:
    """Create a folder if there is none; OSError if a link or a file stands in its place."""
    try:
        mode = os.lstat(path).st_mode
    except FileNotFoundError:
        os.makedirs(path, exist_ok=True)
        return
    if not stat.S_ISDIR(mode):
        raise NotADirectoryError(errno.ENOTDIR, "a link or a file stands in its place", str(path))
