"""Text from a GPT, a chunk of tokens at a time: the keys and values of the past are kept.

Two programs are compiled, whatever the prompt: one reads a window of the model's full length,
padded; the other writes up to `chunk` tokens. Token number n is drawn with fold_in(key, n), so that
what is written depends on the seed alone and not on the chunks. Imports `gpt`. Compared with the
plain model, called anew for every token, in `tests/nets/test_gpt_sampling.py`.
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

    What stands behind `length` is never looked at.
    """

    keys: jax.Array
    values: jax.Array
    length: jax.Array


def prefill(model: GPT, window: jax.Array, length) -> KVCache:
    """The cache after the first `length` tokens of `window` [B, block]; the rest is padding."""
    _, (keys, values) = model.stream(window, keep=True)
    return KVCache(keys, values, jnp.asarray(length, jnp.int32))


def decode(model: GPT, tokens: jax.Array, cache: KVCache) -> tuple[jax.Array, KVCache]:
    """Logits [B, V] after one more token for each row [B], and the cache with it.

    The cache has room for it: length < block.
    """
    keys, values, length = cache
    mask, zero = jnp.arange(model.block) <= length, jnp.zeros_like(length)

    def layer(carry, own):
        (x, keys, values), (i, block) = carry, own
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


def choose(logits, seen, index, rules: Rules, top_k: int | None) -> jax.Array:
    """Token number `index` of each row; `seen` [B, V] marks the tokens before it.

    First the penalty (Keskar et al. 2019: a positive logit of a seen token is divided by it, a
    negative one multiplied), then temperature, then the `top_k` most likely. Temperature 0 takes
    the most likely token.
    """
    penalised = jnp.where(
        logits > 0, logits / rules.repetition_penalty, logits * rules.repetition_penalty
    )
    logits = jnp.where(seen, penalised, logits)
    greedy = rules.temperature == 0
    scaled = logits / jnp.where(greedy, 1, rules.temperature)
    if top_k is not None:
        least = jax.lax.top_k(scaled, min(top_k, scaled.shape[-1]))[0][:, -1:]
        scaled = jnp.where(scaled < least, -jnp.inf, scaled)
    drawn = jax.random.categorical(jax.random.fold_in(rules.key, index), scaled)
    return jnp.where(greedy, logits.argmax(-1), drawn).astype(jnp.int32)


class _State(NamedTuple):
    """A text so far: the cache of all but its last token, that token, and which occurred."""

    cache: KVCache
    last: jax.Array
    seen: jax.Array


_prefill = eqx.filter_jit(prefill)


@eqx.filter_jit(donate="all-except-first")
def _write(fixed, state: _State, first, count, chunk: int) -> tuple[jax.Array, _State]:
    """`count` ≤ chunk tokens, numbered from `first` on, in an array [B, chunk]."""
    model, rules, top_k = fixed
    rows = jnp.arange(state.last.shape[0])

    def step(i, carry):
        state, written = carry
        logits, cache = decode(model, state.last, state.cache)
        token = choose(logits, state.seen, first + i, rules, top_k)
        seen = state.seen.at[rows, token].set(True)
        return _State(cache, token, seen), written.at[:, i].set(token)

    written = jnp.zeros((rows.size, chunk), jnp.int32)
    # A loop of traced length: the last piece before a full cache compiles nothing new.
    state, written = jax.lax.fori_loop(0, count, step, (state, written))
    return written, state


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
    """`n` tokens after `tokens` [T] or [B, T], in pieces [c] or [B, c] of up to `chunk` tokens.

    The model sees what was written so far, up to its block. Once that is full it goes on with the
    newest half, which is read anew. A longer prompt is cut to its newest `block` tokens.
    """
    tokens = _checked(model, tokens, n, temperature, top_k, repetition_penalty, chunk)
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
    """`n` tokens [n] or [B, n] after `tokens` [T] or [B, T]: `stream`, all at once."""
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
    seen = np.zeros((len(text), model.vocabulary), bool)
    np.put_along_axis(seen, text, True, 1)
    state, length = _read(model, text[:, -block:], seen)
    written = 0
    while written < n:
        if length == block:
            state, length = _read(model, text[:, -max(1, block // 2) :], state.seen)
        count = min(chunk, n - written, block - length)
        new, state = _write(fixed, state, _int32(written), _int32(count), chunk)
        new = np.asarray(new)[:, :count]
        text = np.concatenate([text, new], 1)[:, -block:]
        written, length = written + count, length + count
        yield new if tokens.ndim == 2 else new[0]


def _read(model: GPT, text: np.ndarray, seen) -> tuple[_State, int]:
    """The state after `text` [B, T], T ≤ block, and how many tokens are in its cache."""
    window = np.pad(text[:, :-1], ((0, 0), (0, model.block - text.shape[1] + 1)))
    cache = _prefill(model, jnp.asarray(window), _int32(text.shape[1] - 1))
    return _State(cache, jnp.asarray(text[:, -1]), jnp.asarray(seen)), text.shape[1] - 1


def _int32(number: int) -> jax.Array:
    return jnp.asarray(number, jnp.int32)


def _checked(model: GPT, tokens, n, temperature, top_k, repetition_penalty, chunk) -> np.ndarray:
    """`tokens` as int32; ValueError with all that cannot be."""
    tokens = np.asarray(tokens)
    problems = []
    if tokens.ndim not in (1, 2) or tokens.size == 0:
        problems.append(
            f"tokens has shape {tokens.shape}, expected [T] or [B, T] with one token at least "
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
        problems.append(f"temperature is 0 or more; received {temperature}")
    if not 0 < repetition_penalty < np.inf:
        problems.append(f"repetition_penalty is more than 0; received {repetition_penalty}")
    if problems:
        raise ValueError(f"sample: {'; '.join(problems)}.")
    return tokens.astype(np.int32)
