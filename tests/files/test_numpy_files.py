"""Arrays from anybody: whole and within a limit, or refused in one sentence; never unpickled."""

import io
import struct
import tracemalloc
import zipfile
import zlib

import numpy as np
import pytest

from loopless.files.numpy_files import read_npy, read_npz

MOST = 1 << 20


def npy(array):
    data = io.BytesIO()
    np.save(data, array)
    return data.getvalue()


def header(shape, dtype="<f8"):
    """The header of an .npy file, and no data."""
    data = io.BytesIO()
    np.lib.format.write_array_header_1_0(
        data, {"shape": shape, "fortran_order": False, "descr": dtype}
    )
    return data.getvalue()


def archive(path, data, name="obs.npy", method=zipfile.ZIP_DEFLATED):
    with zipfile.ZipFile(path, "w", method) as file:
        file.writestr(name, data)
    return path


def patched(path, place, values):
    """Overwrite bytes of the directory at the end of an archive, which says what a member is."""
    data = bytearray(path.read_bytes())
    at = data.index(b"PK\x01\x02") + place
    data[at : at + len(values)] = values
    path.write_bytes(data)
    return path


@pytest.mark.parametrize(
    "array",
    [
        np.arange(12.0).reshape(3, 4),
        np.asfortranarray(np.arange(12).reshape(3, 4)),
        np.zeros((0, 3), np.float32),
        np.array(7),
        np.array([True, False]),
        np.arange(3, dtype=">i4"),
    ],
    ids=str,
)
@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_what_numpy_wrote_is_read_as_it_was(array, save, tmp_path):
    save(tmp_path / "a.npz", obs=array, other=np.ones(3))
    read = read_npz(tmp_path / "a.npz", MOST, ("obs",))
    assert read.keys() == {"obs"}
    np.testing.assert_array_equal(read["obs"], array)
    assert read["obs"].dtype == array.dtype
    np.save(tmp_path / "a.npy", array)
    np.testing.assert_array_equal(read_npy(tmp_path / "a.npy", MOST), array)


def broken_deflate(path):
    archive(path, npy(np.random.default_rng(0).normal(size=500)))
    data = bytearray(path.read_bytes())
    data[60:200] = b"\xff" * 140
    path.write_bytes(data)


def lying_about_its_size(path):
    """A member that inflates to 64 MB, and says that it has as many bytes as its array needs."""
    whole = npy(np.ones(100)) + b"\0" * (1 << 26)
    patched(archive(path, whole), 24, struct.pack("<I", len(npy(np.ones(100)))))


FILES = {
    "bad deflate data": (broken_deflate, "not a whole .npz file|is not an .npy file"),
    "an encrypted member": (
        lambda path: patched(archive(path, npy(np.ones(3))), 8, b"\x01"), "obs is encrypted"
    ),
    "an unknown method": (
        lambda path: patched(archive(path, npy(np.ones(3))), 10, b"\x63"), "method 99"
    ),
    "bzip2": (
        lambda path: archive(path, npy(np.ones(3)), method=zipfile.ZIP_BZIP2), "method 12"
    ),
    "a member that is no array": (lambda path: archive(path, b"text"), "is not an .npy file"),
    "an empty member": (lambda path: archive(path, b""), "is not an .npy file"),
    "objects": (
        lambda path: np.savez(path, obs=np.array([{}], object)), "holds Python objects"
    ),
    "a shape beyond memory": (
        lambda path: archive(path, header((1 << 60,))), "there is room for 1,048,576"
    ),
    "a shape beyond integers": (
        lambda path: archive(path, header((1 << 40, 1 << 40))), "there is room for"
    ),
    "a negative shape": (lambda path: archive(path, header((-4,))), "is not an .npy file"),
    "less data than it says": (lambda path: archive(path, header((100,))), "800 bytes too early"),
    "a bomb": (
        lambda path: np.savez_compressed(path, obs=np.zeros(1 << 18)), "needs 2,097,152 bytes"
    ),
    "a lie": (lying_about_its_size, "Bad CRC"),
    "cut short": (
        lambda path: path.write_bytes(archive(path, npy(np.ones(50))).read_bytes()[:-30]),
        "not a whole .npz file",
    ),
    "no archive": (lambda path: path.write_bytes(b"x" * 100), "not a whole .npz file"),
}  # fmt: skip


@pytest.mark.parametrize("name", FILES)
def test_a_bad_archive_is_refused_in_words_and_in_little_memory(name, tmp_path):
    make, words = FILES[name]
    make(tmp_path / "bad.npz")
    tracemalloc.start()
    try:
        with pytest.raises(ValueError, match=words):
            read_npz(tmp_path / "bad.npz", MOST)
        assert tracemalloc.get_traced_memory()[1] < 16 << 20
    finally:
        tracemalloc.stop()


def test_arrays_share_one_limit(tmp_path):
    np.savez(tmp_path / "a.npz", a=np.zeros(100_000), b=np.zeros(100_000))
    with pytest.raises(ValueError, match=r"b .* needs 800,000 bytes"):
        read_npz(tmp_path / "a.npz", MOST)


@pytest.mark.parametrize("text", [b"", b"\x93NUMPY", b"\x93NUMPY\x09\x00", b"text" * 9])
def test_what_is_no_array_is_refused(text, tmp_path):
    (tmp_path / "a.npy").write_bytes(text)
    with pytest.raises(ValueError, match=r"is not an \.npy file"):
        read_npy(tmp_path / "a.npy", MOST)


def test_zlib_is_what_breaks(tmp_path):
    """NumPy itself ends in an error that nobody catches: the reason why there is this reader."""
    broken_deflate(tmp_path / "bad.npz")
    with np.load(tmp_path / "bad.npz") as file, pytest.raises((zlib.error, ValueError)):
        file["obs"]
