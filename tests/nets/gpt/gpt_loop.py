"""GPT-2's forward pass as plain loops over rows, heads and positions, in float64."""

from math import erf, sqrt, tanh

import numpy as np


def norm(x, scale, bias):
    mean = sum(x) / len(x)
    variance = sum((v - mean) ** 2 for v in x) / len(x)
    return (x - mean) / sqrt(variance + 1e-5) * scale + bias


def exact(x):
    return 0.5 * x * (1 + erf(x / sqrt(2)))


def gelu_new(x):
    return 0.5 * x * (1 + tanh(sqrt(2 / np.pi) * (x + 0.044715 * x**3)))


def logits(weights, tokens, heads, gelu):
    """[T] tokens to [T, V] logits, from arrays under GPT-2's names."""
    w = {name: np.asarray(array, np.float64) for name, array in weights.items()}
    width = w["wte.weight"].shape[1]
    size = width // heads
    x = [w["wte.weight"][token] + w["wpe.weight"][t] for t, token in enumerate(tokens)]
    layers = sum(name.endswith("ln_1.weight") for name in w)
    for i in range(layers):
        p = {name.removeprefix(f"h.{i}."): array for name, array in w.items()}
        normed = [norm(row, p["ln_1.weight"], p["ln_1.bias"]) for row in x]
        qkv = [row @ p["attn.c_attn.weight"] + p["attn.c_attn.bias"] for row in normed]
        after = []
        for t, row in enumerate(x):
            attended = []
            for head in range(heads):
                at = slice(head * size, (head + 1) * size)
                q = qkv[t][:width][at]
                scores = [q @ qkv[s][width : 2 * width][at] / sqrt(size) for s in range(t + 1)]
                shares = np.exp(np.array(scores) - max(scores))
                shares /= shares.sum()
                attended.append(sum(shares[s] * qkv[s][2 * width :][at] for s in range(t + 1)))
            mixed = np.concatenate(attended) @ p["attn.c_proj.weight"] + p["attn.c_proj.bias"]
            row = row + mixed
            inner = norm(row, p["ln_2.weight"], p["ln_2.bias"])
            inner = inner @ p["mlp.c_fc.weight"] + p["mlp.c_fc.bias"]
            inner = np.array([gelu(v) for v in inner])
            after.append(row + inner @ p["mlp.c_proj.weight"] + p["mlp.c_proj.bias"])
        x = after
    return np.array([norm(r, w["ln_f.weight"], w["ln_f.bias"]) @ w["wte.weight"].T for r in x])


def weights(vocabulary=11, block=8, layers=2, width=6, seed=0):
    """Random arrays under GPT-2's names, float32, large enough that every one matters."""
    rng = np.random.default_rng(seed)

    def draw(*shape, around=0.0):
        return (around + 0.3 * rng.normal(size=shape)).astype(np.float32)

    found = {
        "wte.weight": draw(vocabulary, width),
        "wpe.weight": draw(block, width),
        "ln_f.weight": draw(width, around=1),
        "ln_f.bias": draw(width),
    }
    shapes = {
        "attn.c_attn": (width, 3 * width),
        "attn.c_proj": (width, width),
        "mlp.c_fc": (width, 4 * width),
        "mlp.c_proj": (4 * width, width),
    }
    for i in range(layers):
        for name, shape in shapes.items():
            found[f"h.{i}.{name}.weight"] = draw(*shape)
            found[f"h.{i}.{name}.bias"] = draw(shape[1])
        for name in ("ln_1", "ln_2"):
            found[f"h.{i}.{name}.weight"] = draw(width, around=1)
            found[f"h.{i}.{name}.bias"] = draw(width)
    return found
