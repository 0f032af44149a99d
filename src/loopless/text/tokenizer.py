"""Text to token ids and back: by bytes, by characters, or by learned pieces (BPE).

Each id stands for some bytes of UTF-8, its piece. The last id, `end`, stands for no bytes: it
marks the end of a document, and is the prompt if there is no other. Tokenizers are saved as JSON.
Loop twin: `reference.text.encode_characters`.
"""

import codecs
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from loopless.files import atomic
from loopless.text.tokens import dtype_for

DEFAULT_VOCABULARY = 1024  # ids of a bpe tokenizer
UNKNOWN = "\ufffd"
_FORMAT = "loopless tokenizer 1"
_LARGEST_FILE = 1 << 28  # bytes
_LONGEST_PART = 1 << 17  # characters; the library encodes several parts of a text in parallel


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


class BPETokenizer(Tokenizer):
    """Byte-pair encoding (Sennrich et al. 2016): learned pieces of one or more bytes, and `end`.

    Every text decodes to itself, except for lone surrogates, which come back as "?". The library
    `tokenizers` is needed to train and to encode; decoding only needs its JSON. Text is cut into
    words as GPT-2 cuts it. `end` comes after the library's ids, so that no text can contain it.
    """

    kind = "bpe"

    def __init__(self, tokenizer: dict[str, Any]) -> None:
        vocabulary = tokenizer["model"]["vocab"]
        if sorted(vocabulary.values()) != list(range(len(vocabulary))):
            raise ValueError("its ids have gaps")
        letters = _bytes_by_letter()
        words = sorted(vocabulary, key=vocabulary.__getitem__)
        self.pieces = [bytes(letters[letter] for letter in word) for word in words] + [b""]
        self._tokenizer = tokenizer
        self._encoder: Any = None

    @classmethod
    def train(cls, texts: Sequence[str], vocabulary: int | None = None) -> "BPETokenizer":
        """Join the most frequent pairs of pieces until there are `vocabulary` ids."""
        vocabulary = vocabulary or DEFAULT_VOCABULARY
        if vocabulary < 257:
            raise ValueError(
                f"tokenizer: a bpe vocabulary needs at least 257 ids: 256 bytes and the end of a "
                f"document; received {vocabulary}. Use 257 or more."
            )
        library = _import_library()
        model = library.Tokenizer(library.models.BPE())
        model.pre_tokenizer = library.pre_tokenizers.ByteLevel(add_prefix_space=False)
        model.decoder = library.decoders.ByteLevel()
        trainer = library.trainers.BpeTrainer(
            vocab_size=vocabulary - 1,
            initial_alphabet=library.pre_tokenizers.ByteLevel.alphabet(),
            show_progress=False,
        )
        model.train_from_iterator(_cut_into_parts(texts), trainer)
        return cls(json.loads(model.to_str()))

    def encode(self, text: str) -> np.ndarray:
        if self._encoder is None:
            try:
                self._encoder = _import_library().Tokenizer.from_str(json.dumps(self._tokenizer))
            except Exception as error:  # the library raises nothing more precise
                if isinstance(error, ModuleNotFoundError):
                    raise
                raise ValueError(f"tokenizer: its bpe model is broken ({error}).") from None
        parts = self._encoder.encode_batch_fast(list(_cut_into_parts([text])))
        dtype = dtype_for(self.vocabulary)
        return np.concatenate([np.array(part.ids, dtype) for part in parts])

    def settings(self) -> dict[str, Any]:
        return {"tokenizer": self._tokenizer}


KINDS = {cls.kind: cls for cls in (ByteTokenizer, CharTokenizer, BPETokenizer)}


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
    if kind not in KINDS:
        raise ValueError(f"tokenizer: kind={kind!r} is unknown; choose {', '.join(KINDS)}.")
    return KINDS[kind]


def save(tokenizer: Tokenizer, path) -> None:
    """Write a tokenizer as JSON."""
    content = {"format": _FORMAT, "kind": tokenizer.kind, **tokenizer.settings()}
    atomic.write_file(Path(path), json.dumps(content).encode())


def load(path) -> Tokenizer:
    """Read a tokenizer that `save` wrote."""
    if not Path(path).is_file():
        raise FileNotFoundError(f"tokenizer: there is no file {path}.")
    try:
        settings = json.loads(atomic.read_small(Path(path), _LARGEST_FILE))
        if settings.pop("format") != _FORMAT:
            raise ValueError(f"its format is not {_FORMAT!r}")
        return tokenizer_class(settings.pop("kind"))(**settings)
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError, OSError) as error:
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


def _cut_into_parts(texts: Sequence[str]) -> Iterator[str]:
    """Yield each text; a very long one in parts that end with a line."""
    for text in texts:
        try:
            text.encode()
        except UnicodeEncodeError:  # lone surrogates
            text = text.encode("utf-8", "replace").decode()
        start = 0
        while len(text) - start > _LONGEST_PART:
            stop = text.find("\n", start + _LONGEST_PART) + 1 or len(text)
            yield text[start:stop]
            start = stop
        yield text[start:]


def _bytes_by_letter() -> dict[str, int]:
    """Return which byte each letter of the library's files stands for.

    A visible byte is written as itself, any other as a letter from 256 on.
    """
    visible = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in visible]
    return {chr(byte): byte for byte in visible} | {
        chr(256 + i): byte for i, byte in enumerate(others)
    }


def _import_library():
    try:
        import tokenizers
    except ImportError:
        raise ModuleNotFoundError(
            "tokenizer: bpe needs the package `tokenizers`. Install it (pip install tokenizers), "
            "or use tokenizer=char or byte."
        ) from None
    return tokenizers
