"""Text to token ids and back: by bytes, by characters, or by pairs learnt from a text (`bpe`).

Each id stands for some bytes of UTF-8, its piece, and the last id, `end`, for none: it ends a
document, and begins a text that has no beginning. A tokenizer is saved as JSON. Imports NumPy.
Tests: `tests/text/test_tokenizers.py`, against loops over characters.
"""

import codecs
import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from loopless.files import atomic
from loopless.text.tokens import dtype_for

KINDS = ("byte", "char", "bpe")
UNKNOWN = "\ufffd"
_FORMAT = "loopless tokenizer 1"


class Tokenizer:
    """What the three kinds have in common. Ids are uint16, or uint32 if there are too many."""

    kind: str
    pieces: Sequence[bytes]

    @property
    def vocabulary(self) -> int:
        """The number of ids, `end` included."""
        return len(self.pieces)

    @property
    def end(self) -> int:
        """The id that stands between documents."""
        return len(self.pieces) - 1

    def encode(self, text: str) -> np.ndarray:
        """The ids of a text, without `end`."""
        raise NotImplementedError

    def settings(self) -> dict[str, Any]:
        """What `load` needs to build it again."""
        raise NotImplementedError

    def decode(self, ids) -> str:
        """The text of some ids; bytes that are no UTF-8 (a model can write any) come as U+FFFD."""
        data = joined(self.pieces, ids)
        try:
            return data.decode("utf-8", "surrogatepass")
        except UnicodeDecodeError:
            return data.decode("utf-8", "replace")


class ByteTokenizer(Tokenizer):
    """One id a byte of UTF-8: 256 of them and `end`. Every text comes back as it was."""

    kind = "byte"

    def __init__(self) -> None:
        self.pieces = [bytes([i]) for i in range(256)] + [b""]

    def encode(self, text: str) -> np.ndarray:
        return np.frombuffer(text.encode("utf-8", "surrogatepass"), np.uint8).astype(np.uint16)

    def settings(self) -> dict[str, Any]:
        return {}


class CharTokenizer(Tokenizer):
    """One id a character. Id 0 is U+FFFD, which also stands for every character not listed.

    So texts of listed characters come back as they were, and others with U+FFFD in the gaps.
    """

    kind = "char"

    def __init__(self, characters: str) -> None:
        points = _points(characters)
        if len(set(characters)) != len(characters) or UNKNOWN in characters:
            raise ValueError(
                f"tokenizer: characters are listed once each, without U+FFFD; received "
                f"{characters[:40]!r}."
            )
        self.characters = characters
        listed = [character.encode("utf-8", "surrogatepass") for character in characters]
        self.pieces = [UNKNOWN.encode(), *listed, b""]
        # One entry for each code point up to the last listed, and one for all behind it.
        self._ids = np.zeros(int(points.max(initial=0)) + 2, dtype_for(self.vocabulary))
        self._ids[points] = np.arange(1, len(points) + 1)

    @classmethod
    def train(cls, texts: Iterable[str], vocabulary: int | None = None) -> "CharTokenizer":
        """All characters of some texts; with `vocabulary`, only so many ids, the most frequent."""
        counts = np.zeros(0x110000, np.int64)
        for text in texts:
            found = np.bincount(_points(text))
            counts[: len(found)] += found
        counts[ord(UNKNOWN)] = 0
        most = np.argsort(-counts, kind="stable")[: np.count_nonzero(counts)]
        if vocabulary is not None:
            if vocabulary < 3:
                raise ValueError(
                    f"tokenizer: a char vocabulary holds U+FFFD, one character at least, and the "
                    f"end of a document; received {vocabulary}."
                )
            most = most[: vocabulary - 2]
        return cls("".join(map(chr, np.sort(most).tolist())))

    def encode(self, text: str) -> np.ndarray:
        return self._ids[np.minimum(_points(text), len(self._ids) - 1)]

    def settings(self) -> dict[str, Any]:
        return {"characters": self.characters}


class Decoder:
    """Text from ids that arrive in pieces: a character cut in two waits for its other half."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._pieces = tokenizer.pieces
        self._utf8 = codecs.getincrementaldecoder("utf-8")("replace")

    def feed(self, ids, last: bool = False) -> str:
        """The text that these ids complete; with `last`, what was left over too."""
        return self._utf8.decode(joined(self._pieces, ids), last)


def train(kind: str, texts: Sequence[str], vocabulary: int | None = None) -> Tokenizer:
    """A tokenizer of this kind for some texts; `vocabulary` is the most ids it may have."""
    if kind == "byte":
        return ByteTokenizer()
    if kind == "char":
        return CharTokenizer.train(texts, vocabulary)
    if kind == "bpe":
        from loopless.text.bpe import BPETokenizer

        return BPETokenizer.train(texts, vocabulary or 1024)
    raise ValueError(f"tokenizer: kind={kind!r} is unknown; choose {', '.join(KINDS)}.")


def save(tokenizer: Tokenizer, path) -> None:
    """Write a tokenizer as JSON."""
    content = {"format": _FORMAT, "kind": tokenizer.kind, **tokenizer.settings()}
    atomic.write_file(Path(path), json.dumps(content).encode())


def load(path) -> Tokenizer:
    """The tokenizer that `save` wrote."""
    if not Path(path).is_file():
        raise FileNotFoundError(f"tokenizer: there is no file {path}.")
    try:
        content = json.loads(Path(path).read_bytes())
        if content["format"] != _FORMAT:
            raise ValueError(f"its format is {content['format']!r}")
        if content["kind"] == "char":
            return CharTokenizer(content["characters"])
        if content["kind"] == "bpe":
            from loopless.text.bpe import BPETokenizer

            return BPETokenizer(content["tokenizer"])
        if content["kind"] == "byte":
            return ByteTokenizer()
        raise ValueError(f"its kind is {content['kind']!r}")
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(
            f"tokenizer: {path} is no tokenizer of ours ({error!r}). Use one that was saved with "
            f"a run or a dataset."
        ) from error


def joined(pieces: Sequence[bytes], ids) -> bytes:
    """The bytes of some ids."""
    ids = np.asarray(ids).reshape(-1)
    if ids.size and not (ids.dtype.kind in "iu" and ids.min() >= 0 and ids.max() < len(pieces)):
        raise ValueError(
            f"tokenizer: ids are integers from 0 to {len(pieces) - 1}; received {ids.dtype} from "
            f"{ids.min()} to {ids.max()}."
        )
    return b"".join(map(pieces.__getitem__, ids.tolist()))


def _points(text: str) -> np.ndarray:
    """The code points of a text."""
    return np.frombuffer(text.encode("utf-32-le", "surrogatepass"), np.uint32)
