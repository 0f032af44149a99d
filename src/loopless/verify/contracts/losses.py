"""The table of losses and targets: how each is called, its kernel, its twin, its gradients.

A new loss is one entry of `LOSS_CONTRACTS`, at the end of this file. The functions before it turn
a case (a dictionary of arrays) into a call.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Set

import numpy as np

from loopless import reference
from loopless.kernels import policy_gradient, q_learning
from loopless.kernels.avatarl import loss as avatarl
from loopless.kernels.laplacian import losses as laplacian
from loopless.verify import forms
from loopless.verify.cases import batches, properties
from loopless.verify.contracts.contract import Answer, Contract, mistakes
from loopless.verify.mutants.laplacian import right_step

# --- Q-learning


def _q_targets(function: Callable) -> Answer:
    def call(case: Mapping) -> dict:
        member = case.get("member", "dqn")
        return {"targets": batches.call_targets(function, case, member)}

    return call


def _with_targets(case: Mapping) -> Mapping:
    """Return the case with targets from its transitions, if the function computes its own."""
    return {**case, **_q_targets(reference.q_targets)(case)} if case.get("whole") else case


def _q_loss_options(case: Mapping) -> dict:
    kind = case.get("loss", "mse")
    options = {"loss": kind, "weights": case["weights"] if case.get("weighted", True) else None}
    return options | (
        {"delta": case["delta"]} if kind == "huber" and case.get("given_delta") else {}
    )


def _q_loss(function: Callable) -> Answer:
    def call(case: Mapping) -> dict:
        case = _with_targets(case)
        arrays = (case[name] for name in batches.LOSS)
        loss, errors = function(*arrays, **_q_loss_options(case))
        return {"loss": loss, "td_errors": errors}

    return call


def _q_slopes(case: Mapping) -> dict:
    case = _with_targets(case)
    arrays = (case[name] for name in batches.LOSS)
    return {"by_q": reference.q_loss_gradients(*arrays, **_q_loss_options(case))}


def _whole_updates() -> dict:
    """Return the known mistakes of functions that compute their own targets from a whole batch."""

    def call(mutant: Callable) -> Answer:
        def answer(case: Mapping) -> dict:
            if not case.get("whole"):
                return {}
            _, losses, errors, by_q, by_next_q = mutant(dict(case))
            return {"loss": losses, "td_errors": errors, "by_q": by_q, "by_next_q": by_next_q}

        return answer

    return mistakes("q_update", call)


def _q_member(taken: Set[str]) -> dict:
    """Return which member of the family a function is, by the arguments that it takes."""
    if "next_q_online" in taken:
        return {"member": "double"}
    return {"member": "sarsa"} if "next_actions" in taken else {}


def _q_loss_settings(taken: Set[str]) -> dict:
    return _q_member(taken) | {
        "whole": "targets" not in taken,
        "weighted": "weights" in taken,
        "given_delta": "delta" in taken,
    }


def _large_transitions(seed: int) -> dict:
    rng = np.random.default_rng(seed)
    case = {name: rng.standard_normal((256, 6)) for name in ("q", "next_q", "next_q_online")}
    case |= {name: rng.standard_normal(256) for name in ("rewards", "targets")}
    case |= {name: rng.integers(0, 6, 256) for name in ("actions", "next_actions")}
    case |= {name: rng.random(256) < 0.1 for name in ("terminated", "truncated")}
    return case | {"weights": rng.uniform(0.1, 1, 256), "gamma": 0.99, "delta": 1.0}


# --- PPO


def _ppo(function: Callable) -> Answer:
    numbers = ("clip", "value_coefficient", "entropy_coefficient", "valid")

    def call(case: Mapping) -> dict:
        options = {name: case[name] for name in numbers if name in case}
        return {"loss": function(*(case[name] for name in batches.PPO), **options)[0]}

    return call


def _ppo_slopes(case: Mapping) -> dict:
    gradients = batches.call_ppo(reference.ppo_loss_gradients, dict(case))
    return {f"by_{name}": x for name, x in zip(batches.INPUTS, gradients, strict=True)}


def _ppo_settings(taken: Set[str]) -> dict:
    """Return coefficients of 0 for parts of the loss whose arrays the function does not take."""
    settings = {} if "entropies" in taken else {"entropy_coefficient": 0.0}
    return settings if {"values", "returns"} <= taken else settings | {"value_coefficient": 0.0}


# --- AvataRL

_LOGITS = ("student_logits", "critic_logits", "targets")
_PUBLISHED = {
    "reality_weight": 0.7,
    "critic_weight": 0.3,
    "label_smoothing": 0.1,
    "entropy_coefficient": 0.01,
}


def _call_avatarl(function: Callable, case: Mapping, *more: str):
    options = {name: case[name] for name in (*_PUBLISHED, "top_k", *more) if name in case}
    return function(*(case[name] for name in _LOGITS), **options)


def _avatarl(function: Callable) -> Answer:
    return lambda case: {"loss": _call_avatarl(function, case, "variant")[0]}


def _avatarl_slopes(case: Mapping) -> dict:
    return {
        "by_student_logits": _call_avatarl(reference.avatarl.avatarl_gradients, case, "variant")
    }


def _avatarl_mistake(mutant: Callable) -> Answer:
    def call(case: Mapping) -> dict:
        loss, by_student, by_critic = _call_avatarl(mutant, case)
        return {"loss": loss, "by_student_logits": by_student, "by_critic_logits": by_critic}

    return call


def _avatarl_settings(taken: Set[str]) -> dict:
    return {name: x for name, x in _PUBLISHED.items() if name not in taken}


def _large_positions(seed: int) -> dict:
    rng = np.random.default_rng(seed)
    logits = {name: rng.standard_normal((64, 2000)) for name in _LOGITS[:2]}
    return logits | {"targets": rng.integers(0, 2000, 64), "top_k": 4}


# --- ALLO


def _allo(function: Callable) -> Answer:
    return lambda case: {"loss": batches.call_allo(function, dict(case))[0]}


def _allo_mistake(mutant: Callable) -> Answer:
    def call(case: Mapping) -> dict:
        step = mutant(dict(case))
        return {"loss": step["loss"], **_slopes_of(step)}

    return call


def _slopes_of(step: Mapping) -> dict:
    return {name: x for name, x in step.items() if name.startswith("by_")}


def _large_features(seed: int) -> dict:
    case = batches.features((1024, 11), seed)
    return case | {"barrier": float(case["barrier"])}


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
        by=batches.INPUTS,
        slopes=_ppo_slopes,
        speed=lambda seed: batches.policy_rows((4096,), seed),
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
        needs=tuple((name,) for name in _LOGITS),
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
        slopes=lambda case: _slopes_of(right_step(dict(case))),
        speed=_large_features,
    ),
)
