"""A policy as a file for others: any reader of safetensors reads it, and the card says the rest."""

import json

import numpy as np
import pytest
from safetensors.numpy import load_file

from loopless.runs import checkpoint
from loopless.runs.failures import BadConfig, WriteFailed

ARRAYS = {
    "layers/0/weight": np.arange(6, dtype=np.float32).reshape(2, 3).T,  # not contiguous
    "layers/0/bias": np.ones(2, np.float32),
}


def test_arrays_come_back_as_they_were_and_the_card_describes_them(tmp_path):
    checkpoint.export_weights(
        tmp_path / "policy.safetensors", ARRAYS, {"env": "Ünder-v0", "layers": 1}
    )
    found = load_file(tmp_path / "policy.safetensors")
    assert found.keys() == ARRAYS.keys()
    for name, array in ARRAYS.items():
        np.testing.assert_array_equal(found[name], array)
        assert found[name].dtype == array.dtype
    card = json.loads((tmp_path / "policy.json").read_text())
    assert card["env"] == "Ünder-v0"
    assert card["arrays"] == {
        "layers/0/weight": [[3, 2], "float32"],
        "layers/0/bias": [[2], "float32"],
    }


def test_an_export_again_replaces_the_one_before(tmp_path):
    path = tmp_path / "policy.safetensors"
    checkpoint.export_weights(path, ARRAYS, {})
    first = path.read_bytes()
    checkpoint.export_weights(path, {"x": np.zeros(3)}, {})
    assert load_file(path).keys() == {"x"}
    checkpoint.export_weights(path, ARRAYS, {})
    assert path.read_bytes() == first
    assert sorted(file.name for file in tmp_path.iterdir()) == ["policy.json", "policy.safetensors"]


@pytest.mark.parametrize("path", ["policy.pt", "policy", "nowhere/policy.safetensors"])
def test_a_place_that_makes_no_sense_is_refused(tmp_path, path):
    with pytest.raises(BadConfig, match="safetensors"):
        checkpoint.export_weights(tmp_path / path, ARRAYS, {})
    assert list(tmp_path.iterdir()) == []


def test_a_place_that_cannot_be_written_to_is_an_error_in_words(tmp_path):
    (tmp_path / "policy.safetensors").mkdir()
    with pytest.raises(WriteFailed, match=r"policy\.safetensors"):
        checkpoint.export_weights(tmp_path / "policy.safetensors", ARRAYS, {})
