"""GPT-2-format files: the same logits as a loop over the file's arrays, or one clear refusal."""

import json

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from gpt_loop import exact, gelu_new, logits, weights
from safetensors.numpy import save_file
from support.compare import assert_close

from loopless.nets.gpt.weights import read_gpt2

TOKENS = np.array([3, 0, 10, 7, 7])
FORWARD = jax.jit(lambda model, tokens: model(tokens))


def saved(tmp_path, arrays, **config):
    save_file(arrays, tmp_path / "model.safetensors")
    if config:
        (tmp_path / "config.json").write_text(json.dumps(config))
    return tmp_path / "model.safetensors"


def in_float64(model):
    return jax.tree.map(lambda x: jnp.asarray(np.asarray(x, np.float64)), model)


@pytest.mark.parametrize("prefix", ["", "transformer."])
@pytest.mark.parametrize(
    ("activation", "gelu"), [("gelu_new", gelu_new), ("gelu", exact)], ids=["gelu_new", "gelu"]
)
def test_logits_are_those_of_the_loop(tmp_path, prefix, activation, gelu):
    arrays = weights()
    named = {prefix + name: array for name, array in arrays.items()}
    path = saved(tmp_path, named, n_head=2, activation_function=activation)
    got = FORWARD(in_float64(read_gpt2(path)), TOKENS)
    assert_close(got, logits(arrays, TOKENS, 2, gelu))


def test_without_a_config_it_is_a_gpt_2(tmp_path):
    arrays = weights(width=6)
    got = FORWARD(in_float64(read_gpt2(saved(tmp_path, arrays), heads=2)), TOKENS)
    assert_close(got, logits(arrays, TOKENS, 2, gelu_new))
    wide = weights(width=128, layers=1)
    assert read_gpt2(saved(tmp_path, wide)).heads == 2


def test_masks_and_a_tied_head_are_passed_over(tmp_path):
    arrays = weights()
    extra = {"lm_head.weight": arrays["wte.weight"].copy()}
    extra |= {f"h.{i}.attn.bias": np.ones((1, 1, 8, 8), np.float32) for i in range(2)}
    extra["h.0.attn.masked_bias"] = np.float32(-1e4)[None]
    model = read_gpt2(saved(tmp_path, arrays | extra), heads=2)
    assert model.layers == 2
    np.testing.assert_array_equal(model.blocks.up.bias[1], arrays["h.1.mlp.c_fc.bias"])


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
def test_half_precision_files_are_read_as_float32(tmp_path, dtype):
    arrays = {name: array.astype(dtype) for name, array in weights().items()}
    model = read_gpt2(saved(tmp_path, arrays), heads=2)
    assert {leaf.dtype for leaf in jax.tree.leaves(model)} == {jnp.dtype("float32")}
    np.testing.assert_array_equal(model.tokens, arrays["wte.weight"].astype(np.float32))


def test_all_that_is_wrong_with_a_file_is_said_at_once(tmp_path):
    arrays = weights()
    del arrays["h.1.ln_2.bias"]
    arrays["h.0.mlp.c_fc.weight"] = arrays["h.0.mlp.c_fc.weight"].T.copy()
    arrays["h.0.attn.rotary"] = np.zeros(3, np.float32)
    with pytest.raises(ValueError, match=r"^gpt2: .*") as error:
        read_gpt2(saved(tmp_path, arrays), heads=2)
    for part in (
        "h.1.ln_2.bias is missing",
        "h.0.attn.rotary is unknown",
        "h.0.mlp.c_fc.weight has shape (24, 6), expected (6, 24)",
    ):
        assert part in str(error.value)


def test_a_head_of_its_own_is_refused(tmp_path):
    arrays = weights()
    arrays["lm_head.weight"] = arrays["wte.weight"] + 1
    with pytest.raises(ValueError, match="is not its embedding"):
        read_gpt2(saved(tmp_path, arrays), heads=2)


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"activation_function": "silu"}, "activation is 'silu'"),
        ({"layer_norm_epsilon": 1e-6}, "layer_norm_epsilon is 1e-06"),
    ],
    ids=["activation", "epsilon"],
)
def test_a_model_of_another_form_is_refused(tmp_path, config, message):
    with pytest.raises(ValueError, match=message):
        read_gpt2(saved(tmp_path, weights(), n_head=2, **config))


def test_other_files_are_refused(tmp_path):
    with pytest.raises(FileNotFoundError, match="there is no file"):
        read_gpt2(tmp_path / "nothing")
    (tmp_path / "noise").write_bytes(b"no weights here, but text")
    with pytest.raises(ValueError, match="is not a safetensors file"):
        read_gpt2(tmp_path / "noise")
    with pytest.raises(ValueError, match=r"no matrix wte.weight and no wpe.weight"):
        read_gpt2(saved(tmp_path, {"weight": np.zeros(3, np.float32)}))
    with pytest.raises(ValueError, match="Pass heads"):
        read_gpt2(saved(tmp_path, weights()))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[]", "must be a table of settings"),
        ("null", "must be a table of settings"),
        ("{", "is not JSON"),
        ("", "is not JSON"),
        ("[" * 100_000, "is not JSON"),
        ('{"n_head": "x"}', "n_head is 'x'"),
        ('{"n_head": -2}', "n_head is -2"),
        ('{"n_head": 2, "activation_function": ["gelu"]}', "activation is"),
        ('{"n_head": 2, "layer_norm_epsilon": {}}', "layer_norm_epsilon is {}"),
    ],
    ids=["list", "null", "torn", "empty", "deep", "text", "negative", "lists", "table"],
)
def test_a_config_that_is_none_is_refused(tmp_path, text, message):
    path = saved(tmp_path, weights())
    path.with_suffix(".json").write_text(text)
    with pytest.raises(ValueError, match=message):
        read_gpt2(path)


def test_a_layer_with_a_huge_number_is_refused_at_once(tmp_path):
    arrays = weights() | {"h.99999999999.ln_1.weight": np.zeros(3, np.float32)}
    with pytest.raises(ValueError, match="lacks layers: it has number 99999999999"):
        read_gpt2(saved(tmp_path, arrays), heads=2)
