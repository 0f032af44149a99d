"""Files of tokens: what is written is read, other tools' files too, and broken ones refused."""

import json

import numpy as np
import pytest

from loopless.text.tokens import read_tokens, write_tokens

IDS = np.array([3, 1, 4, 1, 5, 9, 2, 6], np.uint16)


@pytest.mark.parametrize(("vocabulary", "bytes_"), [(10, 2), (65536, 2), (65537, 4)])
def test_what_is_written_is_read(tmp_path, vocabulary, bytes_):
    last = vocabulary - 1
    write_tokens(tmp_path / "a.bin", np.array([*IDS, last]), vocabulary)
    assert (tmp_path / "a.bin").stat().st_size == 9 * bytes_
    got = read_tokens(tmp_path / "a.bin")
    assert got.tolist() == [*IDS.tolist(), last]
    assert got.dtype.itemsize == bytes_
    assert not got.flags.writeable
    assert sorted(file.name for file in tmp_path.iterdir()) == ["a.bin", "a.bin.json"]


@pytest.mark.parametrize(
    ("dtype", "said"),
    [("<u2", {"vocabulary": 10}), ("<u4", {"dtype": "uint32"}), ("<u4", {"vocabulary": 70_000})],
    ids=["by vocabulary", "named", "by large vocabulary"],
)
def test_flat_files_of_other_tools_are_read_as_they_are(tmp_path, dtype, said):
    IDS.astype(dtype).tofile(tmp_path / "train.bin")
    assert read_tokens(tmp_path / "train.bin", **said).tolist() == IDS.tolist()


def test_an_id_beyond_the_vocabulary_is_refused_with_its_place(tmp_path):
    IDS.tofile(tmp_path / "a.bin")
    with pytest.raises(ValueError, match=r"token 5 is 9, but the vocabulary has ids from 0 to 8"):
        read_tokens(tmp_path / "a.bin", vocabulary=9)
    with pytest.raises(ValueError, match=r"token 5 is 9"):
        write_tokens(tmp_path / "b.bin", IDS, 9)
    with pytest.raises(ValueError, match=r"token 0 is -1"):
        write_tokens(tmp_path / "b.bin", np.array([-1]), 9)
    assert [file.name for file in tmp_path.iterdir()] == ["a.bin"]


@pytest.mark.parametrize(
    ("content", "options", "message"),
    [
        (b"", {"dtype": "uint16"}, "is empty"),
        (b"abc", {"dtype": "uint16"}, "3 bytes, which is not a multiple of the 2 of a uint16"),
        (b"abcd", {}, "does not say how large its ids are"),
        (b"abcd", {"dtype": "int8"}, "received dtype='int8'"),
    ],
    ids=["empty", "torn", "unsaid", "unknown"],
)
def test_files_that_cannot_be_are_refused(tmp_path, content, options, message):
    (tmp_path / "a.bin").write_bytes(content)
    with pytest.raises(ValueError, match=message):
        read_tokens(tmp_path / "a.bin", **options)


def test_a_file_that_is_not_what_its_json_says_is_refused(tmp_path):
    write_tokens(tmp_path / "a.bin", IDS, 10)
    beside = tmp_path / "a.bin.json"
    assert json.loads(beside.read_text())["tokens"] == 8
    with pytest.raises(ValueError, match="holds uint16 by the JSON file beside it, not uint32"):
        read_tokens(tmp_path / "a.bin", dtype="uint32")
    IDS[:5].tofile(tmp_path / "a.bin")
    with pytest.raises(ValueError, match="10 bytes, but its 8 tokens need 16"):
        read_tokens(tmp_path / "a.bin")
    with pytest.raises(FileNotFoundError, match="there is no file"):
        read_tokens(tmp_path / "b.bin")
