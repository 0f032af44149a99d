"""A recorder of what a session asks of the disk, and the states that a power cut may leave.

The recorder stands between our code and `os`. A write is certain to be on the disk after an fsync
of its file, a name after an fsync of its folder; at a cut, everything else may be there or not, in
any combination, and a write in part. `states` draws such combinations after a given operation.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import numpy as np

_SAVED = "saved"


class Operation(NamedTuple):
    """One change: of the content of file `inode`, or of the `names` in folders."""

    kind: str
    inode: int = 0
    offset: int = 0
    data: bytes = b""
    names: tuple[tuple[int, str, int], ...] = ()  # (folder, name, what it stands for; 0: nothing)
    report: Any = None


class Recorder:
    """Passes calls on to `os`, and keeps a list of what they changed below `root`."""

    def __init__(self, root: Path) -> None:
        self.root, self.operations = root, list[Operation]()
        self._numbers: dict[int, int] = {}  # inode → a number of ours: inodes are used again
        self.root_inode = self._fresh(os.stat(root).st_ino)
        self.folders = {self.root_inode}
        self._files: dict[int, int] = {}  # descriptor → inode
        self._real = {name: getattr(os, name) for name in _CALLS}

    def saved(self, report: Any) -> None:
        """Note that the session said: this is saved."""
        self.operations.append(Operation(_SAVED, report=report))

    @contextmanager
    def installed(self) -> Iterator["Recorder"]:
        calls = {name: getattr(self, f"_{name}") for name in _CALLS}
        with mock.patch.multiple(os, **calls):
            yield self

    def _name(self, path: Any, inode: int) -> tuple[int, str, int]:
        path = Path(path)
        return self._inode(path.parent), path.name, inode

    def _fresh(self, inode: int) -> int:
        self._numbers[inode] = self._count = getattr(self, "_count", 0) + 1
        return self._count

    def _number(self, inode: int) -> int:
        return self._numbers.get(inode) or self._fresh(inode)

    def _inode(self, path: Any) -> int:
        return self._number(os.lstat(path).st_ino)

    def _open(self, path, flags, mode=0o777, **options):
        new = flags & os.O_CREAT and not os.path.lexists(path)
        file = self._real["open"](path, flags, mode, **options)
        inode = os.fstat(file).st_ino
        self._files[file] = inode = self._fresh(inode) if new else self._number(inode)
        if new:
            self.operations.append(Operation("names", names=(self._name(path, inode),)))
        return file

    def _close(self, file):
        self._files.pop(file, None)
        return self._real["close"](file)

    def _write(self, file, data):
        append = file in self._files
        offset = os.fstat(file).st_size if append else 0  # all of ours write to the end
        count = self._real["write"](file, data)
        if append:
            content = bytes(memoryview(data).cast("B")[:count])
            self.operations.append(Operation("write", self._files[file], offset, content))
        return count

    def _ftruncate(self, file, size):
        self._real["ftruncate"](file, size)
        self.operations.append(Operation("truncate", self._number(os.fstat(file).st_ino), size))

    def _fsync(self, file):
        self._real["fsync"](file)
        self.operations.append(Operation("sync", self._number(os.fstat(file).st_ino)))

    def _mkdir(self, path, mode=0o777, **options):
        self._real["mkdir"](path, mode, **options)
        inode = self._fresh(os.lstat(path).st_ino)
        self.folders.add(inode)
        self.operations.append(Operation("names", names=(self._name(path, inode),)))

    def _rename(self, old, new, **options):
        inode, names = self._inode(old), (self._name(old, 0),)
        self._real["rename"](old, new, **options)
        self.operations.append(Operation("names", names=(*names, self._name(new, inode))))

    _replace = _rename

    def _unlink(self, path, *, dir_fd=None):
        if dir_fd is None:
            name = self._name(path, 0)
        else:
            name = self._number(os.fstat(dir_fd).st_ino), os.fspath(path), 0
        self._real["unlink"](path, dir_fd=dir_fd)
        self.operations.append(Operation("names", names=(name,)))

    def _rmdir(self, path, *, dir_fd=None):
        name = (
            self._name(path, 0)
            if dir_fd is None
            else (self._number(os.fstat(dir_fd).st_ino), str(path), 0)
        )
        self._real["rmdir"](path, dir_fd=dir_fd)
        self.operations.append(Operation("names", names=(name,)))


_CALLS = (
    "open", "close", "write", "ftruncate", "fsync", "mkdir", "rename", "replace", "unlink", "rmdir",
)  # fmt: skip


def reports(operations: list[Operation]) -> list[Any]:
    """Return what was reported as saved."""
    return [operation.report for operation in operations if operation.kind == _SAVED]


def cut(recorder: Recorder, count: int, rng: np.random.Generator, folder: Path) -> list[Any]:
    """Write into `folder` what a cut after `count` operations may leave; return the reports.

    Without luck nothing that was not synchronized is kept, or all of it; else any part.
    """
    operations = recorder.operations[:count]
    chance = (0.0, 1.0, rng.random())[rng.integers(3)]
    synced_at: dict[int, int] = {}  # inode → the last operation that is certain
    for number, operation in enumerate(operations):
        if operation.kind == "sync":
            synced_at[operation.inode] = number
    content: dict[int, bytearray] = {}
    names: dict[int, dict[str, int]] = {recorder.root_inode: {}}
    for number, operation in enumerate(operations):
        if operation.kind == "names":
            certain = all(synced_at.get(place, -1) > number for place, _, _ in operation.names)
            if certain or rng.random() < chance:
                for place, name, inode in operation.names:
                    entries = names.setdefault(place, {})
                    if inode:
                        entries[name] = inode
                    else:
                        entries.pop(name, None)
        elif operation.kind in ("write", "truncate"):
            certain = synced_at.get(operation.inode, -1) > number
            if certain or rng.random() < chance:
                _change(content.setdefault(operation.inode, bytearray()), operation, certain, rng)
    _write_tree(recorder, names, content, recorder.root_inode, folder)
    return reports(operations)


def _change(content: bytearray, operation: Operation, certain: bool, rng) -> None:
    if operation.kind == "truncate":
        del content[operation.offset :]
        return
    data = operation.data if certain else operation.data[: rng.integers(len(operation.data) + 1)]
    if operation.offset > len(content):  # what came before it was lost: a hole
        content.extend(bytes(operation.offset - len(content)))
    content[operation.offset : operation.offset + len(data)] = data


def _write_tree(recorder: Recorder, names, content, inode: int, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, target in names.get(inode, {}).items():
        if target in recorder.folders:
            _write_tree(recorder, names, content, target, folder / name)
        else:
            (folder / name).write_bytes(bytes(content.get(target, b"")))
