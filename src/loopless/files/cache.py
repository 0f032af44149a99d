"""The folder in which compiled programs are kept between runs: where, for whom, how much.

The folder holds machine code that a later process runs. So it must belong to this user alone: a
folder (not a link) with mode 0700, or nothing is kept. Its subfolders are named by our version,
jaxlib's and the processor, so that no process finds programs that it could not run.

An entry begins with a checksum of the rest and is published by a rename. A writer that is killed
leaves nothing that a reader takes for an entry, and a damaged entry is removed when it is read.
Several processes may read, write and evict at the same time. `arrays/programs.py` gives JAX's
programs to it; this file needs no JAX.
"""

import hashlib
import os
import platform
import re
import stat
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import NamedTuple

from loopless.files import atomic

SWITCH = "LOOPLESS_CACHE"  # the environment variable that turns the cache off
CAP_BYTES = 512 * 2**20
ENDING = ".program"
VERDICT = "verdict"  # the file that says whether JAX takes its own entries back
ACCEPTED = "accepted"
_DIGEST = hashlib.sha256().digest_size
_WRITING = threading.Lock()
_LEFT_OVER_S = 3600.0  # the age at which a staged file has lost its writer


class NoCache(Exception):
    """Says in words why no programs are kept."""


def is_on() -> bool:
    """Return whether programs may be kept: not with LOOPLESS_CACHE=0."""
    setting = os.environ.get(SWITCH, "1").strip()
    if setting not in ("0", "1"):
        raise NoCache(f"{SWITCH} must be 0 (no cache) or 1; received {setting!r}.")
    return setting == "1"


def root() -> Path:
    """Return the folder of all that is kept, in the user's cache folder; it need not exist."""
    home = Path(os.environ.get("XDG_CACHE_HOME", ""))
    if not home.is_absolute():  # unset; a relative path is ignored, as the XDG standard says
        try:
            user = Path.home()
        except RuntimeError as error:
            raise NoCache(f"this user has no home folder ({error}).") from error
        home = user / ("Library/Caches" if sys.platform == "darwin" else ".cache")
    return home / "loopless" / "programs"


def folder_name() -> str:
    """Return the name of the subfolder for programs of these versions on this processor."""
    versions = [f"{package}-{_version(package)}" for package in ("loopless", "jaxlib")]
    return "_".join([*versions, hashlib.sha256(_processor().encode()).hexdigest()[:12]])


def _version(package: str) -> str:
    with suppress(PackageNotFoundError):
        return version(package)
    return "unknown"


def _processor() -> str:
    """Return what the system says about the processor: its model, and the features it has."""
    with suppress(OSError), open("/proc/cpuinfo", encoding="utf-8", errors="replace") as file:
        first = file.read().split("\n\n")[0]
        lines = re.findall(
            r"(?m)^(?:vendor_id|cpu family|model|flags|Features|CPU.*)\s*:.*$", first
        )
        if lines:
            return "\n".join([platform.machine(), *lines])
    return f"{platform.machine()} {platform.processor()} {platform.version()}"


def open_folder() -> Path:
    """Return the subfolder for this process; make it if need be. Raises NoCache if it is unsafe."""
    folder = root() / folder_name()
    try:
        folder.parent.parent.mkdir(parents=True, exist_ok=True)
        for path in (folder.parent, folder):
            with suppress(FileExistsError):
                os.mkdir(path, 0o700)
            _refuse_unsafe(path)
    except OSError as error:
        raise NoCache(f"{folder} cannot be used ({error.strerror}).") from error
    return folder


def _refuse_unsafe(folder: Path) -> None:
    """Raise NoCache unless a folder is no link, and nobody else's."""
    status = os.lstat(folder)
    if stat.S_ISLNK(status.st_mode):
        raise NoCache(f"{folder} is a link, and must be a folder. Remove it.")
    if not stat.S_ISDIR(status.st_mode):
        raise NoCache(f"{folder} is a file, and must be a folder. Remove it.")
    if status.st_uid != os.geteuid():
        raise NoCache(f"{folder} belongs to another user. Set XDG_CACHE_HOME to a folder of yours.")
    if stat.S_IMODE(status.st_mode) & 0o077:
        mode = stat.S_IMODE(status.st_mode)
        raise NoCache(
            f"{folder} has mode {mode:04o}, and holds machine code that others must not change. "
            f"If you trust what is in it, `chmod 700 {folder}`; else remove it."
        )


class Entry(NamedTuple):
    """A file of the cache."""

    used: float  # when it was last read or written, in seconds
    size: int
    path: Path


def entries(folder: Path) -> list[Entry]:
    """Return the entries in a folder and its subfolders, the least recently used first."""
    return sorted(_scan(folder, ENDING))


def _scan(folder: Path, ending: str) -> Iterator[Entry]:
    with suppress(OSError), os.scandir(folder) as items:
        for item in items:
            if item.is_dir(follow_symlinks=False):
                yield from _scan(Path(item.path), ending)
            elif item.name.endswith(ending):
                with suppress(FileNotFoundError):  # another process has evicted it
                    status = item.stat(follow_symlinks=False)
                    yield Entry(status.st_mtime, status.st_size, Path(item.path))


def evict(folder: Path, cap_bytes: int) -> None:
    """Delete the least recently used entries until the rest fit, and what dead writers left."""
    old = [left for left in _scan(folder, atomic.STAGED) if time.time() - left.used > _LEFT_OVER_S]
    stored = entries(folder)
    excess = sum(entry.size for entry in stored) - cap_bytes
    for entry in stored:
        if excess <= 0:
            break
        old.append(entry)
        excess -= entry.size
    for entry in old:
        with suppress(OSError):
            entry.path.unlink(missing_ok=True)


def clear() -> tuple[int, int]:
    """Delete everything that is kept; return how many programs and bytes that was."""
    folder = root()
    stored = entries(folder)
    if os.path.lexists(folder):
        _refuse_unsafe(folder)
        atomic.remove(folder)
    return len(stored), sum(entry.size for entry in stored)


def describe() -> Iterator[str]:
    """Yield what is kept, line by line: where, how much, and whether this process would use it."""
    if theirs := os.environ.get("JAX_COMPILATION_CACHE_DIR"):
        yield f"JAX_COMPILATION_CACHE_DIR is set: programs go to {theirs}, which is left alone."
    elif not is_on():
        yield f"Off, because {SWITCH} is 0."
    folder = root()
    if os.path.lexists(folder):
        _refuse_unsafe(folder)
    stored = entries(folder)
    yield f"Folder    {folder}"
    yield f"Programs  {_amount(len(stored), sum(entry.size for entry in stored))}"
    yield f"At most   {CAP_BYTES / 2**20:.0f} MB; the least recently used go first"
    for name in sorted({entry.path.parent.name for entry in stored}):
        some = [entry.size for entry in stored if entry.path.parent.name == name]
        here = ", in use here" if name == folder_name() else ""
        yield f"  {name}: {_amount(len(some), sum(some))}{here}"
    with suppress(OSError, UnicodeDecodeError):
        if (verdict := (folder / folder_name() / VERDICT).read_text("utf-8")) != ACCEPTED:
            yield f"Not used: {verdict}"


def describe_cleared() -> Iterator[str]:
    """Clear the cache, and yield what that was."""
    yield f"Deleted {_amount(*clear())} in {root()}"


def _amount(count: int, size: int) -> str:
    return f"{count} program{'s' * (count != 1)}, {size / 2**20:.1f} MB"


class Store:
    """Programs by key, in one subfolder. The cap is for all subfolders together."""

    def __init__(self, folder: Path, cap_bytes: int = CAP_BYTES) -> None:
        self.folder, self.cap_bytes = folder, cap_bytes
        self.failure: OSError | None = None  # of the last write

    def path(self, key: str) -> Path:
        """Return the file of a key; JAX's keys end with a hash."""
        return self.folder / (re.sub(r"[^\w.-]", "_", key)[-200:] + ENDING)

    def get(self, key: str) -> bytes | None:
        """Return an entry, which counts as used; None if there is none, or it is damaged."""
        path = self.path(key)
        try:
            with os.fdopen(atomic.open_to_read(path, follow=False), "rb") as file:
                data = file.read()
        except OSError:
            return None
        if hashlib.sha256(data[_DIGEST:]).digest() != data[:_DIGEST]:
            with suppress(OSError):
                path.unlink(missing_ok=True)
            return None
        with suppress(OSError):
            os.utime(path)
        return data[_DIGEST:]

    def put(self, key: str, data: bytes) -> None:
        """Store an entry in place of any other, and evict others if there is no room for it."""
        if len(data) + _DIGEST > self.cap_bytes:
            return
        try:
            with _WRITING:  # a staged file has the name of its process
                # Nothing waits for the disk: what a power failure leaves has another checksum.
                atomic.write_file(self.path(key), hashlib.sha256(data).digest() + data, flush=False)
                evict(self.folder.parent, self.cap_bytes)
        except OSError as error:
            self.failure = error
