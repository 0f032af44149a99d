"""The tokens of a run on text: prepared once, kept in its folder, with models to compare with.

    run/data/    train.bin, validation.bin, tokenizer.json, dataset.json      see `text.dataset`
                 baselines.json

Flat files of tokens stay where they are; their SHA-256 is kept, so that a resumed run is refused
another file. Imports `text`. Tests: `tests/train/test_lm_data.py`.
"""

import hashlib
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from loopless.files import atomic
from loopless.runs.failures import BadConfig, BadRun, writing
from loopless.text import dataset as datasets
from loopless.text import tokenizer as tokenizers
from loopless.text.dataset import Dataset
from loopless.text.ngram import NgramModel
from loopless.text.tokenizer import CharTokenizer, Tokenizer
from loopless.text.windows import Windows
from loopless.train.lm.text_config import VOCABULARY, TextConfig

FOLDER, FLAT, BASELINES = "data", "tokens.json", "baselines.json"
MOST_COUNTED = 20_000_000  # tokens or characters that a trigram model counts
END = "\0"  # of a document, among characters: no text of ours holds it


@contextmanager
def refusals() -> Iterator[None]:
    """What text, tokens or sizes are refused for, as a config's problem."""
    try:
        yield
    except (ValueError, OSError, ModuleNotFoundError) as error:
        raise BadConfig([str(error)]) from error


def read(config: TextConfig, tokenizer: Tokenizer | None = None) -> Dataset:
    """The data that a config asks for; with `tokenizer`, text is cut by that one."""
    with refusals():
        if config.tokens is not None:
            return _flat(config)
        kind = config.tokenizer or "bpe"
        most = config.vocabulary or (VOCABULARY if kind == "bpe" else None)
        return datasets.read_dataset(
            config.text,
            tokenizer=tokenizer or kind,
            vocabulary=most,
            validation=config.validation_share,
        )


def _flat(config: TextConfig) -> Dataset:
    beside = Path(f"{config.tokens}.json")
    if config.vocabulary is None and not beside.is_file():
        raise ValueError(
            f"tokens: {config.tokens} does not say how many tokens there are. Pass --vocabulary N, "
            f"as of the tokenizer that it was made with."
        )
    vocabulary = config.vocabulary or json.loads(beside.read_bytes())["vocabulary"]
    found = datasets.open_token_files(
        config.tokens,
        config.validation_tokens,
        vocabulary=vocabulary,
        dtype=config.token_type,
        share=config.validation_share,
        tokenizer_file=config.tokenizer_file,
    )
    digests = [_sha256(x) for x in (found.train, found.validation)]
    return found._replace(about=found.about | {"sha256": digests})


def _sha256(ids: np.ndarray) -> str:
    return hashlib.sha256(np.ascontiguousarray(ids).data).hexdigest()


def keep(dataset: Dataset, folder: Path) -> None:
    """Put a dataset into the folder of a run."""
    folder = folder / FOLDER
    with writing(f"tokens into {folder}"):
        if "sha256" not in dataset.about:
            datasets.save_dataset(dataset, folder)
            return
        folder.mkdir(exist_ok=True)
        if dataset.tokenizer is not None:
            tokenizers.save(dataset.tokenizer, folder / datasets.TOKENIZER)
        atomic.write_file(folder / FLAT, json.dumps(dataset.about, indent=1).encode())


def reopen(config: TextConfig, folder: Path) -> Dataset:
    """What `keep` put there; prepared again if the process died before."""
    if config.tokens is None and (folder / FOLDER / datasets.ABOUT).is_file():
        try:
            return datasets.open_dataset(folder / FOLDER)
        except (ValueError, OSError) as error:
            raise BadRun(f"run: the tokens of {folder} are broken: {error}") from error
    found = read(config)
    if config.tokens is not None and (folder / FOLDER / FLAT).is_file():
        before = json.loads((folder / FOLDER / FLAT).read_bytes())
        if before["sha256"] != found.about["sha256"]:
            raise BadRun(
                f"run: {config.tokens} is not the file that {folder} was trained on: its SHA-256 "
                f"is {found.about['sha256'][0][:12]}…, and was {before['sha256'][0][:12]}…. "
                f"Restore it, or start a run of its own."
            )
    keep(found, folder)
    return found


def tokenizer_of(folder: Path) -> Tokenizer | None:
    """The tokenizer of a run; None if it was trained on tokens without one."""
    path = folder / FOLDER / datasets.TOKENIZER
    return tokenizers.load(path) if path.is_file() else None


@dataclass(frozen=True)
class Material:
    """Windows to train on and to validate with."""

    dataset: Dataset
    windows: Windows
    starts: np.ndarray  # [n], where the validation windows begin
    validation: np.ndarray  # [n, block + 1]

    @classmethod
    def of(cls, config: TextConfig, dataset: Dataset) -> "Material":
        with refusals():
            windows = Windows(dataset.train, config.block, seed=config.seed, order=config.order)
        try:
            held = Windows(dataset.validation, config.block)
        except ValueError as error:
            raise BadConfig([f"of the validation part: {error}"]) from error
        most = config.eval_windows
        return cls(dataset, windows, held.fixed_starts(most), held.fixed(most))

    @cached_property
    def characters(self) -> int:
        """Characters in the targets of the validation windows; 0 without a tokenizer."""
        made = self.dataset.tokenizer
        return 0 if made is None else int(lengths(made)[self.validation[:, 1:]].sum())

    def per_character(self, nats_per_token: Any) -> Any:
        """The same loss over the same text, by its characters."""
        return nats_per_token * (self.validation[:, 1:].size / self.characters)

    def losses(self, name: str, nats_per_token: Any) -> dict[str, Any]:
        """A loss on the validation windows, per token and, where that is known, per character."""
        row = {f"{name}_loss": nats_per_token}
        if self.characters:
            row[f"{name}_per_character"] = self.per_character(nats_per_token)
        return row

    def baselines(self) -> dict[str, float]:
        """Trigram models of the training part on the validation windows: by tokens, by characters.

        token_trigram: counts of the same tokens. character_trigram: of the characters behind them,
        which knows the two characters before each, also those before a window.
        """
        data = self.dataset
        counted = NgramModel(np.asarray(data.train[:MOST_COUNTED]), data.vocabulary)
        row = self.losses("token_trigram", counted.cross_entropy(self.validation))
        if data.tokenizer is not None:
            row["character_trigram_per_character"] = self._by_characters(data.tokenizer)
        return row

    def _by_characters(self, made: Tokenizer) -> float:
        training = _text(made, self.dataset.train)[:MOST_COUNTED]
        letters = CharTokenizer.train([training])
        counted = NgramModel(letters.encode(training), letters.vocabulary)
        held = self.dataset.validation
        logs = counted.log_probabilities(letters.encode(_text(made, held)))
        # Sum over the characters of each window's targets; where a token begins is a sum, too.
        sums = np.concatenate([[0.0, 0.0], np.cumsum(logs)])
        places = np.concatenate([[0], np.cumsum(lengths(made, END)[held])])
        first, last = self.starts + 1, self.starts + self.windows.block + 1
        total = sums[places[last]] - sums[places[first]]
        return float(-total.sum() / self.characters)

    def kept_baselines(self, folder: Path | None) -> dict[str, float]:
        """The same, computed once for a folder."""
        file = None if folder is None else folder / FOLDER / BASELINES
        about = [self.windows.block, len(self.validation)]
        if file is not None and file.is_file():
            found = json.loads(file.read_bytes())
            if found["windows"] == about:
                return found["values"]
        values = self.baselines()
        if file is not None:
            with writing(str(file)):
                content = {"windows": about, "values": values}
                atomic.write_file(file, json.dumps(content, indent=1).encode())
        return values


def lengths(tokenizer: Tokenizer, end: str = "") -> np.ndarray:
    """How many characters begin in each token [V]."""
    pieces = [*tokenizer.pieces[:-1], end.encode()]
    # All bytes but those that go on with a character.
    return np.array([sum(byte & 0xC0 != 0x80 for byte in piece) for piece in pieces])


def _text(tokenizer: Tokenizer, ids: np.ndarray) -> str:
    pieces = [*tokenizer.pieces[:-1], END.encode()]
    return tokenizers.join_pieces(pieces, ids).decode("utf-8", "replace")
