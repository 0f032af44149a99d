"""A corpus ready to train on: a folder with two token files and the tokenizer.

    train.bin, validation.bin    ids of all documents, `end` after each (with a JSON file beside)
    tokenizer.json, manifest.json (checksums)
    dataset.json                 what is in them; written last, so a folder that has it is complete

The tokenizer is trained on the training part alone. `train/lm/data.py` is the caller.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from loopless.files import atomic, checksums, plain
from loopless.text import tokenizer as tokenizers
from loopless.text.corpus import Document, check_validation_share, read_corpus, split
from loopless.text.tokenizer import Tokenizer
from loopless.text.tokens import dtype_for, read_tokens, write_tokens

TRAIN, VALIDATION, TOKENIZER, ABOUT = (
    "train.bin", "validation.bin", "tokenizer.json", "dataset.json",
)  # fmt: skip
FILES = TRAIN, f"{TRAIN}.json", VALIDATION, f"{VALIDATION}.json", TOKENIZER
LARGEST_ABOUT = 1 << 26  # bytes; it lists the files that were skipped


class Dataset(NamedTuple):
    """Token ids to train on and to validate with, and what they mean.

    `tokenizer` is None for token files of other tools that came without a tokenizer of ours.
    `about` describes the corpus (name, SHA-256) and each part (documents, tokens, characters,
    bytes).
    """

    train: np.ndarray
    validation: np.ndarray
    vocabulary: int
    tokenizer: Tokenizer | None
    about: dict[str, Any]


def read_dataset(
    text=None,
    *,
    tokenizer: str | Tokenizer = "char",
    vocabulary: int | None = None,
    validation: float = 0.1,
) -> Dataset:
    """Read a corpus (`text`, or the standard library) as tokens in memory.

    `tokenizer` is an existing one, or the kind of one to train with at most `vocabulary` ids.
    """
    if isinstance(tokenizer, str) and tokenizer not in tokenizers.KINDS:
        raise ValueError(
            f"text: tokenizer={tokenizer!r} is unknown; choose {', '.join(tokenizers.KINDS)}."
        )
    corpus = read_corpus(text)
    training, held_out, split_by = split(corpus.documents, validation)
    if isinstance(tokenizer, str):
        texts = [document.text for document in training]
        tokenizer = tokenizers.tokenizer_class(tokenizer).train(texts, vocabulary)
    about = {"corpus": corpus.about(), "tokenizer": tokenizer.kind, "split_by": split_by}
    train_ids, about["train"] = _encode(tokenizer, training)
    validation_ids, about["validation"] = _encode(tokenizer, held_out)
    return Dataset(train_ids, validation_ids, tokenizer.vocabulary, tokenizer, about)


def _encode(tokenizer: Tokenizer, documents: list[Document]) -> tuple[np.ndarray, dict[str, int]]:
    """Return the ids of documents, `end` after each, and how much text that is."""
    dtype = dtype_for(tokenizer.vocabulary)
    end, parts = np.array([tokenizer.end], dtype), [np.zeros(0, dtype)]
    for document in documents:
        parts += [tokenizer.encode(document.text), end]
    ids = np.concatenate(parts)
    return ids, {
        "documents": len(documents),
        "tokens": len(ids),
        "characters": sum(len(document.text) for document in documents),
        "bytes": sum(len(document.text.encode()) for document in documents),
    }


def save_dataset(dataset: Dataset, folder) -> None:
    """Write a dataset, which must have a tokenizer of ours, for `open_dataset` to read."""
    assert dataset.tokenizer is not None
    folder = Path(folder)
    plain.make_folder(folder)
    (folder / ABOUT).unlink(missing_ok=True)
    write_tokens(folder / TRAIN, dataset.train, dataset.vocabulary)
    write_tokens(folder / VALIDATION, dataset.validation, dataset.vocabulary)
    tokenizers.save(dataset.tokenizer, folder / TOKENIZER)
    checksums.write(folder, FILES)
    atomic.write_file(folder / ABOUT, json.dumps(dataset.about, indent=1).encode())


def open_dataset(folder) -> Dataset:
    """Open what `save_dataset` wrote; ValueError if a file is not what its checksum says."""
    folder = Path(folder)
    if not (folder / ABOUT).is_file():
        raise FileNotFoundError(
            f"text: {folder} does not hold a complete dataset: there is no {ABOUT}."
        )
    check(folder, FILES)
    about = _read_about(folder / ABOUT)
    tokenizer = tokenizers.load(folder / TOKENIZER)
    vocabulary = tokenizer.vocabulary
    train_ids = read_tokens(folder / TRAIN, vocabulary=vocabulary)
    validation_ids = read_tokens(folder / VALIDATION, vocabulary=vocabulary)
    return Dataset(train_ids, validation_ids, vocabulary, tokenizer, about)


def check(folder: Path, names: Sequence[str]) -> None:
    """Raise ValueError if a file of a dataset has changed since it was written.

    Datasets of older versions have no checksums, and are taken as they are.
    """
    if changed := checksums.changed(folder, names, checksums.read(folder)):
        raise ValueError(
            f"text: {', '.join(changed)} in {folder} differ from their checksums in "
            f"{checksums.NAME}. Restore them from a copy."
        )


def _read_about(path: Path) -> dict[str, Any]:
    try:
        about = json.loads(atomic.read_small(path, LARGEST_ABOUT, follow=False))
        if not isinstance(about["corpus"]["name"], str):
            raise ValueError("its corpus has no name")
    except (ValueError, LookupError, TypeError, RecursionError) as error:
        raise ValueError(f"text: {path} does not describe a dataset ({error!r}).") from None
    return about


def open_token_files(
    train,
    validation=None,
    *,
    vocabulary: int,
    dtype: str | None = None,
    share: float = 0.1,
    tokenizer_file=None,
) -> Dataset:
    """Open flat token files, of other tools too, as a dataset.

    Without a validation file, the last `share` of the training file is held out.
    """
    train_ids = read_tokens(train, vocabulary=vocabulary, dtype=dtype)
    if validation is not None:
        validation_ids = read_tokens(validation, vocabulary=vocabulary, dtype=dtype)
    else:
        check_validation_share(share)
        cut = len(train_ids) - int(share * len(train_ids))
        train_ids, validation_ids = train_ids[:cut], train_ids[cut:]
    tokenizer = None if tokenizer_file is None else tokenizers.load(tokenizer_file)
    if tokenizer is not None and tokenizer.vocabulary != vocabulary:
        raise ValueError(
            f"text: {tokenizer_file} has {tokenizer.vocabulary} ids, but the vocabulary of {train} "
            f"has {vocabulary}. Give the tokenizer that the file was made with."
        )
    about = {
        "corpus": {"name": str(train)},
        "tokenizer": tokenizer and tokenizer.kind,
        "train": {"tokens": len(train_ids)},
        "validation": {"tokens": len(validation_ids)},
    }
    return Dataset(train_ids, validation_ids, vocabulary, tokenizer, about)
