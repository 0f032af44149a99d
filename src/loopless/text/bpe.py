"""Byte-pair encoding (Sennrich et al. 2016) over bytes, trained on the spot by `tokenizers`.

That library is needed to train and to encode; decoding only needs its JSON. Text is cut into words
as GPT-2 cuts it. The id of the end of a document comes after the library's ids, so that no text
can contain it.
"""

import json
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from loopless.text.tokenizer import Tokenizer
from loopless.text.tokens import dtype_for

DEFAULT_VOCABULARY = 1024
_LONGEST_PART = 1 << 17  # characters; the library encodes several parts of a text in parallel


class BPETokenizer(Tokenizer):
    """Learned pieces of one or more bytes, and `end`.

    Every text decodes to itself, except for lone surrogates, which come back as "?".
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
            self._encoder = _import_library().Tokenizer.from_str(json.dumps(self._tokenizer))
        parts = self._encoder.encode_batch_fast(list(_cut_into_parts([text])))
        dtype = dtype_for(self.vocabulary)
        return np.concatenate([np.array(part.ids, dtype) for part in parts])

    def settings(self) -> dict[str, Any]:
        return {"tokenizer": self._tokenizer}


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
