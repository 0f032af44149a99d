"""Byte-pair encoding: every text comes back, training is repeatable, files are enough to decode."""

import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loopless.text import tokenizer
from loopless.text.tokenizer import BPETokenizer

TEXT = "def add(one, other):\n    return one + other\n\n\nclass Adder:\n    pass\n" * 20
MADE = BPETokenizer.train([TEXT], 300)


@given(st.text())
def test_every_text_comes_back(text):
    assert MADE.decode(MADE.encode(text)) == text


def test_frequent_pairs_are_one_id():
    assert 280 < MADE.vocabulary <= 300  # there are no more pairs in so small a text
    assert b" return" in MADE.pieces
    assert len(MADE.encode(TEXT)) < len(TEXT) / 2


def test_training_again_gives_the_same():
    assert BPETokenizer.train([TEXT], 300).settings() == MADE.settings()


def test_a_text_cannot_spell_the_end():
    assert MADE.end == MADE.vocabulary - 1
    assert MADE.end not in MADE.encode("<|endoftext|>")
    assert MADE.decode([MADE.end]) == ""


def test_a_saved_tokenizer_is_the_same(tmp_path):
    tokenizer.save(MADE, tmp_path / "tokenizer.json")
    again = tokenizer.load(tmp_path / "tokenizer.json")
    assert again.pieces == MADE.pieces
    assert again.encode(TEXT).tolist() == MADE.encode(TEXT).tolist()


def test_long_texts_go_in_pieces_that_end_with_a_line(monkeypatch):
    monkeypatch.setattr(tokenizer, "_LONGEST_PART", 50)
    pieces = list(tokenizer._cut_into_parts([TEXT]))
    assert "".join(pieces) == TEXT
    assert all(piece.endswith("\n") for piece in pieces)
    assert max(map(len, pieces)) <= 50 + 30
    assert "".join(tokenizer._cut_into_parts(["x" * 120, ""])) == "x" * 120
    assert MADE.decode(MADE.encode(TEXT)) == TEXT


def test_lone_surrogates_are_marked():
    assert MADE.decode(MADE.encode("a\ud800b")) == "a?b"


def test_too_few_ids_are_refused():
    with pytest.raises(ValueError, match=r"received 256\. Use 257 or more"):
        BPETokenizer.train([TEXT], 256)


def test_decoding_needs_no_library_and_encoding_says_that_it_does(monkeypatch):
    again, ids = BPETokenizer(MADE.settings()["tokenizer"]), MADE.encode("def ")
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    assert again.decode(ids) == "def "
    with pytest.raises(ModuleNotFoundError, match="needs the package `tokenizers`"):
        again.encode("def ")
