"""One lock for each buffer on the host, so that threads may share it.

The kernels let go of the interpreter's lock, so a draw could read a transition that another thread
is writing. Every method that reads or writes transitions therefore holds the buffer's lock, which
is reentrant and costs some tens of nanoseconds if nobody else holds it. A fork may happen while
another thread holds a lock, and that thread does not exist in the child: there, every buffer gets
a new one.
"""

import os
from collections.abc import Callable
from functools import wraps
from threading import RLock
from typing import Any, TypeVar
from weakref import WeakSet

Method = TypeVar("Method", bound=Callable)

_owners: WeakSet = WeakSet()


def give_lock(buffer: Any) -> None:
    """Give a buffer its `_lock`."""
    buffer._lock = RLock()
    _owners.add(buffer)


def locked(method: Method) -> Method:
    """Return `method`, which holds the buffer's lock; hot methods hold it themselves."""

    @wraps(method)
    def call(self: Any, *args: Any, **options: Any) -> Any:
        with self._lock:
            return method(self, *args, **options)

    return call  # pyright: ignore[reportReturnType]


def _renew() -> None:
    for buffer in list(_owners):
        buffer._lock = RLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew)
