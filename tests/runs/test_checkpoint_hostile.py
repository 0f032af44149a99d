"""Corrupt, truncated and hostile checkpoints: skipped with the reason, never believed."""

import hashlib
import json
import os
import subprocess
import sys

import numpy as np
import pytest

from loopless.runs.checkpoint import Checkpoints
from loopless.runs.failures import BadRun

OLD, NEW = "step_000000000001", "step_000000000002"
FILES = ["manifest.json", "weights.safetensors", "state.safetensors"]


def state(seed):
    generator = np.random.default_rng(seed)
    return {"weights/w": generator.normal(size=5), "replay/x": generator.integers(0, 9, 50)}


@pytest.fixture
def checkpoints(tmp_path):
    (tmp_path / "checkpoints").mkdir()
    checkpoints = Checkpoints(tmp_path)
    for step in (1, 2):
        checkpoints.save(step, state(step), {"seed": step}, best=True)
    return checkpoints


def reason(checkpoints):
    """Why the newest was skipped; the older is loaded in its place, whole."""
    found = checkpoints.load()
    assert found.name == OLD
    np.testing.assert_array_equal(found.arrays["replay/x"], state(1)["replay/x"])
    (why,) = found.skipped
    name, _, words = why.partition(": ")
    assert name == NEW
    with pytest.raises(BadRun, match=NEW) as caught:
        checkpoints.load(NEW)
    assert why in str(caught.value)
    return words


# Damage


@pytest.mark.parametrize("file", FILES)
@pytest.mark.parametrize("kept", [0.0, 0.01, 0.5, 0.99])
def test_a_truncated_file_is_skipped(checkpoints, file, kept):
    path = checkpoints.folder / NEW / file
    data = path.read_bytes()
    path.write_bytes(data[: int(kept * len(data))])
    words = reason(checkpoints)
    assert ("is not a manifest" if file == "manifest.json" else f"{file} has") in words


@pytest.mark.parametrize("file", FILES)
def test_a_file_that_grew_is_skipped(checkpoints, file):
    with (checkpoints.folder / NEW / file).open("ab") as opened:
        opened.write(b"x")
    assert file in reason(checkpoints)


@pytest.mark.parametrize("file", FILES)
@pytest.mark.parametrize("place", [0.0, 0.03, 0.2, 0.4, 0.6, 0.8, 0.999])
@pytest.mark.parametrize("bit", [0, 7])
def test_a_flipped_bit_is_found(checkpoints, file, place, bit):
    path = checkpoints.folder / NEW / file
    data = bytearray(path.read_bytes())
    data[int(place * len(data))] ^= 1 << bit
    path.write_bytes(data)
    reason(checkpoints)


def test_every_byte_of_a_manifest_counts(checkpoints):
    path = checkpoints.folder / NEW / "manifest.json"
    data = path.read_bytes()
    believed = []
    for place in range(len(data)):
        changed = bytearray(data)
        changed[place] ^= 1
        path.write_bytes(changed)
        if checkpoints.load().name == NEW:
            believed.append(place)
    assert believed == []


@pytest.mark.parametrize(
    ("file", "words"),
    [
        ("manifest.json", "manifest.json: No such file or directory."),
        ("weights.safetensors", "weights.safetensors: No such file or directory."),
        ("state.safetensors", "it holds weights only."),
    ],
)
def test_a_missing_file_is_said(checkpoints, file, words):
    (checkpoints.folder / NEW / file).unlink()
    assert reason(checkpoints).endswith(words)


def test_a_damaged_state_does_not_hinder_who_wants_the_weights(checkpoints):
    (checkpoints.folder / NEW / "state.safetensors").write_bytes(b"")
    found = checkpoints.load(kind="weights")
    assert (found.name, found.skipped) == (NEW, [])
    assert found.arrays.keys() == {"weights/w"}


def test_all_broken_ones_are_listed(checkpoints):
    (checkpoints.folder / NEW / "manifest.json").unlink()
    (checkpoints.folder / OLD / "weights.safetensors").write_bytes(b"")
    with pytest.raises(BadRun, match="has no checkpoint to load:") as caught:
        checkpoints.load()
    lines = str(caught.value).splitlines()[1:]
    assert [line.split(":")[0].strip() for line in lines] == [NEW, OLD]


def test_a_checkpoint_under_a_wrong_name_is_skipped(checkpoints):
    (checkpoints.folder / NEW).rename(checkpoints.folder / "step_000000000009")
    found = checkpoints.load()
    assert found.skipped == ["step_000000000009: its manifest is of step 2."]


def test_a_save_replaces_a_broken_one(checkpoints):
    (checkpoints.folder / NEW / "manifest.json").unlink()
    checkpoints.save(2, state(2), {})
    assert checkpoints.load().name == NEW


# Malice: a manifest with a right checksum over wrong content


def forge(checkpoints, change):
    path = checkpoints.folder / NEW / "manifest.json"
    content = json.loads(path.read_text())
    del content["sha256"]
    change(content)
    text = json.dumps(content, indent=1, sort_keys=True) + "\n"
    content["sha256"] = hashlib.sha256(text.encode()).hexdigest()
    path.write_text(json.dumps(content, indent=1, sort_keys=True) + "\n")


def entry(**changes):
    return lambda content: content["files"]["state.safetensors"]["replay/x"].update(changes)


def test_a_forged_manifest_without_changes_is_loaded(checkpoints):
    forge(checkpoints, lambda content: None)
    assert checkpoints.load().name == NEW


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda c: c.update(format=2), "it is of a newer format, 2; upgrade loopless"),
        (lambda c: c.update(format="1"), "is not a manifest"),
        (lambda c: c.update(format=0), "is not a manifest"),
        (lambda c: c.update(step="2"), "is not a manifest"),
        (lambda c: c.update(step=True), "is not a manifest"),
        (lambda c: c.update(kind="all"), "is not a manifest"),
        (lambda c: c.update(kind="weights"), "is not a manifest"),
        (lambda c: c.update(numbers=[]), "is not a manifest"),
        (lambda c: c.update(best=["x"]), "is not a manifest"),
        (lambda c: c.update(files={}), "is not a manifest"),
        (lambda c: c.update(files=3), "is not a manifest"),
        (lambda c: c["files"].update({"../../../etc/passwd": {}}), "is not a manifest"),
        (lambda c: c["files"].update({"state.safetensors": []}), "is not a manifest"),
        (entry(dtype="object"), "cannot be an array"),
        (entry(dtype="O"), "cannot be an array"),
        (entry(dtype=">i8"), "cannot be an array"),
        (entry(dtype=["int64"]), "is not a manifest"),
        (entry(dtype="float64"), "the header of state.safetensors is not what the manifest says"),
        (entry(shape=[51]), "state.safetensors has 472 bytes, expected 480"),
        (entry(shape=[49]), "state.safetensors has 472 bytes, expected 464"),
        (entry(shape=50), "is not a manifest"),
        (entry(shape=[-50]), "cannot be an array"),
        (entry(shape=[50.0]), "cannot be an array"),
        (entry(shape=[True]), "cannot be an array"),
        (entry(shape=[1] * 33), "cannot be an array"),
        (entry(shape=[2**62]), "cannot be an array"),
        (entry(shape=[2**47]), "state.safetensors has"),
        (entry(shape=[2**40] * 30), "state.safetensors has"),
        (entry(sha256="0" * 64), "replay/x differs from its checksum"),
        (entry(sha256=None), "is not a manifest"),
        (entry(sha256="0"), "cannot be an array"),
    ],
)
def test_a_forged_manifest_is_skipped(checkpoints, change, words):
    forge(checkpoints, change)
    assert words in reason(checkpoints)


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"[]",
        b"null",
        b"[" * 1_000_000,
        b'{"format": ' + b"9" * 10_000 + b"}",
        b'{"a":' * 1_000_000,
        b"\xff\xfe",
        b" " * ((1 << 24) + 1),
    ],
    ids=lambda text: str(text[:10]),
)
def test_json_made_to_hurt_is_skipped(checkpoints, text):
    (checkpoints.folder / NEW / "manifest.json").write_bytes(text)
    reason(checkpoints)


@pytest.mark.parametrize("length", [0, 1, 2**63, 2**64 - 1])
def test_an_absurd_header_length_is_not_believed(checkpoints, length):
    path = checkpoints.folder / NEW / "state.safetensors"
    path.write_bytes(length.to_bytes(8, "little") + path.read_bytes()[8:])
    assert "header" in reason(checkpoints)


def test_a_shape_that_only_a_sparse_file_bears_out_takes_no_memory(checkpoints):
    """A terabyte of zeros costs nothing on the disk; the loader asks for it and is told no."""
    size = 2**40
    forge(checkpoints, entry(shape=[size // 8]))
    script = f"""
import os, resource
from pathlib import Path
from loopless.files import manifest as manifest; from loopless.files import tensors as tensor_file
from loopless.runs.checkpoint import Checkpoints
checkpoints = Checkpoints(Path({str(checkpoints.run)!r}))
folder = checkpoints.folder / {NEW!r}
about = manifest.from_bytes((folder / "manifest.json").read_bytes())
header = tensor_file._header(about.files["state.safetensors"])
with (folder / "state.safetensors").open("wb") as file:
    file.write(header)
    file.truncate(len(header) + {size})
resource.setrlimit(resource.RLIMIT_AS, (2**33, 2**33))
print(checkpoints.load().skipped)
"""
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=60
    )
    assert "replay/x [137438953472] does not fit into memory" in done.stdout, done.stderr


# Links and pipes


@pytest.mark.parametrize("file", FILES)
def test_a_link_in_place_of_a_file_is_not_followed(checkpoints, file, tmp_path):
    path = checkpoints.folder / NEW / file
    path.rename(tmp_path / "elsewhere")
    path.symlink_to(tmp_path / "elsewhere")
    assert "Too many levels of symbolic links" in reason(checkpoints)


@pytest.mark.parametrize("file", FILES)
def test_a_pipe_in_place_of_a_file_does_not_block(checkpoints, file):
    path = checkpoints.folder / NEW / file
    path.unlink()
    os.mkfifo(path)
    assert "it is not a regular file" in reason(checkpoints)


def test_a_link_in_place_of_a_folder_is_not_followed_and_not_written_through(checkpoints, tmp_path):
    (checkpoints.folder / NEW).rename(tmp_path / "elsewhere")
    (checkpoints.folder / NEW).symlink_to(tmp_path / "elsewhere")
    assert "it is not a folder" in reason(checkpoints)
    before = sorted(os.listdir(tmp_path / "elsewhere"))
    checkpoints.save(2, state(5), {})
    assert not (checkpoints.folder / NEW).is_symlink()
    assert sorted(os.listdir(tmp_path / "elsewhere")) == before


@pytest.mark.parametrize("content", ["../../etc", "/etc/passwd", "", "x" * 1000, "\0", NEW + "/.."])
def test_pointers_are_names_and_nothing_else(checkpoints, content):
    for pointer in ("latest", "best"):
        (checkpoints.run / pointer).write_text(content)
    assert checkpoints.load().name == NEW
    with pytest.raises(BadRun):
        checkpoints.load("best")
