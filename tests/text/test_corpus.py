"""Corpora: which files, in which order, what is passed over, and how they are split."""

import hashlib
import sysconfig

import pytest

from loopless.text.corpus import Document, read_corpus, split


def test_a_file_is_one_document(tmp_path):
    (tmp_path / "a.txt").write_bytes("é\r\n".encode())
    corpus = read_corpus(tmp_path / "a.txt")
    assert corpus.documents == [("a.txt", "é\r\n")]
    assert corpus.bytes == 4
    assert corpus.sha256 == hashlib.sha256("é\r\n".encode()).hexdigest()


def test_a_folder_is_read_in_the_order_of_its_names(tmp_path):
    for name in ("b.txt", "a/z.md", "a.py", "c/.hidden", ".git/config"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(name)
    (tmp_path / "d").symlink_to(tmp_path)
    corpus = read_corpus(tmp_path)
    assert [document.name for document in corpus.documents] == ["a/z.md", "a.py", "b.txt"]
    assert corpus.sha256 == hashlib.sha256(b"a/z.mda.pyb.txt").hexdigest()


def test_what_is_no_text_is_skipped_and_said(tmp_path):
    (tmp_path / "a").write_text("text")
    (tmp_path / "b").write_bytes(b"ab\xff")
    (tmp_path / "c").write_bytes(b"a\0b")
    corpus = read_corpus(tmp_path)
    assert corpus.skipped == {"b": "no UTF-8 at byte 2", "c": "holds a zero byte"}
    assert corpus.about()["skipped"] == corpus.skipped


def test_with_no_path_it_is_the_code_of_the_standard_library(tmp_path, monkeypatch):
    kept = ["ast.py", "json/decoder.py", "json/tool.py"]
    for name in [
        *kept,
        "test/a.py",
        "json/tests/b.py",
        "site-packages/c.py",
        "encodings/d.py",
        "e.txt",
    ]:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("pass\n")
    monkeypatch.setattr(sysconfig, "get_paths", lambda: {"stdlib": str(tmp_path)})
    corpus = read_corpus()
    assert [document.name for document in corpus.documents] == kept
    assert corpus.name.startswith("the standard library of Python 3.")


@pytest.mark.parametrize("content", [{}, {"a": b""}, {"a": b"\xff"}], ids=["none", "empty", "raw"])
def test_a_folder_without_text_is_refused(tmp_path, content):
    for name, data in content.items():
        (tmp_path / name).write_bytes(data)
    with pytest.raises(ValueError, match=r"holds no text.* Give a file or a folder"):
        read_corpus(tmp_path)


def test_a_path_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(FileNotFoundError, match="there is no file or folder"):
        read_corpus(tmp_path / "nothing")


# --- splits --------------------------------------------------------------------------------------

MANY = [Document(f"{i}.py", f"{i:4}\n" * (20 + i)) for i in range(50)]


def size(documents):
    return sum(len(document.text) for document in documents)


def test_many_documents_are_held_out_whole():
    train, held, by = split(MANY, 0.1)
    assert by == "document"
    assert sorted(train + held) == sorted(MANY)
    assert train == [document for document in MANY if document in train]
    assert 0.05 <= size(held) / size(MANY) <= 0.1


def test_who_is_held_out_does_not_depend_on_the_order():
    assert {d.name for d in split(MANY[::-1], 0.1)[1]} == {d.name for d in split(MANY, 0.1)[1]}


@pytest.mark.parametrize("documents", [MANY[:1], MANY[:3]], ids=["one", "few"])
def test_few_documents_are_cut_by_position_at_a_line(documents):
    train, held, by = split(documents, 0.2)
    assert by == "position"
    joined = "".join(document.text for document in train + held)
    assert joined == "".join(document.text for document in documents)
    assert train[-1].text.endswith("\n")
    assert size(held) / size(documents) == pytest.approx(0.2, abs=0.06)


def test_a_text_without_lines_is_cut_anyway():
    train, held, _ = split([Document("a", "x" * 100)], 0.1)
    assert (size(train), size(held)) == (90, 10)


@pytest.mark.parametrize("share", [0, 1, -0.5, float("nan")])
def test_shares_that_are_none_are_refused(share):
    with pytest.raises(ValueError, match="between 0 and 1"):
        split(MANY, share)
