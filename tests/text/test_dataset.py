"""Datasets: a corpus written as tokens, and opened again."""

import numpy as np
import pytest

from loopless.text import tokenizer
from loopless.text.dataset import open_dataset, open_token_files, read_dataset, save_dataset


def prepare(folder, text, **options):
    """Read a corpus, write it as tokens, and open what was written."""
    save_dataset(read_dataset(text, **options), folder)
    return open_dataset(folder)


@pytest.fixture
def folder(tmp_path):
    source = tmp_path / "source"
    source.mkdir()
    for i in range(40):
        (source / f"{i:02}.py").write_text(f"x = {i}\nprint('é', x)\n")
    (source / "bad.py").write_bytes(b"\xff")
    return source


@pytest.mark.parametrize(("kind", "vocabulary"), [("byte", None), ("char", None), ("bpe", 280)])
def test_all_documents_are_there_once_each_with_an_end(tmp_path, folder, kind, vocabulary):
    made = prepare(tmp_path / "data", folder, tokenizer=kind, vocabulary=vocabulary)
    documents = []
    for ids in (made.train, made.validation):
        ends = np.flatnonzero(ids == made.tokenizer.end)
        assert ends[-1] == len(ids) - 1
        documents += [made.tokenizer.decode(part) for part in np.split(ids, ends + 1)[:-1]]
    assert sorted(documents) == sorted(f.read_text() for f in folder.glob("[0-9]*.py"))
    assert made.vocabulary == made.tokenizer.vocabulary
    again = open_dataset(tmp_path / "data")
    np.testing.assert_array_equal(again.train, made.train)
    assert again.about == made.about


def test_about_says_what_is_in_it(tmp_path, folder):
    about = prepare(tmp_path / "data", folder, tokenizer="byte").about
    assert about["corpus"]["documents"] == 40
    assert about["corpus"]["skipped"] == {"bad.py": "no UTF-8 at byte 0"}
    assert about["split_by"] == "document"
    parts = about["train"], about["validation"]
    assert sum(part["bytes"] for part in parts) == about["corpus"]["bytes"]
    for part in parts:
        assert part["tokens"] == part["bytes"] + part["documents"]
        assert part["bytes"] == part["characters"] + part["documents"]  # one é each


def test_the_tokenizer_never_sees_the_validation_text(tmp_path):
    (tmp_path / "a.txt").write_text("abc\n" * 90 + "xyz\n" * 10)
    made = prepare(tmp_path / "data", tmp_path / "a.txt", tokenizer="char", validation=0.1)
    assert made.tokenizer.characters == "\nabc"
    assert made.tokenizer.decode(made.validation[:4]) == "\ufffd\ufffd\ufffd\n"


def test_a_folder_that_was_not_finished_is_refused(tmp_path, folder):
    prepare(tmp_path / "data", folder)
    (tmp_path / "data" / "dataset.json").unlink()
    with pytest.raises(FileNotFoundError, match="does not hold a complete dataset"):
        open_dataset(tmp_path / "data")


def test_unknown_tokenizers_are_refused_before_anything_is_read(tmp_path):
    with pytest.raises(ValueError, match="tokenizer='word' is unknown"):
        read_dataset(tmp_path / "nothing", tokenizer="word")


# --- flat files ----------------------------------------------------------------------------------


@pytest.fixture
def flat(tmp_path):
    np.arange(100, dtype=np.uint16).tofile(tmp_path / "train.bin")
    np.arange(7, dtype=np.uint16).tofile(tmp_path / "val.bin")
    return tmp_path


def test_flat_files_are_a_dataset_without_a_tokenizer(flat):
    made = open_token_files(flat / "train.bin", flat / "val.bin", vocabulary=50257)
    assert (len(made.train), len(made.validation), made.tokenizer) == (100, 7, None)


def test_without_a_validation_file_the_end_is_held_out(flat):
    made = open_token_files(flat / "train.bin", vocabulary=100, share=0.25)
    assert made.train.tolist() == list(range(75))
    assert made.validation.tolist() == list(range(75, 100))


def test_a_tokenizer_of_another_vocabulary_is_refused(flat):
    tokenizer.save(tokenizer.ByteTokenizer(), flat / "t.json")
    made = open_token_files(flat / "train.bin", vocabulary=257, tokenizer_file=flat / "t.json")
    assert made.tokenizer.kind == "byte"
    with pytest.raises(ValueError, match=r"has 257 ids, but .*train\.bin has 100"):
        open_token_files(flat / "train.bin", vocabulary=100, tokenizer_file=flat / "t.json")
    with pytest.raises(ValueError, match="between 0 and 1"):
        open_token_files(flat / "train.bin", vocabulary=100, share=1.5)
