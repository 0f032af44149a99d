"""What return estimators and standardisation are asked for. Twins: `reference.returns` and others.

Imports `reference` and `kernels`. Tests: `tests/verify/test_wrong_functions.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Set
from typing import Any

import numpy as np

from loopless import reference
from loopless.kernels.normalize import normalize
from loopless.verify import forms, properties
from loopless.verify.contracts.contract import Answer, Contract, mistakes
from loopless.verify.contracts.estimators import ESTIMATORS, Estimator
from loopless.verify.mutants import MUTANTS
from loopless.verify.sources import Seeded

SHAPE = (128, 64)  # of the case that is timed
CLIPS = ("clip_rho", "clip_c", "clip_pg_rho")
OPTIONS = {"n_step_returns": ("n",), "vtrace": CLIPS, "token_gae": ("gaps",)}


def _answer(estimator: Estimator, names: list[str]) -> Callable[[Callable], Answer]:
    taken = OPTIONS.get(estimator.name, ())

    def of(function: Callable) -> Answer:
        def call(case: Mapping) -> dict:
            options = {name: case[name] for name in taken if name in case}
            return dict(zip(names, estimator.call(function, dict(case), **options), strict=True))

        return call

    return of


def _estimator(label: str, outputs: str, **more: Any) -> Contract:
    estimator, names = ESTIMATORS[label], outputs.split()
    answer = _answer(estimator, names)
    wrong = mistakes(label, answer)
    if estimator.flags != ("mask",):
        common = _wrongly_fed(answer(estimator.twin))  # after its own, which are more to the point
        wrong = wrong | {name: one for name, one in common.items() if name not in wrong}
    if "drops_small_terms" in wrong:  # where the filter ends is the taste of its author
        sentence, _ = wrong["drops_small_terms"]
        wrong["drops_small_terms, rounded down"] = sentence, _cut_filter
    usual = {"forms": forms.ROLLOUT, "properties": properties.ROLLOUTS, "speed": _large_rollout}
    return Contract(
        name=estimator.name,
        answer=answer(estimator.twin),
        ours=answer(estimator.kernel),
        outputs=dict.fromkeys(names, "rows"),
        mistakes=wrong,
        magnitude=lambda case: answer(estimator.twin)(_uncancelled(case)),
        **usual | more,
    )


def _cut_filter(case: Mapping) -> dict:
    """GAE as a filter of as many whole steps as (γλ)^k takes to fall to 1e-7."""
    end = case["terminated"] | case["truncated"]
    decay = min(float(case["gamma"] * case["lambda_"]), 1 - 1e-9)
    taps = int(np.log(1e-7) / np.log(max(decay, 1e-300)))
    reached = reference.gae(*(case[name] for name in _FIELDS), gamma=case["gamma"], lambda_=0.0)[0]
    advantages, weights = np.zeros_like(reached), np.ones_like(reached)
    for _ in range(min(max(taps, 1), len(reached))):
        advantages = advantages + weights * reached
        weights = np.where(end, 0.0, weights * decay)
        reached, end = (np.concatenate([x[1:], np.zeros_like(x[:1])]) for x in (reached, end))
    return {"advantages": advantages, "returns": advantages + case["values"]}


_FIELDS = ("rewards", "values", "next_values", "terminated", "truncated")


def _uncancelled(case: Mapping) -> dict:
    """A case of the same sizes in which all terms add up: δ = |r| + γ |V'| + |V|."""
    sizes = {name: np.abs(case[name]) for name in ("rewards", "next_values") if name in case}
    sizes |= {name: -np.abs(case[name]) for name in ("values", "q_values") if name in case}
    return {**case, **sizes}


def _wrongly_fed(answer: Answer) -> dict[str, tuple[str, Answer]]:
    """GAE's commonest mistakes on any estimator: its twin on a wrongly gated case."""
    sentences = {m.name: m.sentence for m in MUTANTS if m.estimator == "gae"}
    return {
        name: (sentences[name], lambda case, change=change: answer({**case, **change(case)}))
        for name, change in _WRONG_FEED.items()
    }


def _late(flags: np.ndarray) -> np.ndarray:
    return np.concatenate([np.zeros_like(flags[:1]), flags[:-1]])


_WRONG_FEED: dict[str, Callable[[Mapping], dict]] = {
    "treats_truncation_as_termination": lambda case: {
        "terminated": case["terminated"] | case["truncated"]
    },
    "reads_the_flag_one_step_late": lambda case: {
        name: _late(case[name]) for name in ("terminated", "truncated")
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


def _large_rollout(seed: int) -> dict:
    source = Seeded(seed)
    case = properties.rollout(source, shape=SHAPE, gamma=0.99, lambda_=0.95, n=5)
    case["terminated"] = source.flags(SHAPE, 0.02)
    return properties.with_ratios(source, lambda _: case)


def _large_tokens(seed: int) -> dict:
    source = Seeded(seed)
    case = {name: source.numbers(SHAPE) for name in ("rewards", "values")}
    return case | {"mask": source.flags(SHAPE, 0.8), "gamma": 1.0, "lambda_": 0.95}


def _vtrace_settings(given: Set[str]) -> dict:
    """What is not asked for is at its usual value."""
    return {name: 1.0 for name in (*CLIPS, "lambda_") if name not in given}


def _normalize(function: Callable) -> Answer:
    return lambda case: {"normalized": function(case["x"], case.get("valid"))}


_REWARDS, _GAMMA, _LAMBDA = ("rewards",), ("gamma", "discounts"), ("lambda_",)
_AFTER = ("next_values", "values_and_last", "last_values", "values")
_RATIOS = ("log_ratios", "ratios", "log_target")
_BOTH = "advantages returns"
_OFF = {"forms": forms.OFF_POLICY, "properties": properties.OFF_POLICY}

ROLLOUT_CONTRACTS = (
    _estimator("gae", _BOTH, needs=(_REWARDS, _AFTER, _GAMMA, _LAMBDA)),
    _estimator("lambda_returns", "returns", needs=(_REWARDS, _AFTER, _GAMMA, _LAMBDA)),
    _estimator("discounted_returns", "returns", needs=(_REWARDS, _GAMMA)),
    _estimator("n_step_returns", "returns", needs=(_REWARDS, _GAMMA, ("n",))),
    _estimator(
        "vtrace",
        _BOTH,
        needs=(_REWARDS, _RATIOS, _AFTER, _GAMMA),
        settings=_vtrace_settings,
        **_OFF,
    ),
    _estimator(
        "retrace",
        "returns",
        needs=(_REWARDS, ("q_values",), _RATIOS, ("next_values",), _GAMMA),
        **_OFF,
    ),
    _estimator("upgo", _BOTH, needs=(_REWARDS, _AFTER, _GAMMA)),
    _estimator(
        "token_gae, skip",
        _BOTH,
        forms=forms.TOKENS,
        properties=properties.TOKENS,
        needs=(_REWARDS, ("values",), _GAMMA, _LAMBDA),
        variants=({}, {"gaps": "reset"}),
        speed=_large_tokens,
    ),
    Contract(
        name="normalize",
        forms=forms.NORMALIZE,
        answer=_normalize(reference.normalize),
        ours=_normalize(normalize),
        outputs={"normalized": "rows"},
        properties=properties.NORMALIZE,
        mistakes=mistakes("normalize", _normalize),
        needs=(("x",),),
        slack=1e-6,  # a floor under the deviation and a number added to it are both right
        speed=lambda seed: {"x": np.random.default_rng(seed).standard_normal(SHAPE)},
    ),
)
