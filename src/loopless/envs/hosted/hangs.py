"""Ends for environments that hang: a time limit for a step, and the end of a worker's trainer.

A limit raises `Overdue` inside the environment, by a signal, so that the traceback shows where it
hung. It reaches Python code and system calls; C code that never returns is out of its reach, so
the trainer does not wait for a worker for much longer than the limit.

A worker cannot watch its trainer from a Python thread, which would wait for ever if the
environment hangs in C code that holds the interpreter's lock. So the kernel watches: it signals the
worker when the other end of a pipe is gone, and libc's own `alarm` is the signal's handler.
"""

import ctypes
import fcntl
import os
import select
import signal
import threading
from collections.abc import Callable
from functools import partial
from typing import Any

from loopless.envs import EnvError


class Overdue(BaseException):
    """An environment took longer than its limit; no `except Exception` of its own may stop this."""


def limited(function: Callable, seconds: float) -> Callable:
    """Return `function`, which raises Overdue if a call takes longer than so many seconds."""

    def call(*args: Any, **options: Any) -> Any:
        signal.setitimer(signal.ITIMER_REAL, seconds)
        try:
            return function(*args, **options)
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)

    return call


def take_alarms(what: str) -> Callable[[], Any]:
    """Make alarms raise Overdue from now on; return what takes that back."""
    if threading.current_thread() is not threading.main_thread():
        raise EnvError(
            f"{what}: step_timeout needs signals, which only the main thread receives. Make the "
            f"environments there, or use vectorization='async'."
        )
    before = signal.signal(signal.SIGALRM, _raise_overdue)
    return partial(signal.signal, signal.SIGALRM, before)


def _raise_overdue(number: int, frame: Any) -> None:
    raise Overdue


def end_with(lifeline: int) -> None:
    """End this process some seconds after the other end of a pipe is closed, whatever it does.

    The seconds, 10 on Linux, leave an environment that does not hang the time to close.
    """
    number, libc = signal.SIGIO, ctypes.CDLL(None)
    if hasattr(fcntl, "F_SETSIG"):
        number = signal.SIGUSR1
        fcntl.fcntl(lifeline, fcntl.F_SETSIG, number)  # pyright: ignore[reportAttributeAccessIssue]
    libc.signal.argtypes = (ctypes.c_int, ctypes.c_void_p)
    libc.signal(number, ctypes.cast(libc.alarm, ctypes.c_void_p))  # alarm(number): in so many s
    fcntl.fcntl(lifeline, fcntl.F_SETOWN, os.getpid())
    fcntl.fcntl(lifeline, fcntl.F_SETFL, fcntl.fcntl(lifeline, fcntl.F_GETFL) | os.O_ASYNC)
    if select.select([lifeline], [], [], 0)[0]:  # it was closed before that
        libc.alarm(number)
