"""Tokenizers by bytes and characters: every text comes back, or what is lost is said."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from loopless.reference import text as loops
from loopless.text import tokenizer
from loopless.text.tokenizer import ByteTokenizer, CharTokenizer, Decoder

BYTES = ByteTokenizer()
ANY_TEXT = st.text(st.characters(exclude_categories=()))  # lone surrogates too


@given(ANY_TEXT)
def test_bytes_bring_back_every_text(text):
    ids = BYTES.encode(text)
    assert BYTES.decode(ids) == text
    assert ids.tolist() == list(text.encode("utf-8", "surrogatepass"))


@given(ANY_TEXT)
def test_characters_bring_back_every_text_of_theirs(text):
    made = CharTokenizer.train([text])
    assert made.decode(made.encode(text)) == text
    assert made.vocabulary == len(set(text) - {"\ufffd"}) + 2


@given(ANY_TEXT, ANY_TEXT)
def test_ids_of_characters_are_those_of_the_loop(known, text):
    made = CharTokenizer.train([known])
    assert made.encode(text).tolist() == loops.encode_characters(text, made.characters)


@given(ANY_TEXT, ANY_TEXT)
def test_unknown_characters_come_back_as_a_mark(known, text):
    made = CharTokenizer.train([known])
    expected = "".join(c if c in known else "\ufffd" for c in text)
    assert made.decode(made.encode(text)) == expected


def test_the_most_frequent_characters_are_kept():
    made = CharTokenizer.train(["abbccc", "ddddé"], 5)
    assert made.characters == "bcd"[:3]
    assert made.vocabulary == 5
    assert made.decode(made.encode("abcdé")) == "\ufffdbcd\ufffd"


@pytest.mark.parametrize("made", [BYTES, CharTokenizer("ab\n")], ids=["byte", "char"])
def test_the_end_is_an_id_that_no_text_has_and_reads_as_nothing(made):
    assert made.end == made.vocabulary - 1
    assert made.end not in made.encode("ab\n\xff\U0001f600")
    assert made.decode([*made.encode("a"), made.end, *made.encode("b")]) == "ab"


def test_bytes_that_are_no_text_are_marked():
    assert BYTES.decode([97, 0xC3, 98]) == "a\ufffdb"


@pytest.mark.parametrize("size", [1, 2, 3])
def test_a_decoder_gives_characters_when_they_are_whole(size):
    text = "aé€\U0001f600z"
    ids, decoder = BYTES.encode(text), Decoder(BYTES)
    pieces = [decoder.feed(ids[i : i + size]) for i in range(0, len(ids), size)]
    assert "".join(pieces) == text
    assert decoder.feed([0xE2], last=True) == "\ufffd"


@pytest.mark.parametrize("made", [BYTES, CharTokenizer("ab\U0001f600\ud800")], ids=["byte", "char"])
def test_a_saved_tokenizer_is_the_same(tmp_path, made):
    tokenizer.save(made, tmp_path / "tokenizer.json")
    again = tokenizer.load(tmp_path / "tokenizer.json")
    assert (again.kind, again.pieces) == (made.kind, made.pieces)
    assert again.encode("ab\U0001f600c").tolist() == made.encode("ab\U0001f600c").tolist()
    assert [file.name for file in tmp_path.iterdir()] == ["tokenizer.json"]


@pytest.mark.parametrize(
    "content",
    ["no JSON", "[]", "{}", json.dumps({"format": "loopless tokenizer 1", "kind": "words"})],
)
def test_other_files_are_no_tokenizers(tmp_path, content):
    (tmp_path / "t.json").write_text(content)
    with pytest.raises(ValueError, match=r"t\.json is not a tokenizer of ours"):
        tokenizer.load(tmp_path / "t.json")


def test_refusals():
    with pytest.raises(FileNotFoundError, match="there is no file nowhere"):
        tokenizer.load("nowhere")
    with pytest.raises(ValueError, match="kind='words' is unknown; choose byte, char, bpe"):
        tokenizer.tokenizer_class("words")
    with pytest.raises(ValueError, match=r"integers from 0 to 256; received int64 .* 257"):
        BYTES.decode([3, 257])
    with pytest.raises(ValueError, match="received float64"):
        BYTES.decode(np.array([0.5]))
    with pytest.raises(ValueError, match="received 2"):
        CharTokenizer.train(["abc"], 2)
    with pytest.raises(ValueError, match="once each"):
        CharTokenizer("aa")
