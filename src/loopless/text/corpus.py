"""The texts that a language model is trained on: a file, a folder, or Python's standard library.

With no path, the corpus is the source code of Python's own standard library, which every machine
has, without its tests and its generated tables. Files are read in the order of their names, so
that two machines with the same files get the same corpus; its size and SHA-256 tell whether they
do. `dataset.py` turns a corpus into tokens.
"""

import hashlib
import os
import platform
import sysconfig
from collections.abc import Set
from pathlib import Path
from typing import Any, NamedTuple

from loopless.files import atomic

# Folders that are not the library itself, its tests, and two packages of generated tables.
_EXCLUDED_FOLDERS = {
    "site-packages", "dist-packages", "__pycache__",
    "test", "tests", "idle_test",
    "encodings", "pydoc_data",
}  # fmt: skip


class Document(NamedTuple):
    """One file: its name relative to the corpus folder, and its text."""

    name: str
    text: str


class Corpus(NamedTuple):
    """All documents, the skipped files with the reason for each, and what identifies the corpus.

    `sha256` covers the bytes of all documents in their order, as `cat … | sha256sum` prints it.
    """

    name: str
    documents: list[Document]
    skipped: dict[str, str]
    bytes: int
    sha256: str

    def about(self) -> dict[str, Any]:
        """Return everything but the texts, ready for JSON."""
        return {
            "name": self.name,
            "documents": len(self.documents),
            "bytes": self.bytes,
            "sha256": self.sha256,
            "skipped": self.skipped,
        }


def read_corpus(path=None) -> Corpus:
    """Read a text file or all files of a folder; with no path, the standard library's source.

    In a folder, hidden files and files that are not UTF-8 text are skipped.
    """
    if path is None:
        root = Path(sysconfig.get_paths()["stdlib"])
        name = f"the standard library of Python {platform.python_version()}"
        files = _list_files(root, _EXCLUDED_FOLDERS, ".py")
        advice = "Python's own source files are not on this machine. Pass --text FILE or FOLDER."
    else:
        root, name = Path(path), str(path)
        if not root.exists():
            raise FileNotFoundError(f"text: there is no file or folder {root}.")
        files = _list_files(root) if root.is_dir() else [root]
        advice = "Give a file or a folder with UTF-8 text."
    documents, skipped, digest, size = [], {}, hashlib.sha256(), 0
    for file in files:
        file_name = file.relative_to(root).as_posix() if file != root else file.name
        data, reason = _read_text(file)
        if data is None:
            skipped[file_name] = reason
            continue
        documents.append(Document(file_name, data.decode()))
        digest.update(data)
        size += len(data)
    if not size:
        reasons = "; ".join(f"{file}: {reason}" for file, reason in list(skipped.items())[:3])
        raise ValueError(
            f"text: {root} holds no text{f' ({reasons})' if reasons else ''}. {advice}"
        )
    return Corpus(name, documents, skipped, size, digest.hexdigest())


def split(documents: list[Document], share: float) -> tuple[list[Document], list[Document], str]:
    """Hold out about `share` of the text; return (training, validation, how it was split).

    "document": whole documents are held out, chosen by the hashes of their names, so that the
    choice does not depend on their order. "position": with too few documents for that, the last
    part of the whole text is held out.
    """
    check_validation_share(share)
    wanted = share * sum(len(document.text) for document in documents)
    held_out, size = set(), 0
    for document in sorted(documents, key=_name_hash):
        if size + len(document.text) <= wanted:
            held_out.add(document.name)
            size += len(document.text)
    if size < wanted / 2:
        return *_split_by_position(documents, wanted), "position"
    training = [document for document in documents if document.name not in held_out]
    return training, [document for document in documents if document.name in held_out], "document"


def check_validation_share(share: float) -> None:
    """Raise ValueError unless `share` leaves text both to train on and to validate with."""
    if not 0 < share < 1:
        raise ValueError(f"text: the validation share must be between 0 and 1; received {share}.")


def _split_by_position(
    documents: list[Document], wanted: float
) -> tuple[list[Document], list[Document]]:
    """Return the text before the last `wanted` characters, and those characters."""
    training, held_out = list(documents), []
    while wanted >= 1 and training:
        name, text = training.pop()
        cut = max(0, len(text) - int(wanted))
        # Move the cut back to the start of a line, unless that would at least double the part.
        cut = cut and (text.rfind("\n", max(0, cut - int(wanted)), cut) + 1 or cut)
        held_out.append(Document(name, text[cut:]))
        wanted -= len(text) - cut
        if cut:
            training.append(Document(name, text[:cut]))
    return training, held_out[::-1]


def _name_hash(document: Document) -> bytes:
    return hashlib.sha256(document.name.encode("utf-8", "surrogateescape")).digest()


def _list_files(root: Path, excluded: Set[str] = frozenset(), suffix: str = "") -> list[Path]:
    """List the visible plain files below `root` by name; links to folders are not followed."""
    files = []
    for folder, folders, names in os.walk(root):
        folders[:] = [name for name in folders if name not in excluded and name[0] != "."]
        files += [Path(folder, name) for name in names if name[0] != "." and name.endswith(suffix)]
    return sorted(filter(Path.is_file, files), key=lambda file: file.relative_to(root).parts)


def _read_text(file: Path) -> tuple[bytes | None, str]:
    """Return a file's bytes, or None and the reason why they are not text."""
    try:
        with os.fdopen(atomic.open_to_read(file), "rb") as opened:
            data = opened.read()
        data.decode()
    except UnicodeDecodeError as error:
        return None, f"no UTF-8 at byte {error.start:,}"
    except OSError as error:
        return None, error.strerror or str(error)
    return (None, "holds a zero byte") if b"\0" in data else (data, "")
