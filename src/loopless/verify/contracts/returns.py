"""The table of return estimators: how each is called, its kernel, its twin, what it needs.

A new estimator is one entry of `_TABLE`. `ESTIMATORS` holds every entry and its named variants,
for the tests that compare kernels with their twins; `RETURN_CONTRACTS` holds what `loopless verify`
asks of a user's function.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Set
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from loopless import reference
from loopless.kernels import normalize, off_policy, returns, tokens
from loopless.verify import forms
from loopless.verify.cases import properties
from loopless.verify.cases.sources import Seeded
from loopless.verify.contracts.contract import Answer, Contract, mistakes
from loopless.verify.mutants import MUTANTS

SHAPE = (128, 64)  # of the case that is timed
CLIPS = ("clip_rho", "clip_c", "clip_pg_rho")

# Words for what a function must take → the forms (`verify.forms`) of which it needs one.
_NEEDS = {
    "gamma": ("gamma", "discounts"),
    "ratios": ("log_ratios", "ratios", "log_target"),
    "successors": ("next_values", "values_and_last", "last_values", "values"),
}


@dataclass(frozen=True)
class Estimator:
    """How to call an estimator: arrays by position, then everything else by keyword.

    `needs`, `case_options` and `contract` are for the contract that `loopless verify` uses.
    """

    name: str
    kernel: Callable
    floats: tuple[str, ...]
    outputs: tuple[str, ...]
    needs: tuple[tuple[str, ...], ...]  # see `Contract.needs`
    numbers: tuple[str, ...] = ("gamma", "lambda_")  # each a number, or an array over the data
    flags: tuple[str, ...] = ("terminated", "truncated")
    extras: tuple[str, ...] = ()  # arrays of floats that go by keyword
    takes_valid: bool = True
    options: Mapping[str, Any] = field(default_factory=dict)  # fixed keywords of this entry
    label: str = ""  # its name, and which variant it is
    variants: Mapping[str, Mapping] = field(default_factory=dict)  # label → fields that differ
    case_options: tuple[str, ...] = ()  # keywords that a case of `verify` may set
    contract: Mapping[str, Any] = field(default_factory=dict)  # fields of its `Contract`

    @property
    def twin(self) -> Callable:
        return getattr(reference, self.name)

    @property
    def arrays(self) -> tuple[str, ...]:
        return self.floats + self.flags

    def call(self, function: Callable, data: Mapping, **overrides: Any) -> tuple:
        """Return the outputs of `function` on the arguments in `data`, as a tuple."""
        keywords = {name: data[name] for name in (*self.numbers, *self.extras)}
        if self.takes_valid:
            keywords["valid"] = data.get("valid")
        keywords |= {**self.options, "time_axis": data.get("time_axis", 0), **overrides}
        out = function(*(data[name] for name in self.arrays), **keywords)
        return out if isinstance(out, tuple) else (out,)

    def answer(self, function: Callable) -> Answer:
        """Return `function` as an answer: from a case to its outputs by name."""

        def call(case: Mapping) -> dict:
            options = {name: case[name] for name in self.case_options if name in case}
            return dict(zip(self.outputs, self.call(function, case, **options), strict=True))

        return call


def _entry(kernel: Callable, floats: str, outputs: str, needs: str, **more: Any) -> Estimator:
    return Estimator(
        kernel.__name__,
        kernel,
        tuple(floats.split()),
        tuple(outputs.split()),
        tuple(_NEEDS.get(word, (word,)) for word in needs.split()),
        **{"label": kernel.__name__, **more},
    )


# --- large cases to time, and settings that follow from what a function takes


def _large_rollout(seed: int) -> dict:
    source = Seeded(seed)
    case = properties.rollout(source, shape=SHAPE, gamma=0.99, lambda_=0.95, n=5)
    case["terminated"] = source.flags(SHAPE, 0.02)
    return properties.with_ratios(source, lambda _: case)


def _large_tokens(seed: int) -> dict:
    source = Seeded(seed)
    case = {name: source.numbers(SHAPE) for name in ("rewards", "values")}
    return case | {"mask": source.flags(SHAPE, 0.8), "gamma": 1.0, "lambda_": 0.95}


def _vtrace_settings(taken: Set[str]) -> dict:
    """Return the usual value 1 for the options of V-trace that the function does not take."""
    return {name: 1.0 for name in (*CLIPS, "lambda_") if name not in taken}


# --- the table

_OFF_POLICY = {"forms": forms.OFF_POLICY, "properties": properties.OFF_POLICY}
_BOTH = "advantages returns"

_TABLE = (  # kernel, arrays by position, outputs, what a user's function must be given
    _entry(
        returns.gae,
        "rewards values next_values",
        _BOTH,
        "rewards successors gamma lambda_",
        variants={
            "gae, td_errors": {
                "options": {"td_errors": True},
                "outputs": ("advantages", "returns", "td_errors"),
            }
        },
    ),
    _entry(
        returns.lambda_returns,
        "rewards next_values",
        "returns",
        "rewards successors gamma lambda_",
    ),
    _entry(
        returns.discounted_returns,
        "rewards next_values",
        "returns",
        "rewards gamma",
        numbers=("gamma",),
    ),
    _entry(
        returns.n_step_returns,
        "rewards next_values",
        "returns",
        "rewards gamma n",
        numbers=("gamma",),
        options={"n": 3},
        variants={"n_step_returns, n beyond T": {"options": {"n": 1000}}},
        case_options=("n",),
    ),
    _entry(
        off_policy.vtrace,
        "log_ratios rewards values next_values",
        _BOTH,
        "rewards ratios successors gamma",
        variants={
            "vtrace, leaky": {
                "options": {"mix": 0.7, "clip_rho": 1.3, "clip_c": 0.9, "clip_pg_rho": 2.0}
            }
        },
        case_options=CLIPS,
        contract={"settings": _vtrace_settings, **_OFF_POLICY},
    ),
    _entry(
        off_policy.retrace,
        "rewards q_values next_values",
        "returns",
        "rewards q_values ratios next_values gamma",
        extras=("log_ratios",),
        variants={
            "retrace, importance_sampling": {"options": {"trace": "importance_sampling"}},
            "retrace, tree_backup": {
                "options": {"trace": "tree_backup"},
                "extras": ("log_policy",),
            },
            "retrace, q_lambda": {"options": {"trace": "q_lambda"}, "extras": ()},
        },
        contract=_OFF_POLICY,
    ),
    _entry(
        returns.upgo,
        "rewards values next_values",
        _BOTH,
        "rewards successors gamma",
        numbers=("gamma",),
    ),
    _entry(
        tokens.token_gae,
        "rewards values",
        _BOTH,
        "rewards values gamma lambda_",
        label="token_gae, skip",
        flags=("mask",),
        takes_valid=False,
        options={"gaps": "skip"},
        variants={"token_gae, reset": {"options": {"gaps": "reset"}}},
        case_options=("gaps",),
        contract={
            "forms": forms.TOKENS,
            "properties": properties.TOKENS,
            "variants": ({}, {"gaps": "reset"}),
            "speed": _large_tokens,
        },
    ),
)

ESTIMATORS: dict[str, Estimator] = {
    entry.label: entry
    for base in _TABLE
    for entry in (base, *(replace(base, label=k, **x) for k, x in base.variants.items()))
}


# --- contracts


def _contract(estimator: Estimator) -> Contract:
    right = estimator.answer(estimator.twin)
    known = mistakes(estimator.label, estimator.answer)
    if "truncated" in estimator.flags:
        known = known | {name: x for name, x in _fed_wrongly(right).items() if name not in known}
    if "drops_small_terms" in known:  # authors cut the filter at one of two lengths
        sentence, _ = known["drops_small_terms"]
        known["drops_small_terms, rounded down"] = sentence, _short_filter
    fields = {
        "forms": forms.ROLLOUT,
        "properties": properties.ROLLOUTS,
        "speed": _large_rollout,
        **estimator.contract,
    }
    return Contract(
        name=estimator.name,
        answer=right,
        ours=estimator.answer(estimator.kernel),
        outputs=dict.fromkeys(estimator.outputs, "rows"),
        mistakes=known,
        magnitude=lambda case: right(_without_cancellation(case)),
        needs=estimator.needs,
        **fields,
    )


def _without_cancellation(case: Mapping) -> dict:
    """Return a case of the same magnitudes whose terms all add up: δ = |r| + γ |V'| + |V|."""
    sizes = {name: np.abs(case[name]) for name in ("rewards", "next_values") if name in case}
    sizes |= {name: -np.abs(case[name]) for name in ("values", "q_values") if name in case}
    return {**case, **sizes}


def _fed_wrongly(right: Answer) -> dict[str, tuple[str, Answer]]:
    """Return GAE's most common mistakes for any estimator: its twin on wrong inputs."""
    sentences = {m.name: m.sentence for m in MUTANTS if m.estimator == "gae"}
    return {
        name: (sentences[name], lambda case, change=change: right({**case, **change(case)}))
        for name, change in _WRONG_INPUTS.items()
    }


def _one_step_late(flags: np.ndarray) -> np.ndarray:
    return np.concatenate([np.zeros_like(flags[:1]), flags[:-1]])


_WRONG_INPUTS: dict[str, Callable[[Mapping], dict]] = {
    "treats_truncation_as_termination": lambda case: {
        "terminated": case["terminated"] | case["truncated"]
    },
    "reads_the_flag_one_step_late": lambda case: {
        name: _one_step_late(case[name]) for name in ("terminated", "truncated")
    },
    "bootstraps_from_the_next_row": lambda case: {
        "next_values": np.concatenate([case["values"][1:], case["next_values"][-1:]])
    },
    "bootstraps_the_window_with_zero": lambda case: {
        "next_values": np.concatenate([case["next_values"][:-1], 0 * case["next_values"][-1:]])
    },
    "carries_across_truncations": lambda case: {"truncated": np.zeros_like(case["truncated"])},
    "lets_truncation_win": lambda case: {"terminated": case["terminated"] & ~case["truncated"]},
}


def _short_filter(case: Mapping) -> dict:
    """Compute GAE as a filter, cut after the whole number of steps in which (γλ)^k reaches 1e-7."""
    end = case["terminated"] | case["truncated"]
    decay = min(float(case["gamma"] * case["lambda_"]), 1 - 1e-9)
    taps = int(np.log(1e-7) / np.log(max(decay, 1e-300)))
    arrays = (case[name] for name in ESTIMATORS["gae"].arrays)
    deltas = reference.gae(*arrays, gamma=case["gamma"], lambda_=0.0)[0]
    advantages, weights = np.zeros_like(deltas), np.ones_like(deltas)
    for _ in range(min(max(taps, 1), len(deltas))):
        advantages = advantages + weights * deltas
        weights = np.where(end, 0.0, weights * decay)
        deltas, end = (np.concatenate([x[1:], np.zeros_like(x[:1])]) for x in (deltas, end))
    return {"advantages": advantages, "returns": advantages + case["values"]}


def _normalize(function: Callable) -> Answer:
    return lambda case: {"normalized": function(case["x"], case.get("valid"))}


RETURN_CONTRACTS = (
    *map(_contract, _TABLE),
    Contract(
        name="normalize",
        forms=forms.NORMALIZE,
        answer=_normalize(reference.normalize),
        ours=_normalize(normalize.normalize),
        outputs={"normalized": "rows"},
        properties=properties.NORMALIZE,
        mistakes=mistakes("normalize", _normalize),
        needs=(("x",),),
        slack=1e-6,  # a floor under the deviation and a number added to it are both right
        speed=lambda seed: {"x": np.random.default_rng(seed).standard_normal(SHAPE)},
    ),
)
