"""The tokens of a run on text, prepared once and kept in its folder, and the trigram baselines.

    run/data/    train.bin, validation.bin, tokenizer.json, dataset.json      see `text.dataset`
                 baselines.json, manifest.json (checksums)

Token files that the user names stay where they are; the run keeps their SHA-256, so that a resumed
run refuses a file that has changed.
"""

import hashlib
import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from loopless.files import atomic, checksums, plain
from loopless.refusals import printable
from loopless.runs.failures import BadConfig, BadRun, writing
from loopless.text import dataset as datasets
from loopless.text import tokenizer as tokenizers
from loopless.text.dataset import Dataset
from loopless.text.ngram import NgramModel
from loopless.text.tokenizer import CharTokenizer, Tokenizer
from loopless.text.tokens import description_file, read_description
from loopless.text.windows import Windows
from loopless.train.lm.config import VOCABULARY, TextOptions

FOLDER, TOKEN_FILES, BASELINES = "data", "tokens.json", "baselines.json"
MAX_COUNTED = 20_000_000  # tokens or characters that a trigram model counts
END = "\0"  # the end of a document among characters: no text of ours contains it


@contextmanager
def as_bad_config() -> Iterator[None]:
    """Turn errors about text, tokens or sizes into BadConfig."""
    try:
        yield
    except (ValueError, OSError, ModuleNotFoundError) as error:
        raise BadConfig([str(error)]) from error


def read_data(config: TextOptions, tokenizer: Tokenizer | None = None) -> Dataset:
    """Read the data that `config` names; text is tokenized by `tokenizer` if there is one."""
    with as_bad_config():
        if config.tokens is not None:
            return _open_token_files(config, config.tokens)
        kind = config.tokenizer or "bpe"
        return datasets.read_dataset(
            config.text,
            tokenizer=tokenizer or kind,
            vocabulary=config.vocabulary or (VOCABULARY if kind == "bpe" else None),
            validation=config.validation_share,
        )


def _open_token_files(config: TextOptions, path: Path) -> Dataset:
    description = description_file(path)
    if not path.exists():
        raise ValueError(f"tokens: there is no file {path}.")
    if config.vocabulary is None and not description.is_file():
        raise ValueError(
            f"tokens: {path} does not say how many tokens there are. Pass --vocabulary N, the "
            f"number of the tokenizer that it was made with."
        )
    dataset = datasets.open_token_files(
        path,
        config.validation_tokens,
        vocabulary=config.vocabulary or read_description(description).get("vocabulary", 0),
        dtype=config.token_type,
        share=config.validation_share,
        tokenizer_file=config.tokenizer_file,
    )
    parts = dataset.train, dataset.validation
    digests = [hashlib.sha256(np.ascontiguousarray(ids).data).hexdigest() for ids in parts]
    return dataset._replace(about=dataset.about | {"sha256": digests})


def save_data(dataset: Dataset, run_folder: Path) -> None:
    """Write a dataset into a run's folder; of the user's token files, only a description."""
    folder = run_folder / FOLDER
    with writing(f"tokens into {folder}"):
        if "sha256" not in dataset.about:
            datasets.save_dataset(dataset, folder)
            return
        plain.make_folder(folder)
        if dataset.tokenizer is not None:
            tokenizers.save(dataset.tokenizer, folder / datasets.TOKENIZER)
            checksums.write(folder, [datasets.TOKENIZER])
        atomic.write_file(folder / TOKEN_FILES, json.dumps(dataset.about, indent=1).encode())


def reopen_data(config: TextOptions, run_folder: Path) -> Dataset:
    """Open what `save_data` wrote; prepare it again if the process died before that."""
    folder = run_folder / FOLDER
    if config.tokens is None and (folder / datasets.ABOUT).is_file():
        with _as_bad_run(run_folder):
            _note_if_unchecked(folder)
            return datasets.open_dataset(folder)
    dataset = read_data(config)
    if config.tokens is not None and (folder / TOKEN_FILES).is_file():
        before = _read_digests(folder / TOKEN_FILES)
        now = dataset.about["sha256"]
        if before != now:
            raise BadRun(
                f"run: {config.tokens} is not the file that {run_folder} was trained on: its "
                f"SHA-256 is {now[0][:12]}…, and was {before[0][:12]}…. Restore it, or start "
                f"another run."
            )
    save_data(dataset, run_folder)
    return dataset


def load_tokenizer(run_folder: Path) -> Tokenizer | None:
    """Load the tokenizer of a run; None if it was trained on tokens without one."""
    folder = run_folder / FOLDER
    if not (folder / datasets.TOKENIZER).is_file():
        return None
    with _as_bad_run(run_folder):
        _note_if_unchecked(folder)
        datasets.check(folder, [datasets.TOKENIZER])
        return tokenizers.load(folder / datasets.TOKENIZER)


@contextmanager
def _as_bad_run(run_folder: Path) -> Iterator[None]:
    """Turn errors about the files of a run into BadRun."""
    try:
        yield
    except (ValueError, OSError) as error:
        raise BadRun(f"run: the data of {run_folder} are broken: {error}") from error


def _note_if_unchecked(folder: Path) -> None:
    """Say that the files in `folder` have no checksums, if an older version wrote them."""
    if checksums.read(folder) is None:
        print(
            printable(
                f"{folder} was written by an older loopless, without checksums: its files are "
                f"taken as they are."
            ),
            file=sys.stderr,
        )


def _read_digests(path: Path) -> list[str]:
    """Return the SHA-256 of the user's token files, as a run has recorded them."""
    with _as_bad_run(path.parent.parent):
        try:
            digests = json.loads(atomic.read_small(path, 1 << 20, follow=False))["sha256"]
            if not all(isinstance(text, str) for text in digests) or len(digests) != 2:
                raise ValueError("it must have two checksums")
        except (LookupError, TypeError, RecursionError, ValueError) as error:
            raise ValueError(f"{path} is broken ({error!r}).") from None
    return digests


@dataclass(frozen=True)
class TextData:
    """Windows to train on and to validate with."""

    dataset: Dataset
    windows: Windows
    starts: np.ndarray  # [n], where the validation windows start
    validation: np.ndarray  # [n, block + 1]

    @classmethod
    def of(cls, config: TextOptions, dataset: Dataset) -> "TextData":
        """Cut a dataset into windows."""
        with as_bad_config():
            windows = Windows(dataset.train, config.block, seed=config.seed, order=config.order)
        try:
            held_out = Windows(dataset.validation, config.block)
        except ValueError as error:
            raise BadConfig([f"of the validation part: {error}"]) from error
        limit = config.eval_windows
        return cls(dataset, windows, held_out.fixed_starts(limit), held_out.fixed(limit))

    @cached_property
    def characters(self) -> int:
        """Characters in the targets of the validation windows; 0 without a tokenizer."""
        if self.dataset.tokenizer is None:
            return 0
        return int(characters_per_token(self.dataset.tokenizer)[self.validation[:, 1:]].sum())

    def loss_metrics(self, name: str, nats_per_token: Any) -> dict[str, Any]:
        """Return a loss on the validation windows per token and, if known, per character."""
        row = {f"{name}_loss": nats_per_token}
        if self.characters:
            tokens_per_character = self.validation[:, 1:].size / self.characters
            row[f"{name}_per_character"] = nats_per_token * tokens_per_character
        return row

    def baselines(self, run_folder: Path | None = None) -> dict[str, float]:
        """Return the losses of trigram models; with a folder, they are kept in a file of it."""
        if run_folder is None:
            return self._count_baselines()
        folder = run_folder / FOLDER
        windows = [self.windows.block, len(self.validation)]
        if values := _read_baselines(folder, windows):
            return values
        values = self._count_baselines()
        with writing(str(folder / BASELINES)):
            content = {"windows": windows, "values": values}
            atomic.write_file(folder / BASELINES, json.dumps(content, indent=1).encode())
            names = [BASELINES]
            if checksums.read(folder) is None:  # an older version wrote the other files
                names += [name for name in datasets.FILES if (folder / name).is_file()]
            checksums.write(folder, names)
        return values

    def _count_baselines(self) -> dict[str, float]:
        """Return the losses of trigram models of the training part on the validation windows.

        token_trigram counts the same tokens. character_trigram counts the characters that they
        stand for, and knows the two before each character, also those before a window.
        """
        data = self.dataset
        model = NgramModel(np.asarray(data.train[:MAX_COUNTED]), data.vocabulary)
        row = self.loss_metrics("token_trigram", model.cross_entropy(self.validation))
        if data.tokenizer is not None:
            row["character_trigram_per_character"] = self._character_trigram(data.tokenizer)
        return row

    def _character_trigram(self, tokenizer: Tokenizer) -> float:
        training = _text(tokenizer, self.dataset.train)[:MAX_COUNTED]
        characters = CharTokenizer.train([training])
        model = NgramModel(characters.encode(training), characters.vocabulary)
        held_out = self.dataset.validation
        logs = model.log_probabilities(characters.encode(_text(tokenizer, held_out)))
        # Running sums over characters, read where the targets of each window begin and end.
        sums = np.concatenate([[0.0, 0.0], np.cumsum(logs)])
        lengths = characters_per_token(tokenizer, END)[held_out]
        positions = np.concatenate([[0], np.cumsum(lengths)])
        first, last = self.starts + 1, self.starts + self.windows.block + 1
        total = sums[positions[last]] - sums[positions[first]]
        return float(-total.sum() / self.characters)


def _read_baselines(folder: Path, windows: list[int]) -> dict[str, float] | None:
    """Return the losses that were saved for these windows; None if they must be counted again."""
    try:
        if not checksums.is_unchanged(folder, BASELINES, checksums.read(folder) or {}):
            return None
        content = json.loads(atomic.read_small(folder / BASELINES, 1 << 16, follow=False))
        values = {str(name): float(value) for name, value in content["values"].items()}
        return values if content["windows"] == windows else None
    except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError):
        return None


def characters_per_token(tokenizer: Tokenizer, end: str = "") -> np.ndarray:
    """Return how many characters begin in each token [V]; the end of a document counts as `end`."""
    pieces = [*tokenizer.pieces[:-1], end.encode()]
    # A byte 10xxxxxx continues a character; every other byte begins one.
    return np.array([sum(byte & 0xC0 != 0x80 for byte in piece) for piece in pieces])


def _text(tokenizer: Tokenizer, ids: np.ndarray) -> str:
    pieces = [*tokenizer.pieces[:-1], END.encode()]
    return tokenizers.join_pieces(pieces, ids).decode("utf-8", "replace")
