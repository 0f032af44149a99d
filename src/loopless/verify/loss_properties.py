"""What losses and targets are judged by: kinds of batches, each made from any `Source`.

Imports NumPy. Tests: `tests/verify/test_sources.py`, `tests/verify/test_wrong_functions.py`.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from loopless.verify.properties import only
from loopless.verify.sources import Source

# --- transitions


def transitions(
    source: Source,
    *,
    terminated: bool = False,
    truncated: bool = False,
    ties: bool = False,
    weights: bool = True,
) -> dict:
    batch, actions = source.shape()
    values = {name: source.numbers((batch, actions)) for name in ("q", "next_q", "next_q_online")}
    if ties:
        values |= {name: np.round(x) for name, x in values.items() if name != "q"}
    none = np.zeros(batch, bool)
    return values | {
        "actions": source.below(actions, (batch,)),
        "next_actions": source.below(actions, (batch,)),
        "rewards": source.numbers((batch,)),
        "terminated": source.flags((batch,), 0.4) if terminated else none,
        "truncated": source.flags((batch,), 0.4) if truncated else none.copy(),
        "targets": 2.0 * source.numbers((batch,)),
        "weights": np.abs(source.numbers((batch,))) + 0.1 if weights else np.ones(batch),
        "gamma": source.pick((0.5, 0.9, 0.99)),
        "delta": source.pick((1.0, 0.3)),
    }


def time_limits(source: Source) -> dict:
    case = transitions(source, truncated=True)
    return case | {"terminated": np.zeros_like(case["truncated"])}


def unread_values(source: Source) -> dict:
    case = transitions(source, terminated=True)
    end = case["terminated"][:, None]
    return case | {name: np.where(end, np.nan, case[name]) for name in ("next_q", "next_q_online")}


def lone_sample(source: Source) -> dict:
    case = transitions(source, terminated=True)
    return {name: x[:1] if isinstance(x, np.ndarray) else x for name, x in case.items()}


Q_TARGETS = (
    only("steps that go on", transitions),
    only("terminations", partial(transitions, terminated=True)),
    only("truncations", time_limits, truncates=True),
    only("equal values", partial(transitions, ties=True)),
    only("a batch of one", lone_sample, share=0.3),
    only("NaN after a terminal state", unread_values, strict=False, share=0.5),
)

Q_LOSS = (
    only("samples of one weight", partial(transitions, weights=False)),
    only("importance weights", transitions, "weights"),
    only("terminations", partial(transitions, terminated=True), "rewards"),
    only("truncations", time_limits, "rewards", truncates=True),
    only("a batch of one", lone_sample, share=0.3),
)


# --- rows of a policy


def policy_rows(source: Source, moved: float = 0.3, holes: bool = False) -> dict:
    shape = (source.shape()[0],)
    log_probs, values = -np.abs(source.numbers(shape)) - 0.1, source.numbers(shape)
    case = {
        "log_probs": log_probs,
        "old_log_probs": log_probs - moved * source.numbers(shape),
        "advantages": source.numbers(shape),
        "values": values,
        "returns": values + source.numbers(shape),
        "entropies": np.abs(source.numbers(shape)),
        "clip": source.pick((0.2, 0.1)),
        "value_coefficient": source.pick((0.5, 1.0)),
        "entropy_coefficient": source.pick((0.01, 0.1)),
    }
    if holes:
        case["valid"] = source.flags(shape, 0.7)
    return case


PPO = (
    only("ratios of 1", partial(policy_rows, moved=0.0)),
    only("ratios near 1", policy_rows),
    only("ratios far from 1", partial(policy_rows, moved=2.0)),
    only("masked rows", partial(policy_rows, holes=True), "valid"),
)


# --- language-model positions


def positions(source: Source, vocabulary: int = 10, **more: Any) -> dict:
    count = source.shape()[0]
    # Spread so that no two logits are equal: of equals the first is a convention, not a law.
    apart = 1e-3 * np.arange(vocabulary)
    return {
        "student_logits": source.numbers((count, vocabulary)) + apart,
        "critic_logits": source.numbers((count, vocabulary)) - apart,
        "targets": source.below(vocabulary, (count,)),
        "top_k": source.pick((2, 3)),
    } | more


def agreeing(source: Source) -> dict:
    """Student and critic propose the same tokens: duplicates leave room in the set."""
    case = positions(source)
    return case | {"critic_logits": 2.0 * case["student_logits"]}


def many_actions(source: Source) -> dict:
    """Sets of 41: more than the 33 that the first published code had room for."""
    count, vocabulary = 2, 60
    falling = np.tile(np.linspace(3.0, 0.0, vocabulary), (count, 1))
    golds = 25 + source.below(10, (count,))
    critic = falling[:, ::-1].copy()
    return {"student_logits": falling, "critic_logits": critic, "targets": golds, "top_k": 20}


def forbidden(source: Source) -> dict:
    case = positions(source)
    case["targets"] = 1 + case["targets"] % 9
    student = case["student_logits"].copy()
    student[:, 0] = -np.inf
    critic = case["critic_logits"].copy()
    critic[:, 0] = -9.0
    return case | {"student_logits": student, "critic_logits": critic}


_SOFT = {"reality_weight": 0.2, "critic_weight": 0.8, "label_smoothing": 0.6}
AVATARL = (
    only("positions", positions),
    only("student and critic agree", agreeing),
    only("an entropy bonus", partial(positions, entropy_coefficient=0.3), "entropy_coefficient"),
    only(
        "weights that keep several actions",
        partial(positions, **_SOFT),
        "reality_weight critic_weight label_smoothing",
    ),
    only("sets of 41 actions", many_actions, "top_k", share=0.02, shrinks=False),
    only("a token that is forbidden", forbidden, strict=False, share=0.3),
)


# --- features


def features(source: Source) -> dict:
    n, d = source.shape()
    return {
        "features": source.numbers((n, d)),
        "next_features": source.numbers((n, d)),
        "other_features": source.numbers((n, d)),
        "duals": np.tril(source.numbers((d, d))),
        "barrier": source.pick((0.5, 2.0)),
    }


ALLO = (only("batches", features),)
