"""The tokens of a run: kept in its folder, counted by trigrams; files of other tools."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from lm_cases import lm, write_text

from loopless.reference.text import ngram_log_probability
from loopless.runs.failures import BadConfig, BadRun
from loopless.text.tokenizer import ByteTokenizer, save
from loopless.train.lm.config import LM
from loopless.train.lm.data import (
    TextData,
    load_tokenizer,
    read_data,
    reopen_data,
    save_data,
)

FLAT = LM(block=4, eval_windows=5, vocabulary=9)


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    return write_text(tmp_path_factory.mktemp("text"), lines=12)


@pytest.mark.parametrize("kind", ["byte", "char", "bpe"])
def test_baselines_are_what_loops_count(text, kind):
    config = lm(text, tokenizer=kind, eval_windows=2, block=5, validation_share=0.3)
    material = TextData.of(config, read_data(config))
    found = material.baselines()
    data = material.dataset
    training = data.train.tolist()
    logs = [
        ngram_log_probability(training, data.vocabulary, window[: at + 1], window[at + 1])
        for window in material.validation.tolist()
        for at in range(5)
    ]
    assert found["token_trigram_loss"] == pytest.approx(-np.mean(logs))
    pieces = [*data.tokenizer.pieces[:-1], b"\0"]

    def letters(ids) -> str:
        return b"".join(pieces[i] for i in ids).decode()

    def begun(ids) -> int:
        """Characters whose first byte is there; the others of a character are 10xxxxxx."""
        return sum(not 0b10000000 <= byte <= 0b10111111 for i in ids for byte in pieces[i])

    text_of_training = letters(training)
    alphabet = sorted(set(text_of_training))
    ids = {letter: i + 1 for i, letter in enumerate(alphabet)}
    seen = [ids[letter] for letter in text_of_training]
    held = data.validation.tolist()
    before = [ids.get(letter, 0) for letter in letters(held)]
    logs, characters = [], 0
    for start in material.starts:
        first, last = (begun(held[:at]) for at in (start + 1, start + 6))
        logs += [
            ngram_log_probability(seen, len(alphabet) + 2, before[max(0, i - 2) : i], before[i])
            for i in range(first, last)
        ]
        characters += begun(i for i in held[start + 1 : start + 6] if i != data.tokenizer.end)
    assert material.characters == characters
    assert found["character_trigram_per_character"] == pytest.approx(-sum(logs) / characters)
    tokens = 2 * 5
    expected = found["token_trigram_loss"] * tokens / characters
    assert found["token_trigram_per_character"] == pytest.approx(expected)


def test_what_was_kept_comes_back_though_the_text_is_gone(text, tmp_path):
    config = lm(text)
    data = read_data(config)
    save_data(data, tmp_path)
    found = reopen_data(replace(config, text=Path("gone.txt")), tmp_path)
    np.testing.assert_array_equal(found.train, data.train)
    np.testing.assert_array_equal(found.validation, data.validation)
    assert found.tokenizer.pieces == data.tokenizer.pieces
    assert found.about == data.about


def test_a_run_that_died_before_its_tokens_were_kept_prepares_them_again(text, tmp_path):
    found = reopen_data(lm(text), tmp_path)
    np.testing.assert_array_equal(found.train, read_data(lm(text)).train)
    assert (tmp_path / "data" / "dataset.json").is_file()


def test_baselines_are_counted_once_a_folder(text, tmp_path, monkeypatch):
    config = lm(text)
    data = TextData.of(config, read_data(config))
    save_data(data.dataset, tmp_path)
    first = data.baselines(tmp_path)
    monkeypatch.setattr(TextData, "_count_baselines", lambda self: pytest.fail("counted again"))
    assert data.baselines(tmp_path) == first


@pytest.fixture
def tokens(tmp_path):
    ids = np.random.default_rng(1).integers(0, 9, 100)
    np.asarray(ids, "<u2").tofile(tmp_path / "tokens.bin")
    return tmp_path / "tokens.bin"


def test_flat_files_of_other_tools_are_read_as_they_are(tokens):
    data = read_data(replace(FLAT, tokens=tokens))
    ids = np.fromfile(tokens, "<u2")
    np.testing.assert_array_equal(np.concatenate([data.train, data.validation]), ids)
    assert (len(data.validation), data.vocabulary, data.tokenizer) == (10, 9, None)
    material = TextData.of(replace(FLAT, tokens=tokens, validation_share=0.2), data)
    assert set(material.loss_metrics("validation", 2.0)) == {"validation_loss"}
    assert set(material.baselines()) == {"token_trigram_loss"}


def test_wide_ids_and_a_validation_file_and_a_tokenizer(tmp_path):
    for name in ("a.bin", "b.bin"):
        np.arange(200, dtype="<u4").tofile(tmp_path / name)
    save(ByteTokenizer(), tmp_path / "tokenizer.json")
    files = {"tokens": tmp_path / "a.bin", "validation_tokens": tmp_path / "b.bin"}
    files["tokenizer_file"] = tmp_path / "tokenizer.json"
    data = read_data(replace(FLAT, token_type="uint32", vocabulary=257, **files))
    assert len(data.train) == len(data.validation) == 200
    assert data.tokenizer.kind == "byte"
    save_data(data, tmp_path)
    assert load_tokenizer(tmp_path).kind == "byte"


def test_another_file_of_tokens_is_refused_when_a_run_goes_on(tokens, tmp_path):
    config = replace(FLAT, tokens=tokens)
    save_data(read_data(config), tmp_path)
    assert len(reopen_data(config, tmp_path).train) == 90
    ids = np.fromfile(tokens, "<u2")
    ids[3] = (ids[3] + 1) % 9
    ids.tofile(tokens)
    with pytest.raises(BadRun, match="is not the file that"):
        reopen_data(config, tmp_path)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"vocabulary": None}, "Pass --vocabulary N"),
        ({"vocabulary": 5}, "the vocabulary has ids from 0 to 4"),
        ({"block": 95}, "too few for a window of 95"),
        ({"block": 20}, "of the validation part: windows: 10 tokens are too few"),
        ({"tokens": Path("none.bin"), "vocabulary": 5}, "there is no file none.bin"),
    ],
    ids=str,
)
def test_bad_tokens_are_refused(tokens, options, message):
    config = replace(FLAT, tokens=tokens)
    config = replace(config, **options)
    with pytest.raises(BadConfig, match=message):
        TextData.of(config, read_data(config))


def test_a_broken_folder_is_said_to_be_broken(text, tmp_path):
    config = lm(text)
    save_data(read_data(config), tmp_path)
    with (tmp_path / "data" / "train.bin").open("ab") as file:
        file.write(b"\0")
    with pytest.raises(BadRun, match="are broken"):
        reopen_data(config, tmp_path)
    about = json.loads((tmp_path / "data" / "dataset.json").read_text())
    assert about["tokenizer"] == "char"
