"""The ways in which a run can fail, and the exit code of each.

The command line prints the message of a `Failure` and exits with its code. Any other exception is
a bug: `cli.main` saves its traceback in a file, and exits with code 70.
"""

import errno
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from loopless.refusals import printable

# What a shell sees; the documentation explains them (docs/runs.md).
USAGE, NON_FINITE, WRITE_FAILED, INTERRUPTED = 2, 70, 74, 75
ENV_FAILED = 70


class Failure(Exception):
    """A failure that is reported by its message and an exit code, without a traceback.

    Its text may quote files and arguments; as a string it is safe for a terminal.
    """

    exit_code = USAGE
    ending = "failed"  # what the last line of the display says

    def __str__(self) -> str:
        return printable(super().__str__())


class BadConfig(Failure, ValueError):
    """All problems of a config, one line each."""

    def __init__(self, problems: Sequence[str]):
        self.problems = list(problems)
        super().__init__("\n".join(f"config: {problem}" for problem in self.problems))


class BadRun(Failure):
    """A run folder that cannot be used, or something in it that cannot."""


class RunInUse(Failure):
    """A run folder in which another process trains."""


class WriteFailed(Failure):
    """The disk refused what a run had to write."""

    exit_code = WRITE_FAILED
    ending = "could not be written"


class NonFinite(Failure):
    """A loss or gradient that is not finite."""

    exit_code = NON_FINITE
    ending = "stopped at a number that is not finite"


class EnvFailed(Failure):
    """An environment that failed during training; the agent was saved."""

    exit_code = ENV_FAILED
    ending = "stopped by its environment"


class Interrupted(Failure):
    """A run that was asked to stop, and was saved."""

    exit_code = INTERRUPTED
    ending = "interrupted"


_ADVICE = {
    errno.ENOSPC: "Free some space (or delete some files, if `df -i` shows that the disk has no "
    "inodes left), then `loopless resume` the run",
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
