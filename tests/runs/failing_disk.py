"""A disk that fails at the n-th call that touches it, or a process that dies there."""

import errno
import os
from contextlib import contextmanager
from unittest import mock

CALLS = ("mkdir", "open", "write", "fsync", "rename", "replace", "unlink", "rmdir")
WAYS = ("once", "stuck", "dead", "torn")


class Died(BaseException):
    """The process was killed: no line of it runs any more, and nothing more reaches the disk."""


class Disk:
    """Counts the calls. From number `failing` on, or there only, they fail in one of the WAYS.

    once: this call alone says that the disk is full. stuck: so do all calls after it. dead: the
    process ends before the call. torn: it ends in the midst of it, half of the bytes written.
    """

    def __init__(self, failing=None, way="once"):
        self.failing, self.way = failing, way
        self.count = 0
        self.log = []  # (name of the call, path)
        self._paths = {}

    def call(self, name, function, *arguments, **options):
        number, self.count = self.count, self.count + 1
        path = self._paths.get(arguments[0], str(arguments[0]))
        self.log.append((name, path, *map(str, arguments[1:2] if name.startswith("re") else ())))
        if self.failing is not None and number >= self.failing:
            if self.way in ("dead", "torn"):
                if self.way == "torn" and number == self.failing and name == "write":
                    file, data = arguments
                    function(file, bytes(data[: len(data) // 2]))
                raise Died
            if self.way == "stuck" or number == self.failing:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        result = function(*arguments, **options)
        if name == "open":
            self._paths[result] = path
        return result

    @contextmanager
    def installed(self):
        def wrapped(name):
            function = getattr(os, name)
            return lambda *arguments, **options: self.call(name, function, *arguments, **options)

        with mock.patch.multiple(os, **{name: wrapped(name) for name in CALLS}):
            yield self
