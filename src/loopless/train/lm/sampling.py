"""`loopless sample RUN`: text from a trained language model, piece by piece as it is generated.

`nets/gpt/sampling.py` generates the tokens; here they become text, and a prompt becomes tokens.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from loopless.nets.gpt.model import GPT
from loopless.nets.gpt.sampling import Rules, choose, stream
from loopless.runs.failures import BadConfig
from loopless.text.tokenizer import Decoder, Tokenizer
from loopless.train.engine.options import range_problems
from loopless.train.lm.algorithm import load_model
from loopless.train.lm.config import TextOptions
from loopless.train.lm.data import load_tokenizer

TOKENS_PER_CALL = 8


class SamplingOptions(NamedTuple):
    """How tokens are chosen."""

    tokens: int
    temperature: float
    top_k: int | None
    repetition_penalty: float
    seed: int

    def problems(self) -> list[str]:
        """Return what is wrong with the options, one sentence for each problem."""
        least = {"tokens": 1, "top_k": 1, "temperature": 0, "seed": 0}
        problems = range_problems(self, least, positive=("repetition_penalty",))
        problems += [
            f"{name} must be finite; received {value}."
            for name in ("temperature", "repetition_penalty")
            if (value := getattr(self, name)) == float("inf")
        ]
        if self.seed >= 1 << 63:
            problems.append(f"seed must be below 2⁶³; received {self.seed}.")
        return problems


def sample(
    folder: Path,
    config: TextOptions,
    weights: Mapping[str, Any],
    prompt: str,
    options: SamplingOptions,
) -> Iterator[str]:
    """Yield the prompt, then what the model writes after it, up to the end of a document."""
    tokenizer = load_tokenizer(folder)
    if tokenizer is None:
        raise BadConfig(
            [f"{folder} was trained on tokens without a tokenizer, so it cannot write text."]
        )
    return _generate_text(load_model(config, weights), tokenizer, prompt, options)


def _generate_text(
    model: GPT, tokenizer: Tokenizer, prompt: str, options: SamplingOptions
) -> Iterator[str]:
    yield prompt
    ids, after_space = _encode_prompt(tokenizer, prompt)
    decoder, is_first = Decoder(tokenizer), True
    for part in _generate_ids(model, tokenizer, ids, after_space, options):
        ends = np.flatnonzero(part == tokenizer.end)
        text = decoder.feed(part[: ends[0]] if len(ends) else part, last=bool(len(ends)))
        # The first word brings the space that the prompt, printed above, already ends with.
        yield text[1:] if is_first and after_space else text
        is_first = False
        if len(ends):
            return
    yield decoder.feed([], last=True)


def _encode_prompt(tokenizer: Tokenizer, prompt: str) -> tuple[np.ndarray, bool]:
    """Return the ids of a prompt, and whether its last space is left to the first new token.

    The pieces of a bpe tokenizer begin with the space before a word, so a lone space at the end of
    a prompt would be a token that never stands before a word.
    """
    after_space = tokenizer.kind == "bpe" and prompt.endswith(" ")
    ids = tokenizer.encode(prompt[:-1] if after_space else prompt)
    return (ids if len(ids) else np.array([tokenizer.end])), after_space


def _generate_ids(
    model: GPT,
    tokenizer: Tokenizer,
    ids: np.ndarray,
    after_space: bool,
    options: SamplingOptions,
) -> Iterator[np.ndarray]:
    key, count = jax.random.key(options.seed), options.tokens
    if after_space:
        token = _choose_after_space(model, tokenizer, ids, jax.random.fold_in(key, 0), options)
        yield token
        ids, count, key = np.append(ids, token), count - 1, jax.random.fold_in(key, 1)
    if count:
        yield from stream(
            model, ids, count, key, temperature=options.temperature, top_k=options.top_k,
            repetition_penalty=options.repetition_penalty, chunk=TOKENS_PER_CALL,
        )  # fmt: skip


@eqx.filter_jit
def _last_logits(model: GPT, ids: jax.Array) -> jax.Array:
    return model(ids)[-1]


def _choose_after_space(
    model: GPT, tokenizer: Tokenizer, ids: np.ndarray, key: jax.Array, options: SamplingOptions
) -> np.ndarray:
    """Choose one token [1] among those that begin with a space."""
    allowed = np.array([piece.startswith(b" ") for piece in tokenizer.pieces])
    logits = _last_logits(model, jnp.asarray(ids[-model.block :], jnp.int32))
    logits = jnp.where(allowed, logits, -jnp.inf)[None]
    is_used = np.zeros((1, len(allowed)), bool)
    is_used[0, ids] = True
    numbers = map(jnp.float32, (options.temperature, options.repetition_penalty))
    rules, top_k = Rules(key, *numbers), options.top_k
    top_k = top_k and min(top_k, int(allowed.sum()))
    return np.asarray(choose(logits, is_used, np.int32(0), rules, top_k))
