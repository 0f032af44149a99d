"""`loopless sample RUN`: text from a trained language model, as it is written.

Imports `lm`, `text_data` and `nets`. Tests: `tests/train/test_lm_commands.py`; that the kept keys
and values change nothing, in `tests/nets/test_gpt_sampling.py`.
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
from loopless.train.lm import text_data
from loopless.train.lm.algorithm import model_of
from loopless.train.lm.text_config import TextConfig

AT_ONCE = 8  # tokens of one call


class Manner(NamedTuple):
    """How tokens are chosen."""

    tokens: int
    temperature: float
    top_k: int | None
    repetition_penalty: float
    seed: int

    def problems(self) -> list[str]:
        wrong = [
            f"{name} is {value}; it is from 1 up."
            for name, value in (("tokens", self.tokens), ("top_k", self.top_k))
            if value is not None and value < 1
        ]
        if not 0 <= self.temperature < float("inf"):
            wrong.append(f"temperature is {self.temperature}; it is from 0 up, and finite.")
        if not 0 < self.repetition_penalty < float("inf"):
            wrong.append(f"repetition_penalty is {self.repetition_penalty}; it is above 0.")
        if not 0 <= self.seed < 1 << 63:
            wrong.append(f"seed is {self.seed}; it is from 0 up.")
        return wrong


def written(
    folder: Path, config: TextConfig, weights: Mapping[str, Any], prompt: str, manner: Manner
) -> Iterator[str]:
    """The prompt, then what the model writes after it, piece by piece, to the end of a document."""
    tokenizer = text_data.tokenizer_of(folder)
    if tokenizer is None:
        raise BadConfig([f"{folder} was trained on tokens without a tokenizer; it has no text."])
    model = model_of(config, weights)
    return _text(model, tokenizer, prompt, manner)


def _text(model: GPT, tokenizer: Tokenizer, prompt: str, manner: Manner) -> Iterator[str]:
    yield prompt
    ids, space = _started(tokenizer, prompt)
    decoder, first = Decoder(tokenizer), True
    for piece in _ids(model, tokenizer, ids, space, manner):
        ended = np.flatnonzero(piece == tokenizer.end)
        text = decoder.feed(piece[: ended[0]] if len(ended) else piece, last=bool(len(ended)))
        # The space that the prompt ends with came back with the first word.
        yield text[1:] if first and space else text
        first = False
        if len(ended):
            return
    yield decoder.feed([], last=True)


def _started(tokenizer: Tokenizer, prompt: str) -> tuple[np.ndarray, bool]:
    """The ids of a prompt, and whether what follows must begin with the space it ends with.

    Learnt pieces begin with the space before a word: left alone at the end, it would be a token
    that never stands before a word.
    """
    space = tokenizer.kind == "bpe" and prompt.endswith(" ")
    ids = tokenizer.encode(prompt[:-1] if space else prompt)
    return (ids if len(ids) else np.array([tokenizer.end])), space


def _ids(model: GPT, tokenizer, ids: np.ndarray, space: bool, manner: Manner) -> Iterator:
    key, count = jax.random.key(manner.seed), manner.tokens
    if space:
        one = _after_space(model, tokenizer, ids, jax.random.fold_in(key, 0), manner)
        yield one
        ids, count, key = np.append(ids, one), count - 1, jax.random.fold_in(key, 1)
    if count:
        yield from stream(
            model, ids, count, key, temperature=manner.temperature, top_k=manner.top_k,
            repetition_penalty=manner.repetition_penalty, chunk=AT_ONCE,
        )  # fmt: skip


@eqx.filter_jit
def _last_logits(model: GPT, ids: jax.Array) -> jax.Array:
    return model(ids)[-1]


def _after_space(model: GPT, tokenizer, ids: np.ndarray, key, manner: Manner) -> np.ndarray:
    """One token [1] among those that begin with a space."""
    allowed = np.array([piece.startswith(b" ") for piece in tokenizer.pieces])
    logits = _last_logits(model, jnp.asarray(ids[-model.block :], jnp.int32))
    logits = jnp.where(allowed, logits, -jnp.inf)[None]
    seen = np.zeros((1, len(allowed)), bool)
    seen[0, ids] = True
    numbers = map(jnp.float32, (manner.temperature, manner.repetition_penalty))
    rules, top_k = Rules(key, *numbers), manner.top_k
    top_k = top_k and min(top_k, int(allowed.sum()))
    return np.asarray(choose(logits, seen, np.int32(0), rules, top_k))
