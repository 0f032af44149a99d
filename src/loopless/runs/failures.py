"""How a run ends when it does not end well, and the exit code of each way.

The command line prints the message of a `Failure` and exits with its code; whatever else is
raised is a bug and keeps its traceback. Imports the standard library only.
Tests: `tests/runs/test_folder.py`, and those of whoever raises them.
"""

import errno
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

DONE, USAGE, NON_FINITE, WRITE_FAILED, INTERRUPTED = 0, 2, 70, 74, 75

EXIT_CODES = {
    DONE: "done",
    USAGE: "bad usage, config or run folder; nothing was changed",
    NON_FINITE: "stopped at a non-finite loss, or by an environment that failed; all was saved",
    WRITE_FAILED: "a write failed (disk full, read-only); the last good checkpoint is kept",
    INTERRUPTED: "interrupted and saved; `loopless resume RUN` continues",
    130: "a second Ctrl-C: stopped at once, nothing saved",
    143: "a second SIGTERM: stopped at once, nothing saved",
}


class Failure(Exception):
    """An end that the user is told of in words, with an exit code and without a traceback."""

    exit_code = USAGE


class BadConfig(Failure):
    """All that is wrong with a config, a line each."""

    def __init__(self, problems: Sequence[str]):
        self.problems = list(problems)
        super().__init__("\n".join(f"config: {problem}" for problem in self.problems))


class BadRun(Failure):
    """A run folder, or what is in it, that cannot be used."""


class RunInUse(Failure):
    """A run folder that another process trains in."""


class WriteFailed(Failure):
    """The disk did not take what a run had to write."""

    exit_code = WRITE_FAILED


class NonFinite(Failure):
    """A loss or gradient that is no finite number."""

    exit_code = NON_FINITE


class EnvFailed(Failure):
    """An environment that failed while it trained an agent, who was saved."""

    exit_code = NON_FINITE


class Interrupted(Failure):
    """A run that was asked to stop, and has saved itself."""

    exit_code = INTERRUPTED


_ADVICE = {
    errno.ENOSPC: "Free some space, then `loopless resume` the run",
    errno.EDQUOT: "Free some of your quota, then `loopless resume` the run",
    errno.EROFS: "Choose a folder on a disk that can be written to",
    errno.EACCES: "Choose a folder that you may write to",
    errno.EPERM: "Choose a folder that you may write to",
}


@contextmanager
def writing(what: str, kept: str = "") -> Iterator[None]:
    """Turn an error of the operating system into `WriteFailed`; `kept` says what is not lost."""
    try:
        yield
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno else str(error)
        advice = _ADVICE.get(error.errno or 0, "")
        parts = [f"run: cannot write {what}: {reason}", kept, advice]
        raise WriteFailed(". ".join(filter(None, parts)) + ".") from error
