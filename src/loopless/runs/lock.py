"""One process a run: a lock that the operating system drops when its holder dies, however it dies.

`flock` on the file `lock`, which names its holder for whoever comes second. Workers that are
forked later let go of it, or a lost worker would keep the run locked after its trainer is gone.
Imports the standard library only. Tests: `tests/runs/test_folder.py`.
"""

import errno
import fcntl
import os
import socket
import weakref
from contextlib import suppress
from pathlib import Path

from loopless.runs.failures import RunInUse, WriteFailed, writing

_held: "weakref.WeakSet[Lock]" = weakref.WeakSet()


class Lock:
    """Held from its making until `release`."""

    def __init__(self, path: Path):
        with writing(str(path)):
            flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
            self._file = os.open(path, flags, 0o644)
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.ftruncate(self._file, 0)
            os.pwrite(self._file, f"pid {os.getpid()} on host {socket.gethostname()}\n".encode(), 0)
        except OSError as error:
            holder = os.pread(self._file, 400, 0).decode("utf-8", "replace").strip()
            os.close(self._file)
            if error.errno in (errno.EAGAIN, errno.EACCES):
                raise RunInUse(
                    f"run: {path.parent} is in use by {holder or 'another process'}. Wait until it "
                    f"has ended, or train under another name with --run."
                ) from None
            raise WriteFailed(
                f"run: cannot lock {path}: {error.strerror}. Put the run on another disk."
            ) from error
        _held.add(self)

    def release(self) -> None:
        """Let others in; a second call does nothing."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1


def _let_go() -> None:
    # Closed, not unlocked: the lock itself stays with the parent.
    for lock in list(_held):
        with suppress(OSError):
            lock.release()


os.register_at_fork(after_in_child=_let_go)
