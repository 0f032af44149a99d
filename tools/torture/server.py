"""Starts commands in processes of their own, and kills them: a program that `kills` talks to.

This process has imported everything that a training run needs, and forks for each command, which
saves the seconds that the imports take. The fork is a real process with files and locks of its own,
and it dies by SIGKILL. All of them share a cache of compiled programs, which ends with this
process. A request is a line of JSON on standard input, the answer a line on standard output:
`[was it killed, exit code, the last line that the command printed]`.
"""

import contextlib
import json
import os
import shutil
import signal
import sys
import tempfile
import time
import warnings

import equinox
import gymnasium
import jax
import optax

from loopless import cli
from loopless.runs.pictures.renderer import Renderer
from loopless.train.allo import run as allo
from loopless.train.dqn import compiled as dqn
from loopless.train.engine import run as engine
from loopless.train.ppo import compiled as ppo

IMPORTED = (equinox, gymnasium, jax, optax, engine, allo, dqn, ppo)
DISK = ("open", "write", "fsync", "ftruncate", "replace", "rename", "mkdir", "rmdir", "unlink")
POLL_S = 0.01


def main() -> int:
    """Serve until standard input ends; a child returns the exit code of its command."""
    warnings.filterwarnings("ignore", "os.fork", RuntimeWarning)  # JAX has no threads yet
    os.environ["XDG_CACHE_HOME"] = home = tempfile.mkdtemp()
    printed = tempfile.TemporaryFile()  # noqa: SIM115 (for as long as the process lives)
    for line in sys.stdin:
        request = json.loads(line)
        if len(os.listdir("/proc/self/task")) > 1:
            raise RuntimeError("torture: the server has threads, and must not fork")
        printed.truncate(0)
        child = os.fork()
        if not child:
            return _command(printed.fileno(), **request)
        answer = _wait(child, request["seconds"])
        last = printed.seek(0) or printed.read().decode(errors="replace").strip().split("\n")[-1]
        print(json.dumps([*answer, last]), flush=True)
    shutil.rmtree(home, ignore_errors=True)
    return 0


def _wait(child: int, seconds: float) -> tuple[bool, int]:
    """Wait for a child, and kill it when its time is up."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        found, status = os.waitpid(child, os.WNOHANG)
        if found:
            return os.WIFSIGNALED(status), os.waitstatus_to_exitcode(status)
        time.sleep(POLL_S)
    os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    return os.WIFSIGNALED(status), os.waitstatus_to_exitcode(status)


def _command(
    printed: int, words: list[str], seconds: float, operation: int | None, draw: bool
) -> int:
    os.lseek(printed, 0, os.SEEK_SET)
    for stream, file in enumerate((os.open(os.devnull, os.O_RDONLY), printed, printed)):
        os.dup2(file, stream)
    if operation is not None:
        _die_at(operation)
    if not draw:
        Renderer._start = lambda self: None  # its process would take longer than the run
    sys.argv = ["loopless", *words]
    return cli.main()


def _die_at(operation: int) -> None:
    """Kill this process at the operation of the disk with this number; a write is cut in two."""
    count = 0

    def counted(name: str, real):
        def call(*args, **options):
            nonlocal count
            count += 1
            if count == operation:
                if name == "write":
                    with contextlib.suppress(OSError):
                        real(args[0], memoryview(args[1]).cast("B")[: len(args[1]) // 2])
                os.kill(os.getpid(), signal.SIGKILL)
            return real(*args, **options)

        return call

    for name in DISK:
        setattr(os, name, counted(name, getattr(os, name)))


if __name__ == "__main__":
    sys.exit(main())
