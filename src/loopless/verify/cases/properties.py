"""The properties that a function is tested for: named kinds of cases, each made from a `Source`.

A case is the dictionary of arguments that the loop twin takes, in float64 with time first. A user's
function gets the parts that it takes (`verify.forms`). A property that is not `strict` is reported
but does not decide: a function that fails it is still right on finite inputs.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from loopless.verify.cases.sources import Make, Source


@dataclass(frozen=True)
class Property:
    """A kind of cases, and which functions it applies to."""

    name: str
    make: Make
    needs: tuple[str, ...] = ()  # the function must take one form of each "a|b" group
    strict: bool = True
    shrinks: bool = True  # whether a smallest failing case can be searched for
    share: float = 1.0  # its number of cases, relative to the other properties
    truncates: bool = False  # whether it is only for functions that may see truncation


def _property(name: str, make: Make, needs: str = "", **more: Any) -> Property:
    return Property(name, make, tuple(needs.split()), **more)


# --- rollouts


def rollout(
    source: Source,
    *,
    terminated: bool = False,
    truncated: bool = False,
    shape: tuple[int, int] | None = None,
    gamma: float | None = None,
    lambda_: float | None = None,
    n: int | None = None,
) -> dict:
    """Return arguments of any estimator; successor values are the next step's except at ends."""
    steps, envs = shape = shape or source.shape()
    none = np.zeros(shape, bool)
    following = source.numbers((steps + 1, envs))
    case = {
        "rewards": source.numbers(shape),
        "values": following[:-1].copy(),
        "next_values": following[1:].copy(),
        "terminated": source.flags(shape) if terminated else none,
        "truncated": source.flags(shape) if truncated else none.copy(),
        "gamma": source.pick((0.5, 0.9, 0.99)) if gamma is None else gamma,
        "lambda_": source.pick((0.5, 0.8, 0.95)) if lambda_ is None else lambda_,
        "n": source.pick((2, 1, 3)) if n is None else n,
    }
    ended = case["terminated"] | case["truncated"]
    case["next_values"] = np.where(ended, source.numbers(shape), case["next_values"])
    return case


def truncations(source: Source) -> dict:
    """Return a rollout with truncations, each followed by another episode's values."""
    case = rollout(source, truncated=True)
    case["terminated"] = np.zeros_like(case["truncated"])
    return case


def _both_ends(source: Source) -> dict:
    case = rollout(source, terminated=True, truncated=True)
    both = case["terminated"] & source.flags(case["rewards"].shape)
    return case | {"truncated": case["truncated"] | both}


def _one_step(source: Source) -> dict:
    return rollout(source, terminated=True, shape=(1, source.pick((1, 2))))


def _limits(source: Source) -> dict:
    choices = (1.0, 0.0)
    gamma, lambda_ = source.pick(choices), source.pick(choices)
    return rollout(source, terminated=True, gamma=gamma, lambda_=lambda_)


def _long_window(source: Source) -> dict:
    """Return thousands of steps that all count."""
    return rollout(source, shape=(3000, 2), gamma=0.999, lambda_=0.999)


def _faint_window(source: Source) -> dict:
    """Return steps that hardly count, to catch truncated filters and products that underflow."""
    case = rollout(source, shape=(1000, 2), gamma=0.7, lambda_=0.5)
    case["rewards"][-1] = 1e8  # matters even far away, where a truncated filter sees nothing
    return case


def _nan_successors(source: Source) -> dict:
    case = rollout(source, terminated=True)
    case["next_values"] = np.where(case["terminated"], np.nan, case["next_values"])
    return case


def _padded(source: Source, fill: float = 1e6) -> dict:
    """Return columns of several lengths; padding is filled with numbers that must not be read."""
    case = rollout(source, terminated=True, truncated=True)
    steps, envs = case["rewards"].shape
    lengths = source.below(steps + 1, (envs,))
    valid = np.arange(steps)[:, None] < lengths
    for name in ("rewards", "values", "next_values"):
        case[name] = np.where(valid, case[name], fill)
    for name in ("terminated", "truncated"):
        case[name] = case[name] & valid
    return case | {"valid": valid}


ROLLOUTS = (
    _property("one episode that outlasts the window", rollout),
    _property("terminations", partial(rollout, terminated=True)),
    _property("truncations", truncations, truncates=True),
    _property(
        "terminations and truncations", _both_ends, "terminated truncated|done", truncates=True
    ),
    _property("one step", _one_step, share=0.3),
    _property("γ and λ at 0 and at 1", _limits, share=0.5),
    _property("long windows, γλ near 1", _long_window, shrinks=False, share=0.01),
    _property("long windows, γλ small", _faint_window, shrinks=False, share=0.01),
    _property("padding", _padded, "valid", truncates=True),
    _property(
        "NaN in padding", partial(_padded, fill=np.nan), "valid", strict=False, truncates=True
    ),
    _property(
        "NaN after a terminal state", _nan_successors, "next_values", strict=False, share=0.5
    ),
)


# --- off-policy rollouts


def with_ratios(source: Source, make: Make) -> dict:
    """Return the case that `make` makes, with importance ratios, action values and clips."""
    case = make(source)
    shape = case["rewards"].shape
    return case | {
        "log_ratios": 0.5 * source.numbers(shape),
        "log_behaviour": -np.abs(source.numbers(shape)) - 0.5,
        "q_values": source.numbers(shape),
        "clip_rho": source.pick((1.0, 1.5)),
        "clip_c": source.pick((1.0, 0.8)),
        "clip_pg_rho": 1.0,
    }


OFF_POLICY = tuple(replace(x, make=partial(with_ratios, make=x.make)) for x in ROLLOUTS)


# --- tokens


def _tokens(source: Source, gaps: bool = False, fill: float | None = None) -> dict:
    """Return columns of tokens whose `mask` is false at the end, or with `gaps` anywhere."""
    steps, envs = shape = source.shape()
    case = {"rewards": source.numbers(shape), "values": source.numbers(shape)}
    lengths = 1 + source.below(steps, (envs,))
    case["mask"] = np.arange(steps)[:, None] < lengths
    if gaps:
        case["mask"] = source.flags(shape, 0.6)
    if fill is not None:
        for name in ("rewards", "values"):
            case[name] = np.where(case["mask"], case[name], fill)
    numbers = {"gamma": source.pick((0.5, 1.0, 0.99)), "lambda_": source.pick((0.5, 0.95, 1.0))}
    return case | numbers


def _unmasked_tokens(source: Source) -> dict:
    case = _tokens(source)
    return case | {"mask": np.ones_like(case["mask"])}


TOKENS = (
    _property("rows without padding", _unmasked_tokens),
    _property("rows that end early", partial(_tokens, fill=0.0)),
    _property("large numbers in padding", partial(_tokens, fill=1e6)),
    _property("gaps inside a row", partial(_tokens, gaps=True)),
    _property("NaN in padding", partial(_tokens, fill=np.nan), strict=False),
)


# --- numbers to normalize


def _entries(source: Source, holes: bool = False, constant: bool = False) -> dict:
    shape = source.shape()
    x = 3.0 + source.numbers(shape)
    if constant:
        x = np.full(shape, 0.1)
    case = {"x": x}
    if holes:
        valid = source.flags(shape, 0.7)
        case |= {"valid": valid, "x": np.where(valid, x, 50.0)}
    return case


NORMALIZE = (
    _property("several entries", _entries),
    _property("masked entries", partial(_entries, holes=True), "valid"),
    _property("a constant", partial(_entries, constant=True), share=0.05),
    _property("a single entry", lambda source: {"x": 1.0 + source.numbers((1, 1))}, share=0.05),
)


# --- transitions


def transitions(
    source: Source,
    *,
    terminated: bool = False,
    truncated: bool = False,
    ties: bool = False,
    weights: bool = True,
) -> dict:
    """Return arguments of `q_targets` and `q_loss`; targets do not follow from the rest."""
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


def _time_limits(source: Source) -> dict:
    case = transitions(source, truncated=True)
    return case | {"terminated": np.zeros_like(case["truncated"])}


def _nan_next_q(source: Source) -> dict:
    case = transitions(source, terminated=True)
    end = case["terminated"][:, None]
    return case | {name: np.where(end, np.nan, case[name]) for name in ("next_q", "next_q_online")}


def _one_transition(source: Source) -> dict:
    case = transitions(source, terminated=True)
    return {name: x[:1] if isinstance(x, np.ndarray) else x for name, x in case.items()}


Q_TARGETS = (
    _property("steps that go on", transitions),
    _property("terminations", partial(transitions, terminated=True)),
    _property("truncations", _time_limits, truncates=True),
    _property("equal values", partial(transitions, ties=True)),
    _property("a batch of one", _one_transition, share=0.3),
    _property("NaN after a terminal state", _nan_next_q, strict=False, share=0.5),
)

Q_LOSS = (
    _property("samples of one weight", partial(transitions, weights=False)),
    _property("importance weights", transitions, "weights"),
    _property("terminations", partial(transitions, terminated=True), "rewards"),
    _property("truncations", _time_limits, "rewards", truncates=True),
    _property("a batch of one", _one_transition, share=0.3),
)


# --- steps of a policy


def policy_rows(source: Source, moved: float = 0.3, holes: bool = False) -> dict:
    """Return arguments of `ppo_loss`, with log-ratios of about `moved`."""
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
    return case | ({"valid": source.flags(shape, 0.7)} if holes else {})


PPO = (
    _property("ratios of 1", partial(policy_rows, moved=0.0)),
    _property("ratios near 1", policy_rows),
    _property("ratios far from 1", partial(policy_rows, moved=2.0)),
    _property("masked rows", partial(policy_rows, holes=True), "valid"),
)


# --- positions of a language model


def positions(source: Source, vocabulary: int = 10, **more: Any) -> dict:
    """Return arguments of `avatarl_loss`."""
    count = source.shape()[0]
    # Keep logits apart: which of two equal logits comes first is a convention.
    apart = 1e-3 * np.arange(vocabulary)
    return {
        "student_logits": source.numbers((count, vocabulary)) + apart,
        "critic_logits": source.numbers((count, vocabulary)) - apart,
        "targets": source.below(vocabulary, (count,)),
        "top_k": source.pick((2, 3)),
    } | more


def _agreeing(source: Source) -> dict:
    """Return positions where student and critic propose the same tokens, so that sets are small."""
    case = positions(source)
    return case | {"critic_logits": 2.0 * case["student_logits"]}


def _many_actions(source: Source) -> dict:
    """Return sets of 41 actions, more than the 33 that the first published code had room for."""
    count, vocabulary = 2, 60
    falling = np.tile(np.linspace(3.0, 0.0, vocabulary), (count, 1))
    golds = 25 + source.below(10, (count,))
    critic = falling[:, ::-1].copy()
    return {"student_logits": falling, "critic_logits": critic, "targets": golds, "top_k": 20}


def _forbidden_token(source: Source) -> dict:
    case = positions(source)
    case["targets"] = 1 + case["targets"] % 9
    case["student_logits"][:, 0] = -np.inf
    case["critic_logits"][:, 0] = -9.0
    return case


_SOFT = {"reality_weight": 0.2, "critic_weight": 0.8, "label_smoothing": 0.6}
AVATARL = (
    _property("positions", positions),
    _property("student and critic agree", _agreeing),
    _property(
        "an entropy bonus", partial(positions, entropy_coefficient=0.3), "entropy_coefficient"
    ),
    _property(
        "weights that keep several actions",
        partial(positions, **_SOFT),
        "reality_weight critic_weight label_smoothing",
    ),
    _property("sets of 41 actions", _many_actions, "top_k", share=0.02, shrinks=False),
    _property("a token that is forbidden", _forbidden_token, strict=False, share=0.3),
)


# --- features of states


def features(source: Source) -> dict:
    """Return arguments of `allo_loss`."""
    n, d = source.shape()
    return {
        "features": source.numbers((n, d)),
        "next_features": source.numbers((n, d)),
        "other_features": source.numbers((n, d)),
        "duals": np.tril(source.numbers((d, d))),
        "barrier": source.pick((0.5, 2.0)),
    }


ALLO = (_property("batches", features),)
