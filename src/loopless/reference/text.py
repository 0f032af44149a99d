"""Loop twins of the vectorized functions in `text/`: one token, one draw, one run at a time."""

import math
from collections import Counter
from collections.abc import Sequence

_WORD = (1 << 64) - 1


def encode_characters(text: str, characters: str) -> list[int]:
    """Return one id per character: its place in the list counted from 1, or 0 if not listed."""
    return [characters.index(c) + 1 if c in characters else 0 for c in text]


def random_bits(key: int, counter: int) -> int:
    """Return draw number `counter` of the generator `key`, by splitmix64 (Steele et al. 2014)."""
    z = (key + (counter + 1) * 0x9E3779B97F4A7C15) & _WORD
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & _WORD
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & _WORD
    return z ^ (z >> 31)


def shuffled_place(place: int, count: int, key: int, rounds: int = 4) -> int:
    """Return element `place` of the permutation of range(count) that `key` selects."""
    columns = math.isqrt(count - 1) + 1
    rows = math.ceil(count / columns)
    while True:
        row, column = place // columns, place % columns
        for turn in range(rounds):
            row = (row + random_bits(key, column * 2 * rounds + 2 * turn)) & _WORD
            row %= rows
            column = (column + random_bits(key, row * 2 * rounds + 2 * turn + 1)) & _WORD
            column %= columns
        place = row * columns + column
        if place < count:
            return place


def window_starts(
    tokens: int, block: int, seed: int, order: str, step: int, batch: int
) -> list[int]:
    """Return where the windows of one step start."""
    starts = []
    count = (tokens - 1) // block
    for draw in range(step * batch, (step + 1) * batch):
        if order == "random":
            starts.append(random_bits(seed, draw) % (tokens - block))
        else:
            key = random_bits(seed, draw // count)
            starts.append(shuffled_place(draw % count, count, key) * block)
    return starts


def ngram_log_probability(
    tokens: Sequence[int], vocabulary: int, context: Sequence[int], token: int,
    *, order: int = 3, alpha: float = 16.0, delta: float = 1.0,
) -> float:  # fmt: skip
    """Return log p(token | the last order − 1 tokens of `context`), from counts in `tokens`."""
    p = (Counter(tokens)[token] + delta) / (len(tokens) + delta * vocabulary)
    for length in range(2, order + 1):
        if len(context) < length - 1:
            break
        history = tuple(context[len(context) - length + 1 :])
        history_count, run_count = 0, 0
        for i in range(len(tokens) - length + 1):
            if tuple(tokens[i : i + length - 1]) == history:
                history_count += 1
                run_count += tokens[i + length - 1] == token
        p = (run_count + alpha * p) / (history_count + alpha)
    return math.log(p)
