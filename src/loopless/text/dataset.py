"""A corpus made ready to train on: a folder with two files of tokens and the tokenizer.

    train.bin, validation.bin    ids of all documents, `end` behind each (and a JSON file beside)
    tokenizer.json
    dataset.json                 what is in them; written last, so a folder with it is whole

The tokenizer sees the training part alone. Imports `corpus`, `tokenizer` and `tokens`.
Tests: `tests/text/test_dataset.py`.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from loopless.files import atomic
from loopless.text import tokenizer as tokenizers
from loopless.text.corpus import Document, read_corpus, split
from loopless.text.tokenizer import Tokenizer
from loopless.text.tokens import dtype_for, read_tokens, write_tokens

TRAIN, VALIDATION, TOKENIZER, ABOUT = (
    "train.bin", "validation.bin", "tokenizer.json", "dataset.json",
)  # fmt: skip


class Dataset(NamedTuple):
    """Ids to train on and to validate with, and what they mean.

    `tokenizer` is None for files of other tools that came without one of ours. `about` has the
    corpus, its SHA-256, and each part's documents, tokens, characters and bytes.
    """

    train: np.ndarray
    validation: np.ndarray
    vocabulary: int
    tokenizer: Tokenizer | None
    about: dict[str, Any]


def prepare(
    folder,
    text=None,
    *,
    tokenizer: str | Tokenizer = "char",
    vocabulary: int | None = None,
    validation: float = 0.1,
) -> Dataset:
    """Read a corpus (`text`, or the standard library), and write it as tokens into `folder`."""
    made = read_dataset(text, tokenizer=tokenizer, vocabulary=vocabulary, validation=validation)
    save_dataset(made, folder)
    return open_dataset(folder)


def read_dataset(
    text=None,
    *,
    tokenizer: str | Tokenizer = "char",
    vocabulary: int | None = None,
    validation: float = 0.1,
) -> Dataset:
    """A corpus (`text`, or the standard library) as tokens in memory.

    `tokenizer` is a kind, trained on the spot to have `vocabulary` ids at most, or one that is
    there already.
    """
    if isinstance(tokenizer, str) and tokenizer not in tokenizers.KINDS:
        raise ValueError(
            f"text: tokenizer={tokenizer!r} is unknown; choose {', '.join(tokenizers.KINDS)}."
        )
    corpus = read_corpus(text)
    *parts, by = split(corpus.documents, validation)
    if isinstance(tokenizer, str):
        texts = [document.text for document in parts[0]]
        tokenizer = tokenizers.train(tokenizer, texts, vocabulary)
    about: dict[str, Any] = {"corpus": corpus.about(), "tokenizer": tokenizer.kind, "split_by": by}
    ids = []
    for name, documents in zip(("train", "validation"), parts, strict=True):
        none = np.zeros(0, dtype_for(tokenizer.vocabulary))
        ids.append(np.concatenate([none, *_encoded(tokenizer, documents)]))
        about[name] = {
            "documents": len(documents),
            "tokens": len(ids[-1]),
            "characters": sum(len(document.text) for document in documents),
            "bytes": sum(len(document.text.encode()) for document in documents),
        }
    train, held = ids
    return Dataset(train, held, tokenizer.vocabulary, tokenizer, about)


def save_dataset(dataset: Dataset, folder) -> None:
    """Write what `open_dataset` reads; the dataset has a tokenizer of ours."""
    assert dataset.tokenizer is not None
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / ABOUT).unlink(missing_ok=True)
    for file, ids in ((TRAIN, dataset.train), (VALIDATION, dataset.validation)):
        write_tokens(folder / file, [ids], dataset.vocabulary)
    tokenizers.save(dataset.tokenizer, folder / TOKENIZER)
    atomic.write_file(folder / ABOUT, json.dumps(dataset.about, indent=1).encode())


def open_dataset(folder) -> Dataset:
    """What `prepare` wrote."""
    folder = Path(folder)
    if not (folder / ABOUT).is_file():
        raise FileNotFoundError(f"text: {folder} holds no whole dataset: there is no {ABOUT}.")
    about = json.loads((folder / ABOUT).read_bytes())
    made = tokenizers.load(folder / TOKENIZER)
    train, held = (
        read_tokens(folder / file, vocabulary=made.vocabulary) for file in (TRAIN, VALIDATION)
    )
    return Dataset(train, held, made.vocabulary, made, about)


def flat_dataset(
    train,
    validation=None,
    *,
    vocabulary: int,
    dtype: str | None = None,
    share: float = 0.1,
    tokenizer=None,
) -> Dataset:
    """Flat token files of other tools, as they are; `tokenizer` is the path of one of ours.

    Without a validation file, the last `share` of the training file is held out.
    """
    ids = read_tokens(train, vocabulary=vocabulary, dtype=dtype)
    if validation is not None:
        held = read_tokens(validation, vocabulary=vocabulary, dtype=dtype)
    elif not 0 < share < 1:
        raise ValueError(f"text: the validation share is between 0 and 1; received {share}.")
    else:
        at = len(ids) - int(share * len(ids))
        ids, held = ids[:at], ids[at:]
    made = None if tokenizer is None else tokenizers.load(tokenizer)
    if made is not None and made.vocabulary != vocabulary:
        raise ValueError(
            f"text: {tokenizer} has {made.vocabulary} ids, and the vocabulary is said to have "
            f"{vocabulary}. Give the tokenizer that {train} was made with."
        )
    parts = {"train": {"tokens": len(ids)}, "validation": {"tokens": len(held)}}
    about = {"corpus": {"name": str(train)}, "tokenizer": made and made.kind, **parts}
    return Dataset(ids, held, vocabulary, made, about)


def _encoded(made: Tokenizer, documents: list[Document]) -> Iterator[np.ndarray]:
    end = np.array([made.end], dtype_for(made.vocabulary))
    for document in documents:
        yield made.encode(document.text)
        yield end
