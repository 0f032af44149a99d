"""The texts that a language model is trained on: a file, a folder, or what every machine has.

With no path, the corpus is the source of Python's own standard library, without its tests and its
tables of codecs and help pages. Files come in the order of their names, so that two machines with
the same files agree on all that follows; size and SHA-256 say whether they do. Imports the
standard library only.
Tests: `tests/text/test_corpus.py`.
"""

import hashlib
import os
import platform
import sysconfig
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

# Not the library, or no code that someone wrote: tests, and two packages of generated tables.
_NOT_LIBRARY = {
    "site-packages", "dist-packages", "__pycache__",
    "test", "tests", "idle_test",
    "encodings", "pydoc_data",
}  # fmt: skip


class Document(NamedTuple):
    """One file: its name under the corpus' folder, and its text."""

    name: str
    text: str


class Corpus(NamedTuple):
    """Documents, the files that were passed over and why, and what identifies them all.

    `sha256` is of all documents' bytes in their order, as `cat … | sha256sum` gives it.
    """

    name: str
    documents: list[Document]
    skipped: dict[str, str]
    bytes: int
    sha256: str

    def about(self) -> dict[str, Any]:
        """All but the texts, for JSON."""
        return {
            "name": self.name,
            "documents": len(self.documents),
            "bytes": self.bytes,
            "sha256": self.sha256,
            "skipped": self.skipped,
        }

    def __str__(self) -> str:
        passed = [f"{name} ({reason})" for name, reason in list(self.skipped.items())[:3]]
        more = ", …" if len(self.skipped) > 3 else ""
        text = (
            f"{self.name}: {len(self.documents):,} documents, {self.bytes / 1e6:.1f} MB, sha256 "
            f"{self.sha256[:12]}…"
        )
        return text + (
            f"; {len(self.skipped)} skipped: {', '.join(passed)}{more}" if passed else ""
        )


def read_corpus(path=None) -> Corpus:
    """The documents of a text file or of a folder's files; with no path, the standard library's.

    In a folder, hidden files and those that are no UTF-8 text are passed over.
    """
    if path is None:
        root = Path(sysconfig.get_paths()["stdlib"])
        name = f"the standard library of Python {platform.python_version()}"
        files = _files(root, _NOT_LIBRARY, ".py")
        empty = "Python's own source files are not on this machine. Pass --text FILE or FOLDER."
    else:
        root, name = Path(path), str(path)
        if not root.exists():
            raise FileNotFoundError(f"text: there is no file or folder {root}.")
        files = _files(root, set(), "") if root.is_dir() else iter([root])
        empty = "Give a file or a folder with UTF-8 text."
    documents, skipped, digest, size = [], {}, hashlib.sha256(), 0
    for file in files:
        own = file.relative_to(root).as_posix() if file != root else file.name
        data, reason = _read(file)
        if data is None:
            skipped[own] = reason
            continue
        documents.append(Document(own, data.decode()))
        digest.update(data)
        size += len(data)
    if not size:
        found = "; ".join(f"{file}: {reason}" for file, reason in list(skipped.items())[:3])
        raise ValueError(f"text: {root} holds no text{f' ({found})' if found else ''}. {empty}")
    return Corpus(name, documents, skipped, size, digest.hexdigest())


def split(documents: list[Document], share: float) -> tuple[list[Document], list[Document], str]:
    """Documents to train on, documents to validate with (about `share` of the text), and how.

    "document": whole documents are held out, in an order that their names' hashes give, so that
    none is in both. "position": the last part of all text is, where there are too few documents.
    """
    if not 0 < share < 1:
        raise ValueError(f"text: the validation share is between 0 and 1; received {share}.")
    room = share * sum(len(document.text) for document in documents)
    held, size = set(), 0
    for document in sorted(documents, key=_hash):
        if size + len(document.text) <= room:
            held.add(document.name)
            size += len(document.text)
    if size >= room / 2:
        train = [document for document in documents if document.name not in held]
        return train, [document for document in documents if document.name in held], "document"
    return *_cut(documents, room), "position"


def _cut(documents: list[Document], room: float) -> tuple[list[Document], list[Document]]:
    """The last `room` characters, and the rest before them."""
    train, held = list(documents), []
    while room >= 1 and train:
        name, text = train.pop()
        at = max(0, len(text) - int(room))
        # Back to the beginning of a line, if that costs no more than as much again.
        at = at and (text.rfind("\n", max(0, at - int(room)), at) + 1 or at)
        held.append(Document(name, text[at:]))
        room -= len(text) - at
        if at:
            train.append(Document(name, text[:at]))
    return train, held[::-1]


def _hash(document: Document) -> bytes:
    return hashlib.sha256(document.name.encode("utf-8", "surrogateescape")).digest()


def _files(root: Path, without: set[str], ending: str) -> Iterator[Path]:
    """Plain files below `root` by name, no hidden ones; links to folders are not followed."""
    found = []
    for folder, folders, names in os.walk(root):
        folders[:] = [name for name in folders if name not in without and name[0] != "."]
        found += [Path(folder, name) for name in names if name[0] != "." and name.endswith(ending)]
    return iter(sorted(filter(Path.is_file, found), key=lambda file: file.relative_to(root).parts))


def _read(file: Path) -> tuple[bytes | None, str]:
    """A file's bytes, or why they are no text."""
    try:
        data = file.read_bytes()
        data.decode()
    except UnicodeDecodeError as error:
        return None, f"no UTF-8 at byte {error.start:,}"
    except OSError as error:
        return None, error.strerror or str(error)
    return (None, "holds a zero byte") if b"\0" in data else (data, "")
