"""What an implementation is judged by: named kinds of cases, each made from any `Source`.

A case is the dictionary of arguments that the loop twin takes, float64, time first; a function
under judgement sees of it what it asks for (`verify.forms`). A property that is not `strict` is
reported but does not decide: finite inputs come out right all the same. Imports NumPy. Tests:
`tests/verify/test_sources.py`, `tests/verify/test_wrong_functions.py`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from loopless.verify.sources import Make, Source


@dataclass(frozen=True)
class Property:
    """A kind of cases, and for whom it is."""

    name: str
    make: Make
    needs: tuple[str, ...] = ()  # forms of which the function must take one of each
    strict: bool = True
    shrinks: bool = True
    share: float = 1.0  # of the cases that others get
    truncates: bool = False  # is about truncation alone


def only(name: str, make: Make, needs: str = "", **more: Any) -> Property:
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
    """Arguments of any estimator. A row's successor value is the next row's but at an end."""
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
    """Truncations, with a next episode whose values nobody should mistake for this one's."""
    case = rollout(source, truncated=True)
    case["terminated"] = np.zeros_like(case["truncated"])
    return case


def both_ends(source: Source) -> dict:
    case = rollout(source, terminated=True, truncated=True)
    case["truncated"] = case["truncated"] | (
        case["terminated"] & source.flags(case["rewards"].shape)
    )
    return case


def one_step(source: Source) -> dict:
    return rollout(source, terminated=True, shape=(1, source.pick((1, 2))))


def limits(source: Source) -> dict:
    choices = (1.0, 0.0)
    gamma, lambda_ = source.pick(choices), source.pick(choices)
    return rollout(source, terminated=True, gamma=gamma, lambda_=lambda_)


def long_window(source: Source) -> dict:
    """Thousands of steps that all count."""
    return rollout(source, shape=(3000, 2), gamma=0.999, lambda_=0.999)


def faint_window(source: Source) -> dict:
    """Steps that hardly count: what a filter leaves out, or a product of powers, shows."""
    case = rollout(source, shape=(1000, 2), gamma=0.7, lambda_=0.5)
    case["rewards"][-1] = 1e8  # seen from far away, where a cut filter sees nothing
    return case


def unread(source: Source) -> dict:
    """NaN where the successor value of a terminated row would be."""
    case = rollout(source, terminated=True)
    case["next_values"] = np.where(case["terminated"], np.nan, case["next_values"])
    return case


def padded(source: Source, fill: float = 1e6) -> dict:
    """Columns of several lengths, the rest filled with what must not be read."""
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
    only("one episode that outlasts the window", rollout),
    only("terminations", partial(rollout, terminated=True)),
    only("truncations", truncations, truncates=True),
    only("terminations and truncations", both_ends, "terminated truncated|done", truncates=True),
    only("one step", one_step, share=0.3),
    only("γ and λ at 0 and at 1", limits, share=0.5),
    only("long windows, γλ near 1", long_window, shrinks=False, share=0.01),
    only("long windows, γλ small", faint_window, shrinks=False, share=0.01),
    only("padding", padded, "valid", truncates=True),
    only("NaN in padding", partial(padded, fill=np.nan), "valid", strict=False, truncates=True),
    only("NaN after a terminal state", unread, "next_values", strict=False, share=0.5),
)


# --- off-policy


def with_ratios(source: Source, make: Make) -> dict:
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


OFF_POLICY = tuple(
    Property(**{**vars(one), "make": partial(with_ratios, make=one.make)}) for one in ROLLOUTS
)


# --- tokens


def tokens(source: Source, gaps: bool = False, fill: float | None = None) -> dict:
    """Rows of tokens; `mask` false at the end of each, or at any place."""
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


def whole_rows(source: Source) -> dict:
    case = tokens(source)
    return case | {"mask": np.ones_like(case["mask"])}


TOKENS = (
    only("rows without padding", whole_rows),
    only("rows that end early", partial(tokens, fill=0.0)),
    only("large numbers in padding", partial(tokens, fill=1e6)),
    only("gaps inside a row", partial(tokens, gaps=True)),
    only("NaN in padding", partial(tokens, fill=np.nan), strict=False),
)


# --- advantages to standardise


def entries(source: Source, holes: bool = False, constant: bool = False) -> dict:
    shape = source.shape()
    x = 3.0 + source.numbers(shape)
    if constant:
        x = np.full(shape, 0.1)
    case = {"x": x}
    if holes:
        valid = source.flags(shape, 0.7)
        case |= {"valid": valid, "x": np.where(valid, x, 50.0)}
    return case


def single_entry(source: Source) -> dict:
    return {"x": 1.0 + source.numbers((1, 1))}


NORMALIZE = (
    only("several entries", entries),
    only("masked entries", partial(entries, holes=True), "valid"),
    only("a constant", partial(entries, constant=True), share=0.05),
    only("a single entry", single_entry, share=0.05),
)
