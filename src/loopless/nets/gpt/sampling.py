"""Sampling of text from a GPT, a chunk of tokens at a time, with a cache of keys and values.

Two programs are compiled, whatever the prompt: one reads a window of the model's full length,
padded; the other writes up to `chunk` tokens. Token number n is drawn with fold_in(key, n), so that
the text depends on the seed alone and not on the chunks. The tests compare it with the plain model,
called anew for every token.
"""

from collections.abc import Iterator
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from loopless.nets.gpt.model import GPT, attend


class KVCache(NamedTuple):
    """Keys and values [layers, B, heads, block, width / heads] of the first `length` tokens.

    Entries after `length` are never read.
    """

    keys: jax.Array
    values: jax.Array
    length: jax.Array


def prefill(model: GPT, window: jax.Array, length) -> KVCache:
    """Return the cache after `length` tokens of `window` [B, block]; the rest is padding."""
    _, (keys, values) = model.stream(window, keep=True)
    return KVCache(keys, values, jnp.asarray(length, jnp.int32))


def decode(model: GPT, tokens: jax.Array, cache: KVCache) -> tuple[jax.Array, KVCache]:
    """Return logits [B, V] after one more token for each text [B], and the cache with it.

    The cache must have room for it: length < block.
    """
    keys, values, length = cache
    mask, zero = jnp.arange(model.block) <= length, jnp.zeros_like(length)

    def layer(carry, numbered_block):
        (x, keys, values), (i, block) = carry, numbered_block
        q, k, v = block.heads(x, model.heads, model.compute)
        place = (i, zero, zero, length, zero)
        keys = jax.lax.dynamic_update_slice(keys, k[None], place)
        values = jax.lax.dynamic_update_slice(values, v[None], place)
        attended = attend(q, keys[i], values[i], mask, model.compute)
        return (block.rest(x, attended, model.gelu, model.compute), keys, values), None

    x = (model.tokens[tokens] + model.positions[length])[:, None]
    layers = jnp.arange(model.layers, dtype=jnp.int32)
    (x, keys, values), _ = jax.lax.scan(layer, (x, keys, values), (layers, model.blocks))
    return model.logits(x[:, 0]), KVCache(keys, values, length + 1)


class Rules(NamedTuple):
    """How a token is chosen from logits."""

    key: jax.Array
    temperature: jax.Array
    repetition_penalty: jax.Array


def choose(logits, occurred, index, rules: Rules, top_k: int | None) -> jax.Array:
    """Return token number `index` of each text; `occurred` [B, V] marks the tokens before it.

    First the penalty (Keskar et al. 2019: a positive logit of such a token is divided by it, a
    negative one multiplied), then temperature, then the `top_k` most likely. Temperature 0 takes
    the most likely token.
    """
    penalized = jnp.where(
        logits > 0, logits / rules.repetition_penalty, logits * rules.repetition_penalty
    )
    logits = jnp.where(occurred, penalized, logits)
    greedy = rules.temperature == 0
    scaled = logits / jnp.where(greedy, 1, rules.temperature)
    if top_k is not None:
        least = jax.lax.top_k(scaled, min(top_k, scaled.shape[-1]))[0][:, -1:]
        scaled = jnp.where(scaled < least, -jnp.inf, scaled)
    token = jax.random.categorical(jax.random.fold_in(rules.key, index), scaled)
    return jnp.where(greedy, logits.argmax(-1), token).astype(jnp.int32)


class _State(NamedTuple):
    """A text so far: the cache of all but its last token, that token, and which occurred."""

    cache: KVCache
    last: jax.Array
    occurred: jax.Array


_prefill = eqx.filter_jit(prefill)


@eqx.filter_jit(donate="all-except-first")
def _write(fixed, state: _State, first, count, chunk: int) -> tuple[jax.Array, _State]:
    """Write `count` ≤ chunk tokens, numbered from `first` on, to an array [B, chunk]."""
    model, rules, top_k = fixed
    rows = jnp.arange(state.last.shape[0])

    def step(i, carry):
        state, text = carry
        logits, cache = decode(model, state.last, state.cache)
        token = choose(logits, state.occurred, first + i, rules, top_k)
        occurred = state.occurred.at[rows, token].set(True)
        return _State(cache, token, occurred), text.at[:, i].set(token)

    text = jnp.zeros((rows.size, chunk), jnp.int32)
    # A loop of traced length: the last piece before a full cache compiles nothing new.
    state, text = jax.lax.fori_loop(0, count, step, (state, text))
    return text, state


def stream(
    model: GPT,
    tokens,
    n: int,
    key: jax.Array,
    *,
    temperature: float = 1.0,
    top_k: int | None = None,
    repetition_penalty: float = 1.0,
    chunk: int = 32,
) -> Iterator[np.ndarray]:
    """Yield `n` tokens after `tokens` [T] or [B, T], in pieces [c] or [B, c] of up to `chunk`.

    The model reads the text so far, up to its block. Once that is full it goes on with the newest
    half, which is read anew. A longer prompt is cut to its newest `block` tokens.
    """
    tokens = _check(model, tokens, n, temperature, top_k, repetition_penalty, chunk)
    numbers = [jnp.asarray(x, jnp.float32) for x in (temperature, repetition_penalty)]
    return _pieces((model, Rules(key, *numbers), top_k), tokens, n, chunk)


def sample(
    model: GPT,
    tokens,
    n: int,
    key: jax.Array,
    *,
    temperature: float = 1.0,
    top_k: int | None = None,
    repetition_penalty: float = 1.0,
) -> np.ndarray:
    """Return `n` tokens [n] or [B, n] after `tokens` [T] or [B, T]: `stream`, all at once."""
    pieces = stream(
        model,
        tokens,
        n,
        key,
        temperature=temperature,
        top_k=top_k,
        repetition_penalty=repetition_penalty,
        chunk=model.block,
    )
    return np.concatenate(list(pieces), -1)


def _pieces(fixed: tuple, tokens: np.ndarray, n: int, chunk: int) -> Iterator[np.ndarray]:
    model: GPT = fixed[0]
    text, block = np.atleast_2d(tokens), model.block
    occurred = np.zeros((len(text), model.vocabulary), bool)
    np.put_along_axis(occurred, text, True, 1)
    state, length = _read(model, text[:, -block:], occurred)
    written = 0
    while written < n:
        if length == block:
            state, length = _read(model, text[:, -max(1, block // 2) :], state.occurred)
        count = min(chunk, n - written, block - length)
        new, state = _write(fixed, state, _int32(written), _int32(count), chunk)
        new = np.asarray(new)[:, :count]
        text = np.concatenate([text, new], 1)[:, -block:]
        written, length = written + count, length + count
        yield new if tokens.ndim == 2 else new[0]


def _read(model: GPT, text: np.ndarray, occurred) -> tuple[_State, int]:
    """Return the state after `text` [B, T], T ≤ block, and how many tokens are in its cache."""
    window = np.pad(text[:, :-1], ((0, 0), (0, model.block - text.shape[1] + 1)))
    cache = _prefill(model, jnp.asarray(window), _int32(text.shape[1] - 1))
    return _State(cache, jnp.asarray(text[:, -1]), jnp.asarray(occurred)), text.shape[1] - 1


def _int32(number: int) -> jax.Array:
    return jnp.asarray(number, jnp.int32)


def _check(model: GPT, tokens, n, temperature, top_k, repetition_penalty, chunk) -> np.ndarray:
    """Return `tokens` as int32, or raise ValueError with all problems."""
    tokens = np.asarray(tokens)
    problems = []
    if tokens.ndim not in (1, 2) or tokens.size == 0:
        problems.append(
            f"tokens has shape {tokens.shape}, expected [T] or [B, T] with at least one token "
            f"(a tokenizer's `end` begins a new text)"
        )
    elif tokens.dtype.kind not in "iu":
        problems.append(f"tokens are integers; received {tokens.dtype}")
    elif tokens.min() < 0 or tokens.max() >= model.vocabulary:
        problems.append(
            f"tokens go from {tokens.min()} to {tokens.max()}, and the model's vocabulary from 0 "
            f"to {model.vocabulary - 1}"
        )
    counts = {"n": n, "chunk": chunk} | ({} if top_k is None else {"top_k": top_k})
    for name, value in counts.items():
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            problems.append(f"{name} must be an integer of at least 1; received {value!r}")
    if not 0 <= temperature < np.inf:
        problems.append(f"temperature must be at least 0; received {temperature}")
    if not 0 < repetition_penalty < np.inf:
        problems.append(f"repetition_penalty must be above 0; received {repetition_penalty}")
    if problems:
        raise ValueError(f"sample: {'; '.join(problems)}.")
    return tokens.astype(np.int32)
