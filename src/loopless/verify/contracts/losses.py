"""What losses and targets are asked for, gradients included. Twins: `reference`.

Imports `reference` and `kernels`. Tests: `tests/verify/test_wrong_functions.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Set

import numpy as np

from loopless import reference
from loopless.kernels import policy_gradient, q_learning
from loopless.kernels.avatarl import loss as avatarl
from loopless.kernels.laplacian import losses as laplacian
from loopless.verify import forms
from loopless.verify import loss_properties as properties
from loopless.verify.cases import features as batches
from loopless.verify.cases import policy_rows
from loopless.verify.contracts.contract import Answer, Contract, mistakes
from loopless.verify.mutants.laplacian import right_step


def _q_targets(function: Callable) -> Answer:
    def call(case: Mapping) -> dict:
        member = {
            "double": {"next_q_online": case["next_q_online"]},
            "sarsa": {"next_actions": case["next_actions"]},
        }.get(case.get("member", "dqn"), {})
        fields = case["rewards"], case["terminated"], case["next_q"]
        return {"targets": function(*fields, gamma=case["gamma"], **member)}

    return call


def _q_case(case: Mapping) -> Mapping:
    """A case in which the targets are what the transition says, where it is asked to."""
    if not case.get("whole"):
        return case
    return {**case, **_q_targets(reference.q_targets)(case)}


def _q_loss(function: Callable) -> Answer:
    def call(case: Mapping) -> dict:
        case = _q_case(case)
        kind = case.get("loss", "mse")
        weights = case["weights"] if case.get("weighted", True) else None
        options = {"loss": kind, "weights": weights} | (
            {"delta": case["delta"]} if kind == "huber" and case.get("given_delta") else {}
        )
        loss, errors = function(case["q"], case["actions"], case["targets"], **options)
        return {"loss": loss, "td_errors": errors}

    return call


def _q_slopes(case: Mapping) -> dict:
    case = _q_case(case)
    weights = case["weights"] if case.get("weighted", True) else None
    kind = case.get("loss", "mse")
    delta = case["delta"] if kind == "huber" and case.get("given_delta") else 1.0
    gradients = reference.q_loss_gradients(
        case["q"], case["actions"], case["targets"], weights=weights, loss=kind, delta=delta
    )
    return {"by_q": gradients}


def _large_transitions(seed: int) -> dict:
    rng = np.random.default_rng(seed)
    case = {name: rng.standard_normal((256, 6)) for name in ("q", "next_q", "next_q_online")}
    case |= {name: rng.standard_normal(256) for name in ("rewards", "targets")}
    case |= {name: rng.integers(0, 6, 256) for name in ("actions", "next_actions")}
    case |= {name: rng.random(256) < 0.1 for name in ("terminated", "truncated")}
    return case | {"weights": rng.uniform(0.1, 1, 256), "gamma": 0.99, "delta": 1.0}


def _ppo(function: Callable) -> Answer:
    rows = ("log_probs", "old_log_probs", "advantages", "values", "returns", "entropies")
    numbers = ("clip", "value_coefficient", "entropy_coefficient", "valid")

    def call(case: Mapping) -> dict:
        options = {name: case[name] for name in numbers if name in case}
        return {"loss": function(*(case[name] for name in rows), **options)[0]}

    return call


def _ppo_slopes(case: Mapping) -> dict:
    names = ("log_probs", "values", "entropies")
    found = policy_rows.call_ppo(reference.ppo_loss_gradients, dict(case))
    return {f"by_{name}": x for name, x in zip(names, found, strict=True)}


def _large_policy_rows(seed: int) -> dict:
    return policy_rows.policy_rows((4096,), seed)


_AVATARL = ("reality_weight", "critic_weight", "label_smoothing", "entropy_coefficient", "top_k")
_LOGITS = ("student_logits", "critic_logits", "targets")


def _avatarl(function: Callable) -> Answer:
    def call(case: Mapping) -> dict:
        options = {name: case[name] for name in (*_AVATARL, "variant") if name in case}
        return {"loss": function(*(case[name] for name in _LOGITS), **options)[0]}

    return call


def _avatarl_slopes(case: Mapping) -> dict:
    options = {name: case[name] for name in (*_AVATARL, "variant") if name in case}
    arrays = [case[name] for name in _LOGITS]
    found = reference.avatarl.avatarl_gradients(*arrays, **options)
    return {"by_student_logits": found}


def _avatarl_mistake(function: Callable) -> Answer:
    def call(case: Mapping) -> dict:
        options = {name: case[name] for name in _AVATARL if name in case}
        loss, *by = function(*(case[name] for name in _LOGITS), **options)
        slopes = dict(zip(("by_student_logits", "by_critic_logits"), by, strict=True))
        return {"loss": loss, **slopes}

    return call


def _large_positions(seed: int) -> dict:
    rng = np.random.default_rng(seed)
    logits = {name: rng.standard_normal((64, 2000)) for name in _LOGITS[:2]}
    return logits | {"targets": rng.integers(0, 2000, 64), "top_k": 4}


def _allo(function: Callable) -> Answer:
    def call(case: Mapping) -> dict:
        return {"loss": batches.call_allo(function, dict(case))[0]}

    return call


def _allo_mistake(mutant: Callable) -> Answer:
    def call(case: Mapping) -> dict:
        found = mutant(dict(case))
        return {"loss": found["loss"], **_by_feature(found)}

    return call


def _by_feature(found: Mapping) -> dict:
    return {name: x for name, x in found.items() if name.startswith("by_")}


def _large_features(seed: int) -> dict:
    case = batches.features((1024, 11), seed)
    return case | {"barrier": float(case["barrier"])}


def _whole_updates() -> dict:
    """Mistakes of functions that make their targets themselves, from a whole batch."""

    def call(mutant: Callable) -> Answer:
        def answer(case: Mapping) -> dict:
            if not case.get("whole"):
                return {}
            _, losses, errors, by_q, by_next_q = mutant(dict(case))
            return {"loss": losses, "td_errors": errors, "by_q": by_q, "by_next_q": by_next_q}

        return answer

    return mistakes("q_update", call)


def _q_member(given: Set[str]) -> dict:
    """Which member of the family a function is, by what it asks for."""
    if "next_q_online" in given:
        return {"member": "double"}
    return {"member": "sarsa"} if "next_actions" in given else {}


def _q_loss_settings(given: Set[str]) -> dict:
    return _q_member(given) | {
        "whole": "targets" not in given,
        "weighted": "weights" in given,
        "given_delta": "delta" in given,
    }


def _ppo_settings(given: Set[str]) -> dict:
    """Without entropies there is no bonus, without values no value loss."""
    found = {} if "entropies" in given else {"entropy_coefficient": 0.0}
    return found if {"values", "returns"} <= given else found | {"value_coefficient": 0.0}


_PUBLISHED = {
    "reality_weight": 0.7,
    "critic_weight": 0.3,
    "label_smoothing": 0.1,
    "entropy_coefficient": 0.01,
}


def _avatarl_settings(given: Set[str]) -> dict:
    return {name: x for name, x in _PUBLISHED.items() if name not in given}


LOSS_CONTRACTS = (
    Contract(
        name="q_targets",
        forms=forms.Q,
        answer=_q_targets(reference.q_targets),
        ours=_q_targets(q_learning.q_targets),
        outputs={"targets": "vector"},
        properties=properties.Q_TARGETS,
        mistakes=mistakes("q_targets", _q_targets),
        needs=(("rewards",), ("next_q",), ("gamma",)),
        settings=_q_member,
        rows=True,
        speed=_large_transitions,
    ),
    Contract(
        name="q_loss",
        forms=forms.Q_LOSS,
        answer=_q_loss(reference.q_loss),
        ours=_q_loss(q_learning.q_loss),
        outputs={"loss": "scalar", "td_errors": "vector"},
        properties=properties.Q_LOSS,
        mistakes=mistakes("q_loss", _q_loss) | _whole_updates(),
        needs=(("q",), ("actions",), ("targets", "next_q")),
        settings=_q_loss_settings,
        variants=({}, {"loss": "huber"}),
        rows=True,
        by=("q",),
        constants=dict.fromkeys(("next_q", "next_q_online"), "differentiates_the_target"),
        slopes=_q_slopes,
        speed=_large_transitions,
    ),
    Contract(
        name="ppo_loss",
        forms=forms.PPO,
        answer=_ppo(reference.ppo_loss),
        ours=_ppo(policy_gradient.ppo_loss),
        outputs={"loss": "scalar"},
        properties=properties.PPO,
        mistakes=mistakes("ppo_loss", _ppo),
        needs=(("log_probs",), ("old_log_probs",), ("advantages",)),
        settings=_ppo_settings,
        rows=True,
        by=("log_probs", "values", "entropies"),
        slopes=_ppo_slopes,
        speed=_large_policy_rows,
    ),
    Contract(
        name="avatarl_loss",
        forms=forms.AVATARL,
        answer=_avatarl(reference.avatarl.avatarl_loss),
        ours=_avatarl(avatarl.avatarl_loss),
        outputs={"loss": "scalar"},
        properties=properties.AVATARL,
        mistakes=mistakes("avatarl_update", _avatarl_mistake),
        settings=_avatarl_settings,
        needs=(("student_logits",), ("critic_logits",), ("targets",)),
        variants=tuple({"variant": name} for name in ("fixed", "full", "original", "subset")),
        rows=True,
        by=("student_logits",),
        constants={"critic_logits": "differentiates_the_rewards"},
        slopes=_avatarl_slopes,
        speed=_large_positions,
    ),
    Contract(
        name="allo_loss",
        forms=forms.ALLO,
        answer=_allo(reference.laplacian.allo_loss),
        ours=_allo(laplacian.allo_loss),
        outputs={"loss": "scalar"},
        properties=properties.ALLO,
        mistakes=mistakes("allo_step", _allo_mistake),
        needs=tuple((form.name,) for form in forms.ALLO),
        variants=({}, {"scale": "full"}),
        rows=True,
        by=("features", "next_features"),
        constants={"other_features": "trains_on_the_second_batch"},
        slopes=lambda case: _by_feature(right_step(dict(case))),
        speed=_large_features,
    ),
)
