"""Weights in the format of the published GPT-2 models, to and from our `GPT`.

It is a safetensors file with `wte.weight`, `wpe.weight`, `h.0.ln_1.weight`, …, `ln_f.bias`, with or
without the prefix "transformer."; matrices are [in, out], as ours are. The number of heads and the
kind of GELU stand in the `config.json` beside it; without one, they are GPT-2's.
"""

import json
import re
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from loopless.files import atomic
from loopless.nets.gpt.model import GPT, Size

_OUTER = {"wte.weight": "tokens", "wpe.weight": "positions"} | {
    f"ln_f.{theirs}": f"norm.{ours}" for theirs, ours in (("weight", "scale"), ("bias", "bias"))
}
_INNER = {
    f"{theirs}.{kind}": f"{ours}.{'scale' if 'norm' in ours and kind == 'weight' else kind}"
    for theirs, ours in (
        ("ln_1", "norm_1"),
        ("attn.c_attn", "qkv"),
        ("attn.c_proj", "out"),
        ("ln_2", "norm_2"),
        ("mlp.c_fc", "up"),
        ("mlp.c_proj", "down"),
    )
    for kind in ("weight", "bias")
}
LARGEST_CONFIG = 1 << 20  # bytes
_MASKS = re.compile(r"h\.\d+\.attn\.(masked_)?bias")  # the causal mask, which older files hold
_GELUS = {"gelu_new": "tanh", "gelu_pytorch_tanh": "tanh", "gelu": "exact"}


def read_gpt2(
    path, *, heads: int | None = None, compute: str | None = None, checkpoint: bool | None = None
) -> GPT:
    """Return the model in a GPT-2-format safetensors file, in float32.

    `heads` is needed where there is no config.json and the heads are not 64 wide, as GPT-2's are.
    """
    from safetensors import SafetensorError, safe_open

    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"gpt2: there is no file {path}.")
    config = _config(path)
    try:
        with safe_open(path, "flax") as file:  # NumPy has no bfloat16
            shapes, names = _names(path, file)
            size = _size(path, shapes, heads or config.get("n_head"))
            gelu = _GELUS[config.get("activation_function", "gelu_new")]
            vocabulary, block = shapes["wte.weight"][0], shapes["wpe.weight"][0]
            model = eqx.filter_eval_shape(
                GPT, vocabulary, block, size, jax.random.key(0),
                gelu=gelu, compute=compute, checkpoint=checkpoint,
            )  # fmt: skip
            _check(path, shapes, model, size)

            def array(name: str) -> np.ndarray:
                return np.asarray(file.get_tensor(names[name]), np.float32)

            def leaf(place, expected) -> jax.Array:
                ours = jax.tree_util.keystr(place, simple=True, separator=".")
                if not ours.startswith("blocks."):
                    return jnp.asarray(array(_theirs(_OUTER, ours)))
                theirs, stacked = _theirs(_INNER, ours[7:]), np.empty(expected.shape, np.float32)
                for layer in range(size.layers):
                    stacked[layer] = array(f"h.{layer}.{theirs}")
                return jnp.asarray(stacked)

            if "lm_head.weight" in shapes and not np.array_equal(
                array("lm_head.weight"), array("wte.weight")
            ):
                raise ValueError(
                    f"gpt2: the head (lm_head.weight) of {path} is not its embedding (wte.weight), "
                    f"and this model has one for both. Use a model whose embeddings are tied."
                )
            return jax.tree_util.tree_map_with_path(leaf, model)
    except SafetensorError as error:
        raise ValueError(f"gpt2: {path} is not a safetensors file ({error}).") from error


def gpt2_form(model: GPT) -> tuple[dict[str, np.ndarray], dict]:
    """Return the arrays of a model by GPT-2's names, and the contents of its config.json.

    `read_gpt2` reads them again, bit for bit, as do other tools that know GPT-2.
    """
    leaves = jax.tree_util.tree_flatten_with_path(model)[0]
    ours = {jax.tree_util.keystr(p, simple=True, separator="."): np.asarray(x) for p, x in leaves}
    arrays = {theirs: ours[name] for theirs, name in _OUTER.items()}
    for layer in range(model.layers):
        for theirs, name in _INNER.items():
            arrays[f"h.{layer}.{theirs}"] = ours[f"blocks.{name}"][layer]
    return arrays, {
        "model_type": "gpt2",
        "vocab_size": model.vocabulary,
        "n_positions": model.block,
        "n_embd": model.tokens.shape[1],
        "n_layer": model.layers,
        "n_head": model.heads,
        "activation_function": {"tanh": "gelu_new", "exact": "gelu"}[model.gelu],
        "layer_norm_epsilon": 1e-5,
        "tie_word_embeddings": True,
    }


def _config(path: Path) -> dict:
    """Return the contents of the JSON file with the model's name, or of config.json, if any."""
    names = path.with_suffix(".json"), path.with_name("config.json")
    beside = next((name for name in names if name.is_file()), None)
    if beside is None:
        return {}
    try:
        config = json.loads(atomic.read_small(beside, LARGEST_CONFIG))
    except (ValueError, OSError, RecursionError) as error:
        raise ValueError(f"gpt2: {beside} is not JSON ({error}).") from None
    if not isinstance(config, dict):
        raise ValueError(f"gpt2: {beside} must be a table of settings; received {config!r:.60}.")
    problems = []
    heads = config.get("n_head")
    if heads is not None and not (type(heads) is int and 0 < heads < 2**16):
        problems.append(f"its n_head is {heads!r:.60}, not a number of heads")
    if (gelu := config.get("activation_function", "gelu_new")) not in list(_GELUS):
        problems.append(f"its activation is {gelu!r:.60}, not one of {', '.join(_GELUS)}")
    if (epsilon := config.get("layer_norm_epsilon", 1e-5)) != 1e-5:
        problems.append(f"its layer_norm_epsilon is {epsilon!r:.60}, not 1e-5")
    if problems:
        raise ValueError(f"gpt2: {beside}: {'; '.join(problems)}. Use a model of GPT-2's form.")
    return config


def _names(path: Path, file) -> tuple[dict[str, tuple[int, ...]], dict[str, str]]:
    """Return the shape of each array and its name in the file, by its name without a prefix."""
    names = {name.removeprefix("transformer."): name for name in file.keys()}  # noqa: SIM118
    names = {short: name for short, name in names.items() if not _MASKS.fullmatch(short)}
    shapes = {short: tuple(file.get_slice(name).get_shape()) for short, name in names.items()}
    missing = [name for name in ("wte.weight", "wpe.weight") if len(shapes.get(name, ())) != 2]
    if missing:
        raise ValueError(
            f"gpt2: {path} has no matrix {' and no '.join(missing)}; it holds "
            f"{', '.join(sorted(names)[:4]) or 'nothing'}, …. Use a file of GPT-2's form."
        )
    return shapes, names


def _size(path: Path, shapes, heads: int | None) -> Size:
    layers = {int(match[1]) for name in shapes if (match := re.match(r"h\.(\d+)\.", name))}
    width = shapes["wte.weight"][1]
    if layers != set(range(len(layers))):
        raise ValueError(
            f"gpt2: {path} lacks layers: it has number {max(layers)} of {len(layers)}."
        )
    if heads is None and width % 64:
        raise ValueError(
            f"gpt2: {path} has width {width}, which does not tell its number of heads (GPT-2's "
            f"are 64 wide). Pass heads=…, or put its config.json beside it."
        )
    return Size(max(layers, default=0) + 1, heads or width // 64, width)


def _check(path: Path, shapes, model, size: Size) -> None:
    """Raise ValueError with every array that is missing, unknown or of another shape."""
    leaves = jax.tree_util.tree_flatten_with_path(model)[0]
    ours = {jax.tree_util.keystr(p, simple=True, separator="."): x.shape for p, x in leaves}
    expected = {theirs: ours[name] for theirs, name in _OUTER.items()}
    for layer in range(size.layers):
        for theirs, name in _INNER.items():
            expected[f"h.{layer}.{theirs}"] = ours[f"blocks.{name}"][1:]
    known = expected | {"lm_head.weight": expected["wte.weight"]}
    problems = [f"{name} is missing" for name in expected if name not in shapes]
    problems += [f"{name} is unknown" for name in shapes if name not in known]
    problems += [
        f"{name} has shape {shapes[name]}, expected {shape}"
        for name, shape in known.items()
        if shapes.get(name, shape) != shape
    ]
    if problems:
        raise ValueError(f"gpt2: {path}: {'; '.join(problems)}. Use a file of GPT-2's form.")


def _theirs(table: dict[str, str], ours: str) -> str:
    return next(theirs for theirs, name in table.items() if name == ours)
