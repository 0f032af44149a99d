"""GPT: a causal language model (Radford et al. 2019), tokens [..., T] to logits [..., T, V].

Pre-norm blocks, learned positions, the embedding as the head. The weights of all blocks lie
stacked, leaves [layers, ...], so that one compiled block serves every layer. Sizes by name, with
the parameters they have at this vocabulary and block:

    name   layers  heads  width  vocabulary  block   parameters
    0.2M        4      2     64         256    128      224,640
    0.5M        4      3     96         256    128      484,416
    1M          5      4    128         256    256    1,057,152
    3M          6      6    192        1024    256    2,915,328
    10M         8      5    320        1024    256   10,273,920
    30M         6      6    384       50304   1024   30,357,504
    70M        14      8    512       50304   1024   70,414,336
    124M       12     12    768       50257   1024  124,439,808
    150M       16     12    768       50304   1024  152,827,392
    250M       16     16   1024       50304   1024  254,101,504

124M is the smallest published GPT-2. `sampling.py` draws text from a model, `weights.py` reads
published weights. The tests compare it with plain loops (`tests/nets/gpt/gpt_loop.py`).
"""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp

# exact: x·Φ(x), as in nanoGPT. tanh: the approximation that GPT-2 was trained with ("gelu_new").
GELUS = ("exact", "tanh")


class Size(NamedTuple):
    """The layers, heads and width of a model."""

    layers: int
    heads: int
    width: int


SIZES = {
    "0.2M": Size(4, 2, 64),
    "0.5M": Size(4, 3, 96),
    "1M": Size(5, 4, 128),
    "3M": Size(6, 6, 192),
    "10M": Size(8, 5, 320),
    "30M": Size(6, 6, 384),
    "70M": Size(14, 8, 512),
    "124M": Size(12, 12, 768),
    "150M": Size(16, 12, 768),
    "250M": Size(16, 16, 1024),
}


class Norm(eqx.Module):
    """Layer normalization over the last axis, in x's own type, whatever `compute` is."""

    scale: jax.Array
    bias: jax.Array

    def __call__(self, x: jax.Array) -> jax.Array:
        centered = x - x.mean(-1, keepdims=True)
        variance = (centered * centered).mean(-1, keepdims=True)
        return centered * jax.lax.rsqrt(variance + 1e-5) * self.scale + self.bias


class Affine(eqx.Module):
    """x @ weight + bias; the product in `compute`, summed in x's own type."""

    weight: jax.Array
    bias: jax.Array

    def __call__(self, x: jax.Array, compute) -> jax.Array:
        # One row a token: with two axes to sum over, the weights' gradient takes twice as long.
        rows = x.reshape(-1, x.shape[-1])
        y = product(rows, self.weight, compute) + self.bias
        return y.reshape(*x.shape[:-1], -1)


class Block(eqx.Module):
    """Attention, then two layers of an MLP, each added to the stream; or all blocks, stacked."""

    norm_1: Norm
    qkv: Affine
    out: Affine
    norm_2: Norm
    up: Affine
    down: Affine

    def heads(self, x: jax.Array, heads: int, compute) -> list[jax.Array]:
        """Return queries, keys and values [B, heads, T, width / heads]; queries scaled."""
        batch, time, width = x.shape
        q, k, v = jnp.split(self.qkv(self.norm_1(x), compute), 3, -1)
        q = q * (width // heads) ** -0.5
        return [y.reshape(batch, time, heads, -1).swapaxes(1, 2) for y in (q, k, v)]

    def rest(self, x: jax.Array, attended: jax.Array, gelu: str, compute) -> jax.Array:
        """Return the stream [B, T, width] after this block, from `attended` [B, heads, T, ...]."""
        x = x + self.out(attended.swapaxes(1, 2).reshape(x.shape), compute)
        inner = jax.nn.gelu(self.up(self.norm_2(x), compute), approximate=gelu == "tanh")
        return x + self.down(inner, compute)


class GPT(eqx.Module):
    """Maps tokens [..., T], T ≤ block, to logits [..., T, V] for the token after each.

    Parameters are float32. `compute="bfloat16"` rounds the factors of all matrix products, whose
    sums stay float32, as do normalization, softmax and logits. With `checkpoint`, the gradient
    computes each block anew instead of keeping what is inside it: a third more arithmetic, a
    fifth of the memory. None means yes on the CPU, where that is also faster (1.2 to 1.8 times,
    from 0.2M to 30M), since without it the intermediates do not fit into the caches.
    """

    tokens: jax.Array
    positions: jax.Array
    blocks: Block
    norm: Norm
    heads: int = eqx.field(static=True)
    gelu: str = eqx.field(static=True)
    compute: str | None = eqx.field(static=True)
    checkpoint: bool | None = eqx.field(static=True)

    def __init__(
        self,
        vocabulary: int,
        block: int,
        size: str | tuple[int, int, int],
        key: jax.Array,
        *,
        gelu: str = "exact",
        compute: str | None = None,
        checkpoint: bool | None = None,
    ) -> None:
        layers, heads, width = shape_of(vocabulary, block, size, gelu, compute)
        keys = iter(jax.random.split(key, 6))

        def normal(*shape: int, deviation: float = 0.02) -> jax.Array:
            return jax.random.normal(next(keys), shape, jnp.float32) * jnp.float32(deviation)

        def affine(inputs: int, outputs: int, deviation: float = 0.02) -> Affine:
            weight = normal(layers, inputs, outputs, deviation=deviation)
            return Affine(weight, jnp.zeros((layers, outputs), jnp.float32))

        def norm(*shape: int) -> Norm:
            return Norm(jnp.ones(shape, jnp.float32), jnp.zeros(shape, jnp.float32))

        # 2·layers branches are added to the stream, so each begins smaller by the root of that.
        added = 0.02 / (2 * layers) ** 0.5
        self.tokens, self.positions = normal(vocabulary, width), normal(block, width)
        self.blocks = Block(
            norm_1=norm(layers, width),
            qkv=affine(width, 3 * width),
            out=affine(width, width, added),
            norm_2=norm(layers, width),
            up=affine(width, 4 * width),
            down=affine(4 * width, width, added),
        )
        self.norm = norm(width)
        self.heads, self.gelu = heads, gelu
        self.compute, self.checkpoint = compute, checkpoint

    @property
    def vocabulary(self) -> int:
        return self.tokens.shape[0]

    @property
    def block(self) -> int:
        """The most tokens that the model reads at once."""
        return self.positions.shape[0]

    @property
    def layers(self) -> int:
        return self.blocks.qkv.weight.shape[0]

    def __call__(self, tokens: jax.Array) -> jax.Array:
        *leading, time = tokens.shape
        if not 1 <= time <= self.block:
            raise ValueError(
                f"gpt: received {time} tokens in a row, and the model sees 1 to {self.block}. Cut "
                f"them into windows, or make a model with a larger block."
            )
        x, _ = self.stream(tokens.reshape(-1, time))
        return self.logits(x).reshape(*leading, time, -1)

    def stream(self, tokens: jax.Array, keep: bool = False) -> tuple[jax.Array, Any]:
        """Return the stream [B, T, width] after all blocks; with `keep`, keys and values too."""
        time = tokens.shape[-1]
        mask = jnp.tril(jnp.ones((time, time), bool))

        def layer(x, block):
            q, k, v = block.heads(x, self.heads, self.compute)
            x = block.rest(x, attend(q, k, v, mask, self.compute), self.gelu, self.compute)
            return x, (k, v) if keep else None

        recompute = self.checkpoint
        if recompute is None:
            recompute = jax.default_backend() == "cpu"
        # The gradient of a scan needs no barrier against common subexpressions.
        body = jax.checkpoint(layer, prevent_cse=False) if recompute else layer
        return jax.lax.scan(body, self.tokens[tokens] + self.positions[:time], self.blocks)

    def logits(self, x: jax.Array) -> jax.Array:
        """Return the logits [..., V] at a stream [..., width]."""
        rows = self.norm(x).reshape(-1, x.shape[-1])
        return product(rows, self.tokens.T, self.compute).reshape(*x.shape[:-1], -1)


def attend(q, k, v, mask, compute) -> jax.Array:
    """Return softmax(q kᵀ) v, over the keys where `mask` [..., Tq, Tk] is true, at least one."""
    scores = jnp.where(mask, product(q, k.swapaxes(-1, -2), compute), -jnp.inf)
    # Divided by their sum after the second product, when there are fewer numbers to divide.
    most = jax.lax.stop_gradient(scores.max(-1, keepdims=True))
    shares = jnp.exp(scores - most)
    return product(shares, v, compute) / shares.sum(-1, keepdims=True)


def product(x: jax.Array, y: jax.Array, compute: str | None) -> jax.Array:
    """Return x @ y in x's type; with `compute`, of factors rounded to that type."""
    if compute is None:
        return x @ y
    dtype = jnp.dtype(compute)
    return jnp.matmul(x.astype(dtype), y.astype(dtype), preferred_element_type=x.dtype)


def parameters(model) -> int:
    """Return how many numbers a model (or its shapes) learns."""
    return sum(leaf.size for leaf in jax.tree.leaves(model))


def shape_of(vocabulary, block, size, gelu, compute) -> Size:
    """Return the body that `size` names or lists, or raise ValueError with all problems."""
    problems = [
        f"{name} must be an integer of at least 1; received {value!r}"
        for name, value in (("vocabulary", vocabulary), ("block", block))
        if not _is_count(value)
    ]
    body = SIZES.get(size) if isinstance(size, str) else Size(*size)
    if body is None:
        problems.append(f"size={size!r} is unknown; choose {', '.join(SIZES)}, or pass a Size")
    elif not all(map(_is_count, body)):
        problems.append(
            f"layers, heads and width must be integers of at least 1; received {tuple(body)}"
        )
    elif body.width % body.heads:
        problems.append(f"a width of {body.width} does not divide among {body.heads} heads")
    if gelu not in GELUS:
        problems.append(f"gelu={gelu!r} is unknown; choose {' or '.join(GELUS)}")
    if compute not in (None, "bfloat16", "float16", "float32"):
        problems.append(
            f"compute={compute!r} is unknown; choose None, bfloat16, float16 or float32"
        )
    if problems:
        raise ValueError(f"gpt: {'; '.join(problems)}.")
    assert body is not None
    return body


def _is_count(value) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1
