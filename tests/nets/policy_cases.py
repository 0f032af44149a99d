"""Heads of every kind, laws in plain loops, and compiled words that several tests share."""

import functools
import math
from typing import NamedTuple

import jax
import numpy as np
from scipy import stats

from loopless.envs.spaces import Box, Discrete, MultiDiscrete
from loopless.nets.distributions import head_of

LOW, HIGH = (-2.0, -1.0, 0.0), (1.0, 3.0, 0.5)
HEADS = {
    "discrete": head_of(Discrete(4)),
    "multi": head_of(MultiDiscrete((3, 3))),
    "ragged": head_of(MultiDiscrete((2, 4, 1))),
    "gaussian": head_of(Box((3,), "float32", -1.0, 1.0)),
    "state_std": head_of(Box((3,), "float32", -1.0, 1.0), state_std=True),
    "squashed": head_of(Box((3,), "float32", LOW, HIGH), squash=True),
    "squashed_state_std": head_of(Box((3,), "float32", LOW, HIGH), squash=True, state_std=True),
}
CHOICES = ("discrete", "multi", "ragged")
ROWS = 6


@functools.cache
def case(name):
    """Outputs [6, ...] of a network, its own parameters, and actions to ask about."""
    head, rng = HEADS[name], np.random.default_rng(7)
    params, own = rng.normal(size=(ROWS, head.outputs)), rng.normal(size=head.own) / 2
    if name in CHOICES:
        raw = rng.integers(0, head.sizes, (ROWS, len(head.sizes)), np.int32)
        return params, own, raw if head.several else raw[:, 0]
    return params, own, rng.normal(size=(ROWS, 3))


@functools.cache
def compiled(name):
    """All words of a head's law in one program: see `Words`."""

    @jax.jit
    def words(params, own, mask, raw):
        def law(params, own):
            return HEADS[name](params, own, mask)

        gradients = [
            jax.grad(lambda params, own, word=word: word(law(params, own)).sum(), (0, 1))(
                params, own
            )
            for word in (lambda law: law.log_prob(raw), lambda law: law.entropy(raw))
        ]
        now = law(params, own)
        return Words(now.log_prob(raw), now.entropy(raw), now.mode(), *gradients)

    return words


class Words(NamedTuple):
    """What a law says of raw actions; gradients are of sums, by params and own."""

    log_prob: jax.Array
    entropy: jax.Array
    mode: jax.Array
    log_prob_gradient: tuple[jax.Array, jax.Array]
    entropy_gradient: tuple[jax.Array, jax.Array]


def plain_choices(sizes, logits, mask=None):
    """The probabilities of each choice of one row: a list of lists."""
    laws, at = [], 0
    for size in sizes:
        legal = [True] * size if mask is None else [bool(m) for m in mask[at : at + size]]
        legal = legal if any(legal) else [True] * size
        own = [float(x) for x in logits[at : at + size]]
        top = max(x for x, m in zip(own, legal, strict=True) if m)
        weights = [math.exp(x - top) if m else 0.0 for x, m in zip(own, legal, strict=True)]
        laws.append([weight / sum(weights) for weight in weights])
        at += size
    return laws


def plain_words(name, params, own, raw, mask=None):
    """(log-probability, entropy) of one row, number by number."""
    head = HEADS[name]
    if name in CHOICES:
        laws = plain_choices(head.sizes, params, mask)
        log_prob = sum(math.log(law[a]) for law, a in zip(laws, np.atleast_1d(raw), strict=True))
        entropy = -sum(p * math.log(p) for law in laws for p in law if p > 0)
        return log_prob, entropy
    log_prob = entropy = 0.0
    for i in range(3):
        log_std = params[3 + i] if head.state_std else own[i]
        std = math.exp(log_std)
        log_prob -= ((raw[i] - params[i]) / std) ** 2 / 2 + math.log(std * math.sqrt(2 * math.pi))
        entropy += math.log(std * math.sqrt(2 * math.pi * math.e))
        if head.squash:
            log_prob -= math.log((1 - math.tanh(raw[i]) ** 2) * (HIGH[i] - LOW[i]) / 2)
    return log_prob, -log_prob if head.squash else entropy


def finite_differences(function, x, step=1e-6):
    """The gradient at x of a function to a number."""
    out = np.zeros_like(x)
    for i in np.ndindex(x.shape):
        up, down = x.copy(), x.copy()
        up[i] += step
        down[i] -= step
        out[i] = (function(up) - function(down)) / (2 * step)
    return out


def fits(counts, law):
    """Whether counts can be of a law, by chi-square; what cannot happen must not have."""
    assert not counts[law == 0].any()
    keep = law > 0
    if keep.sum() == 1:
        return counts[keep] == counts.sum()
    return stats.chisquare(counts[keep], law[keep] / law[keep].sum() * counts.sum()).pvalue > 1e-3
