"""The data in a run on text are what they were when it began, or they are refused."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from loopless.files import checksums
from loopless.runs.failures import BadRun
from loopless.runs.folder import RunFolder
from loopless.train.avatarl import critic
from loopless.train.avatarl.config import AvataRL
from loopless.train.lm import data
from loopless.train.lm.config import LM

MADE_BEFORE = Path(__file__).parents[2] / "runs" / "made_before" / "lm"


@pytest.fixture
def old(tmp_path):
    """A run of an older version, which has no checksums."""
    return shutil.copytree(MADE_BEFORE, tmp_path / "lm")


@pytest.fixture
def run(old):
    """The same, as this version writes it."""
    opened, config = open_data(old)
    shutil.rmtree(old / "data")
    data.save_data(opened, old)
    data.TextData.of(config, opened).baselines(old)
    return old


def open_data(path):
    config = RunFolder.open(path).config(LM)
    return data.reopen_data(config, path), config


def baselines(path):
    opened, config = open_data(path)
    return data.TextData.of(config, opened).baselines(path)


def flip_lowest_bits(path):
    ids = np.fromfile(path, "<u2")
    (ids ^ np.uint16(1)).tofile(path)


@pytest.mark.parametrize("name", ["train.bin", "validation.bin"])
def test_other_tokens_are_refused(run, name):
    flip_lowest_bits(run / "data" / name)
    with pytest.raises(BadRun, match=f"{name} in .* differ from their checksums"):
        open_data(run)


def test_another_tokenizer_is_refused(run):
    path = run / "data" / "tokenizer.json"
    content = json.loads(path.read_text())
    content["characters"] = content["characters"][::-1]
    path.write_text(json.dumps(content))
    for read in (open_data, data.load_tokenizer):
        with pytest.raises(BadRun, match=r"tokenizer\.json in .* differ from their checksums"):
            read(run)


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", "null", '{"windows": [16, 8]}', '{"windows": 3, "values": {"x": "y"}}',
     "[" * 100_000, '{"windows": [16, 8], "values": {"token_trigram_loss": 0.1}}'],
    ids=["empty", "torn", "list", "null", "without", "wrong", "deep", "changed"],
)  # fmt: skip
def test_broken_and_changed_baselines_are_counted_again(run, text):
    expected = baselines(run)
    (run / "data" / "baselines.json").write_text(text)
    assert baselines(run) == expected
    assert json.loads((run / "data" / "baselines.json").read_text())["values"] == expected


def test_unchanged_baselines_are_not_counted_again(run, monkeypatch):
    monkeypatch.delattr(data.TextData, "_count_baselines")
    assert baselines(run)


@pytest.mark.parametrize("name", ["critic.safetensors", "critic.json"])
def test_another_critic_is_refused(tmp_path, name):
    path = shutil.copytree(MADE_BEFORE.with_name("avatarl"), tmp_path / "avatarl")
    config = RunFolder.open(path).config(AvataRL)
    assert critic.load_copy(config, path)  # an older version wrote it, without checksums
    checksums.write(path, critic.COPY_FILES)
    assert critic.load_copy(config, path)
    content = bytearray((path / name).read_bytes())
    content[-5] ^= 1
    (path / name).write_bytes(content)
    with pytest.raises(BadRun, match=f"{name} in .* differ from their checksums"):
        critic.load_copy(config, path)


@pytest.mark.parametrize("text", ["", "[]", '{"sha256": 3}', '{"sha256": {"train.bin": "x"}}'])
def test_a_broken_manifest_is_refused(run, text):
    (run / "data" / "manifest.json").write_text(text)
    with pytest.raises(BadRun, match="is not a list of checksums"):
        open_data(run)


def test_a_run_without_checksums_is_taken_and_that_is_said_once(old, capsys):
    assert baselines(old)
    assert "without checksums" in capsys.readouterr().err
    assert baselines(old)
    assert "without checksums" not in capsys.readouterr().err
    flip_lowest_bits(old / "data" / "train.bin")
    with pytest.raises(BadRun, match=r"train\.bin"):
        open_data(old)


@pytest.mark.parametrize("text", ["", "[]", "3", "[" * 100_000, '{"format": "x"}', '{"kind": []}',
     '{"format": "loopless tokenizer 1", "kind": "bpe", "tokenizer": []}',
     '{"format": "loopless tokenizer 1", "kind": "bpe", "tokenizer": {"model": {"vocab": [1]}}}',
     '{"format": "loopless tokenizer 1", "kind": ["x"]}',
     '{"format": "loopless tokenizer 1", "kind": "char", "characters": 3}'])  # fmt: skip
def test_a_broken_tokenizer_is_refused(old, text):
    (old / "data" / "tokenizer.json").write_text(text)
    with pytest.raises(BadRun, match="is not a tokenizer of ours"):
        data.load_tokenizer(old)


@pytest.mark.parametrize("text", ["", "[]", "{}", "[" * 100_000, '{"corpus": {"name": 3}}'])
def test_a_broken_description_is_refused(old, text):
    (old / "data" / "dataset.json").write_text(text)
    with pytest.raises(BadRun, match="does not describe a dataset"):
        open_data(old)


@pytest.mark.parametrize("text", ["", "[]", '{"dtype": []}', '{"tokens": "x"}', "[" * 30_000])
def test_a_broken_description_of_tokens_is_refused(old, text):
    (old / "data" / "train.bin.json").write_text(text)
    with pytest.raises(BadRun, match="does not describe tokens"):
        open_data(old)
