"""Text to token ids and back: by bytes, by characters, or by learned pieces (`bpe.py`).

Each id stands for some bytes of UTF-8, its piece. The last id, `end`, stands for no bytes: it
marks the end of a document, and is the prompt if there is no other. Tokenizers are saved as JSON.
Loop twin: `reference.text.encode_characters`.
"""

import codecs
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from loopless.files import atomic
from loopless.text.tokens import dtype_for

KINDS = ("byte", "char", "bpe")
UNKNOWN = "\ufffd"
_FORMAT = "loopless tokenizer 1"


class Tokenizer:
    """What the three kinds share. Ids are uint16, or uint32 if there are too many for that."""

    kind: str
    pieces: Sequence[bytes]

    @classmethod
    def train(cls, texts: Sequence[str], vocabulary: int | None = None) -> "Tokenizer":
        """Make a tokenizer for these texts, with at most `vocabulary` ids."""
        raise NotImplementedError

    @property
    def vocabulary(self) -> int:
        """Return the number of ids, `end` included."""
        return len(self.pieces)

    @property
    def end(self) -> int:
        """Return the id that ends a document."""
        return len(self.pieces) - 1

    def encode(self, text: str) -> np.ndarray:
        """Return the ids of a text, without `end`."""
        raise NotImplementedError

    def settings(self) -> dict[str, Any]:
        """Return the arguments of the constructor, ready for JSON."""
        raise NotImplementedError

    def decode(self, ids) -> str:
        """Return the text of some ids; bytes that are not UTF-8 become U+FFFD.

        A model can write any sequence of bytes, so such bytes do occur.
        """
        data = join_pieces(self.pieces, ids)
        try:
            return data.decode("utf-8", "surrogatepass")
        except UnicodeDecodeError:
            return data.decode("utf-8", "replace")


class ByteTokenizer(Tokenizer):
    """One id per byte of UTF-8: 256 of them and `end`. Every text decodes to itself."""

    kind = "byte"

    def __init__(self) -> None:
        self.pieces = [bytes([i]) for i in range(256)] + [b""]

    @classmethod
    def train(cls, texts: Sequence[str], vocabulary: int | None = None) -> "ByteTokenizer":
        return cls()

    def encode(self, text: str) -> np.ndarray:
        return np.frombuffer(text.encode("utf-8", "surrogatepass"), np.uint8).astype(np.uint16)

    def settings(self) -> dict[str, Any]:
        return {}


class CharTokenizer(Tokenizer):
    """One id per listed character. Id 0 is U+FFFD and stands for every other character.

    A text of listed characters decodes to itself; other characters come back as U+FFFD.
    """

    kind = "char"

    def __init__(self, characters: str) -> None:
        points = _code_points(characters)
        if len(set(characters)) != len(characters) or UNKNOWN in characters:
            raise ValueError(
                f"tokenizer: characters must be listed once each, without U+FFFD; received "
                f"{characters[:40]!r}."
            )
        self.characters = characters
        listed = [character.encode("utf-8", "surrogatepass") for character in characters]
        self.pieces = [UNKNOWN.encode(), *listed, b""]
        # One entry for each code point up to the last listed one, and one for all beyond it.
        self._ids = np.zeros(int(points.max(initial=0)) + 2, dtype_for(self.vocabulary))
        self._ids[points] = np.arange(1, len(points) + 1)

    @classmethod
    def train(cls, texts: Sequence[str], vocabulary: int | None = None) -> "CharTokenizer":
        """List all characters of some texts, or the most frequent that fit into `vocabulary`."""
        counts = np.zeros(0x110000, np.int64)
        for text in texts:
            text_counts = np.bincount(_code_points(text))
            counts[: len(text_counts)] += text_counts
        counts[ord(UNKNOWN)] = 0
        by_count = np.argsort(-counts, kind="stable")[: np.count_nonzero(counts)]
        if vocabulary is not None:
            if vocabulary < 3:
                raise ValueError(
                    f"tokenizer: a char vocabulary needs at least 3 ids: U+FFFD, one character and "
                    f"the end of a document; received {vocabulary}."
                )
            by_count = by_count[: vocabulary - 2]
        return cls("".join(map(chr, np.sort(by_count).tolist())))

    def encode(self, text: str) -> np.ndarray:
        return self._ids[np.minimum(_code_points(text), len(self._ids) - 1)]

    def settings(self) -> dict[str, Any]:
        return {"characters": self.characters}


class Decoder:
    """Decodes ids that arrive in parts: half a character waits for its other half."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._pieces = tokenizer.pieces
        self._utf8 = codecs.getincrementaldecoder("utf-8")("replace")

    def feed(self, ids, last: bool = False) -> str:
        """Return the text that these ids complete; with `last`, also what was left over."""
        return self._utf8.decode(join_pieces(self._pieces, ids), last)


def tokenizer_class(kind: str) -> type[Tokenizer]:
    """Return the class of a kind of tokenizer."""
    if kind == "byte":
        return ByteTokenizer
    if kind == "char":
        return CharTokenizer
    if kind == "bpe":
        from loopless.text.bpe import BPETokenizer

        return BPETokenizer
    raise ValueError(f"tokenizer: kind={kind!r} is unknown; choose {', '.join(KINDS)}.")


def save(tokenizer: Tokenizer, path) -> None:
    """Write a tokenizer as JSON."""
    content = {"format": _FORMAT, "kind": tokenizer.kind, **tokenizer.settings()}
    atomic.write_file(Path(path), json.dumps(content).encode())


def load(path) -> Tokenizer:
    """Read a tokenizer that `save` wrote."""
    if not Path(path).is_file():
        raise FileNotFoundError(f"tokenizer: there is no file {path}.")
    try:
        settings = json.loads(Path(path).read_bytes())
        if settings.pop("format") != _FORMAT:
            raise ValueError(f"its format is not {_FORMAT!r}")
        return tokenizer_class(settings.pop("kind"))(**settings)
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(
            f"tokenizer: {path} is not a tokenizer of ours ({error!r}). Use one that was saved "
            f"with a run or a dataset."
        ) from error


def join_pieces(pieces: Sequence[bytes], ids) -> bytes:
    """Return the bytes that some ids stand for."""
    ids = np.asarray(ids).reshape(-1)
    if ids.size and not (ids.dtype.kind in "iu" and ids.min() >= 0 and ids.max() < len(pieces)):
        raise ValueError(
            f"tokenizer: ids must be integers from 0 to {len(pieces) - 1}; received {ids.dtype} "
            f"from {ids.min()} to {ids.max()}."
        )
    return b"".join(map(pieces.__getitem__, ids.tolist()))


def _code_points(text: str) -> np.ndarray:
    return np.frombuffer(text.encode("utf-32-le", "surrogatepass"), np.uint32)
