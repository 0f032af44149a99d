"""Byte-pair encoding (Sennrich et al. 2016) over bytes, trained on the spot by `tokenizers`.

The library is needed to train and to encode; pieces, and so decoding, come from its JSON. Text is
cut into words as GPT-2 cuts it. The end of a document is an id of ours behind the library's, so
that no text can spell it. Imports `tokenizers` when used. Tests: `tests/text/test_bpe.py`.
"""

import json
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from loopless.text.tokenizer import Tokenizer
from loopless.text.tokens import dtype_for

_LONGEST = 1 << 17  # characters in one piece of a text; pieces are encoded side by side


class BPETokenizer(Tokenizer):
    """Learnt pieces of one or more bytes, and `end`.

    Every text comes back as it was, but for lone surrogates (no text has them), which come back
    as "?".
    """

    kind = "bpe"

    def __init__(self, tokenizer: dict[str, Any]) -> None:
        vocabulary = tokenizer["model"]["vocab"]
        if sorted(vocabulary.values()) != list(range(len(vocabulary))):
            raise ValueError("its ids have gaps")
        byte = _bytes_of_letters()
        words = sorted(vocabulary, key=vocabulary.__getitem__)
        self.pieces = [bytes(byte[letter] for letter in word) for word in words] + [b""]
        self._tokenizer = tokenizer
        self._library: Any = None

    @classmethod
    def train(cls, texts: Sequence[str], vocabulary: int) -> "BPETokenizer":
        """Pairs of the most frequent pieces joined until there are `vocabulary` ids."""
        if vocabulary < 257:
            raise ValueError(
                f"tokenizer: a bpe vocabulary holds 256 bytes and the end of a document at least; "
                f"received {vocabulary}. Use 257 or more."
            )
        library = _library()
        model = library.Tokenizer(library.models.BPE())
        model.pre_tokenizer = library.pre_tokenizers.ByteLevel(add_prefix_space=False)
        model.decoder = library.decoders.ByteLevel()
        trainer = library.trainers.BpeTrainer(
            vocab_size=vocabulary - 1,
            initial_alphabet=library.pre_tokenizers.ByteLevel.alphabet(),
            show_progress=False,
        )
        model.train_from_iterator(_cut(texts), trainer)
        return cls(json.loads(model.to_str()))

    def encode(self, text: str) -> np.ndarray:
        if self._library is None:
            self._library = _library().Tokenizer.from_str(json.dumps(self._tokenizer))
        found = self._library.encode_batch_fast(list(_cut([text])))
        dtype = dtype_for(self.vocabulary)
        return np.concatenate([np.array(piece.ids, dtype) for piece in found])

    def settings(self) -> dict[str, Any]:
        return {"tokenizer": self._tokenizer}


def _cut(texts: Sequence[str]) -> Iterator[str]:
    """Each text, in pieces that end with a line where it is very long."""
    for text in texts:
        text = text.encode("utf-8", "replace").decode() if _has_surrogates(text) else text
        start = 0
        while len(text) - start > _LONGEST:
            stop = text.find("\n", start + _LONGEST) + 1 or len(text)
            yield text[start:stop]
            start = stop
        yield text[start:]


def _has_surrogates(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return True
    return False


def _bytes_of_letters() -> dict[str, int]:
    """The byte for which each letter stands in the library's files: itself, if it can be seen."""
    seen = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in seen]
    return {chr(byte): byte for byte in seen} | {
        chr(256 + i): byte for i, byte in enumerate(others)
    }


def _library():
    try:
        import tokenizers
    except ImportError:
        raise ModuleNotFoundError(
            "tokenizer: bpe needs the package `tokenizers`. Install it (pip install tokenizers), "
            "or use tokenizer=char or byte."
        ) from None
    return tokenizers
