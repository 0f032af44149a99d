"""Sampling: the cache against the model called anew, seeds, chunks, rules, refusals."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from loopless.nets.gpt.model import GPT
from loopless.nets.gpt.sampling import Rules, choose, decode, prefill, sample, stream

pytestmark = pytest.mark.slow  # JAX compiles each network

KEY = jax.random.key(7)
BLOCK, VOCABULARY = 8, 11


def tiny() -> GPT:
    """A model whose most likely token depends on all that it sees: no bias favours one."""
    rng = np.random.default_rng(4)

    def draw(place, x):
        name = jax.tree_util.keystr(place)
        size = 0.1 if name.endswith("bias") else 3.0 if "positions" in name else 1.0
        return jnp.asarray(size * rng.normal(size=x.shape), x.dtype)

    shapes = eqx.filter_eval_shape(GPT, VOCABULARY, BLOCK, (2, 2, 8), KEY)
    return jax.tree_util.tree_map_with_path(draw, shapes)


MODEL = tiny()
PROMPTS = np.random.default_rng(1).integers(0, VOCABULARY, (2, 3))


def without_cache(model, prompt, n, penalty=1.0):
    """The most likely tokens after `prompt` [T], the whole window read anew for each."""
    text, start = list(prompt), max(0, len(prompt) - BLOCK)
    for _ in range(n):
        if len(text) - start > BLOCK:
            start = len(text) - BLOCK // 2
        window = np.zeros(BLOCK, np.int32)
        window[: len(text) - start] = text[start:]
        logits = np.array(FORWARD(model, window)[len(text) - start - 1])
        for token in set(text):
            logits[token] *= 1 / penalty if logits[token] > 0 else penalty
        text.append(int(np.argmax(logits)))
    return text[len(prompt) :]


FORWARD = eqx.filter_jit(lambda model, window: model(window))


def test_decoding_gives_the_logits_of_the_whole_window():
    tokens = np.random.default_rng(2).integers(0, VOCABULARY, (2, BLOCK))
    expected = np.asarray(FORWARD(MODEL, tokens))
    window = np.where(np.arange(BLOCK) < 3, tokens, 5)  # padding is never looked at
    cache, step = eqx.filter_jit(prefill)(MODEL, window, 3), eqx.filter_jit(decode)
    for t in range(3, BLOCK):
        logits, cache = step(MODEL, tokens[:, t], cache)
        np.testing.assert_allclose(logits, expected[:, t], rtol=1e-5, atol=1e-5)
    assert cache.length == BLOCK


@pytest.mark.parametrize("length", [1, 3, 8, 11])
def test_greedy_tokens_are_those_without_a_cache(length):
    prompt = np.random.default_rng(length).integers(0, VOCABULARY, length)
    got = sample(MODEL, prompt, 14, KEY, temperature=0)  # the window slides twice
    assert got.tolist() == without_cache(MODEL, prompt, 14)
    assert len(set(got.tolist())) > 2


def test_rows_of_a_batch_are_those_alone():
    both = sample(MODEL, PROMPTS, 9, KEY, temperature=0)
    assert both.shape == (2, 9)
    assert both[1].tolist() == sample(MODEL, PROMPTS[1], 9, KEY, temperature=0).tolist()


@pytest.mark.parametrize("chunk", [3, 8])
def test_chunks_do_not_change_what_is_written(chunk):
    expected = sample(MODEL, PROMPTS, 11, KEY)
    pieces = list(stream(MODEL, PROMPTS, 11, KEY, chunk=chunk))
    assert max(piece.shape[1] for piece in pieces) <= chunk
    np.testing.assert_array_equal(np.concatenate(pieces, 1), expected)


def test_a_seed_writes_the_same_again_and_another_does_not():
    first, again = (sample(MODEL, PROMPTS, 11, KEY) for _ in range(2))
    np.testing.assert_array_equal(first, again)
    assert (sample(MODEL, PROMPTS, 11, jax.random.key(8)) != first).any()


def test_nothing_is_compiled_for_another_prompt_length():
    from loopless.nets.gpt import sampling as gpt_sampling

    sizes = []
    for length in (1, 2, 5, 9):
        sample(MODEL, np.arange(length), 3 + length, KEY, temperature=0.5)
        sizes.append(
            [f._cached._cache_size() for f in (gpt_sampling._prefill, gpt_sampling._write)]
        )
    assert sizes[1:] == sizes[:-1]


# --- one choice ----------------------------------------------------------------------------------

LOGITS = jnp.asarray([[2.0, 1.0, -1.0, 0.5]], jnp.float32)
NONE_SEEN = jnp.zeros((1, 4), bool)


def draws(count=4000, seen=NONE_SEEN, top_k=None, temperature=1.0, repetition_penalty=1.0):
    numbers = jnp.asarray([temperature, repetition_penalty], jnp.float32)

    def one(i):
        return choose(LOGITS, seen, i, Rules(KEY, *numbers), top_k)[0]

    return np.bincount(jax.jit(jax.vmap(one))(jnp.arange(count)), minlength=4) / count


def softmax(x):
    e = np.exp(x - np.max(x))
    return e / e.sum()


@pytest.mark.parametrize(
    ("options", "logits"),
    [
        ({}, [2, 1, -1, 0.5]),
        ({"temperature": 0.5}, [4, 2, -2, 1]),
        ({"top_k": 2}, [2, 1, -np.inf, -np.inf]),
        ({"top_k": 9}, [2, 1, -1, 0.5]),
        (
            {"repetition_penalty": 2.0, "seen": jnp.asarray([[True, False, True, False]])},
            [1, 1, -2, 0.5],
        ),
        ({"temperature": 0.0}, [0, -np.inf, -np.inf, -np.inf]),
        (
            {
                "temperature": 0.0,
                "repetition_penalty": 4.0,
                "seen": jnp.asarray([[True, False, False, False]]),
            },
            [-np.inf, 0, -np.inf, -np.inf],
        ),
    ],
    ids=[
        "plain",
        "temperature",
        "top-k",
        "top-k past the vocabulary",
        "penalty",
        "greedy",
        "greedy with penalty",
    ],
)
def test_choices_follow_their_law(options, logits):
    expected = softmax(np.array(logits, float))
    got = draws(**options)
    # 4.5 deviations of a binomial share
    assert (np.abs(got - expected) <= 4.5 * np.sqrt(expected * (1 - expected) / 4000)).all()


def test_a_penalty_counts_all_that_was_read_and_written():
    got = sample(MODEL, PROMPTS[0], 14, KEY, temperature=0, repetition_penalty=1.5)
    assert got.tolist() == without_cache(MODEL, PROMPTS[0], 14, 1.5)
    assert got.tolist() != without_cache(MODEL, PROMPTS[0], 14)


def test_all_that_is_wrong_is_said_at_once():
    with pytest.raises(ValueError, match=r"^sample: ") as error:
        sample(MODEL, [3, 11], 0, KEY, temperature=-1, top_k=0, repetition_penalty=0)
    for part in (
        "tokens go from 3 to 11, and the model's vocabulary from 0 to 10",
        "n must be an integer of at least 1; received 0",
        "top_k must be an integer of at least 1; received 0",
        "temperature must be at least 0; received -1",
        "repetition_penalty must be above 0; received 0",
    ):
        assert part in str(error.value)


@pytest.mark.parametrize("tokens", [[], 3, [[[1]]], [0.5]], ids=str)
def test_prompts_that_are_none_are_refused(tokens):
    with pytest.raises(ValueError, match="tokens"):
        sample(MODEL, tokens, 3, KEY)
