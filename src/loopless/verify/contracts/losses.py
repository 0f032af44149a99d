"""The table of losses and targets: how each is called, its kernel, its twin, its gradients.

A new loss is one entry of `LOSS_CONTRACTS`, at the end of this file. The functions before it turn
a case (a dictionary of arrays) into a call.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Set
from typing import Any

from loopless import reference
from loopless.kernels import policy_gradient, q_learning
from loopless.kernels.avatarl.loss import avatarl_loss
from loopless.kernels.laplacian.losses import allo_loss
from loopless.verify import forms
from loopless.verify.cases import batches, properties
from loopless.verify.cases.sources import Seeded
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


def _q_update(mutant: Callable) -> Answer:
    """Return the answer of a function that computes its own targets from a whole batch."""

    def answer(case: Mapping) -> dict:
        if not case.get("whole"):
            return {}
        _, losses, errors, by_q, by_next_q = mutant(dict(case))
        return {"loss": losses, "td_errors": errors, "by_q": by_q, "by_next_q": by_next_q}

    return answer


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


# --- PPO


def _ppo(function: Callable) -> Answer:
    return lambda case: {"loss": batches.call_ppo(function, case)[0]}


def _ppo_slopes(case: Mapping) -> dict:
    gradients = batches.call_ppo(reference.ppo_loss_gradients, case)
    return {f"by_{name}": x for name, x in zip(batches.INPUTS, gradients, strict=True)}


def _ppo_settings(taken: Set[str]) -> dict:
    """Return coefficients of 0 for parts of the loss whose arrays the function does not take."""
    settings = {} if "entropies" in taken else {"entropy_coefficient": 0.0}
    return settings if {"values", "returns"} <= taken else settings | {"value_coefficient": 0.0}


# --- AvataRL

_LOGITS = ("student_logits", "critic_logits", "targets")


def _call_avatarl(function: Callable, case: Mapping, *more: str):
    options = {name: case[name] for name in (*forms.PUBLISHED, "top_k", *more) if name in case}
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
    return {name: x for name, x in forms.PUBLISHED.items() if name not in taken}


# --- ALLO


def _allo(function: Callable) -> Answer:
    return lambda case: {"loss": batches.call_allo(function, case)[0]}


def _allo_mistake(mutant: Callable) -> Answer:
    def call(case: Mapping) -> dict:
        step = mutant(dict(case))
        return {"loss": step["loss"], **_slopes_of(step)}

    return call


def _slopes_of(step: Mapping) -> dict:
    return {name: x for name, x in step.items() if name.startswith("by_")}


# --- the table


def _entry(
    kernel: Callable,
    twins: Any,
    answer: Callable[[Callable], Answer],
    names: tuple[forms.Form, ...],
    kinds: tuple[properties.Property, ...],
    needs: str,
    **more: Any,
) -> Contract:
    """Return the contract of a kernel whose twin, of the same name, is in the module `twins`.

    `answer` turns a function like the kernel into an answer. `needs` are groups "a|b", of each of
    which a user's function must take one.
    """
    name = kernel.__name__
    usual = {"outputs": {"loss": "scalar"}, "mistakes": mistakes(name, answer)}
    return Contract(
        name=name,
        forms=names,
        answer=answer(getattr(twins, name)),
        ours=answer(kernel),
        properties=kinds,
        needs=tuple(tuple(group.split("|")) for group in needs.split()),
        rows=True,
        **usual | more,
    )


def _large(make: Callable, shape: tuple[int, int], **options: Any) -> Callable[[int], dict]:
    """Return a function from a seed to a case of this shape, to time."""
    return lambda seed: make(Seeded(seed, (shape,)), **options)


LOSS_CONTRACTS = (
    _entry(
        q_learning.q_targets,
        reference,
        _q_targets,
        forms.Q,
        properties.Q_TARGETS,
        "rewards next_q gamma",
        outputs={"targets": "vector"},
        settings=_q_member,
        speed=_large(properties.transitions, (256, 6), terminated=True),
    ),
    _entry(
        q_learning.q_loss,
        reference,
        _q_loss,
        forms.Q_LOSS,
        properties.Q_LOSS,
        "q actions targets|next_q",
        outputs={"loss": "scalar", "td_errors": "vector"},
        mistakes=mistakes("q_loss", _q_loss) | mistakes("q_update", _q_update),
        settings=_q_loss_settings,
        variants=({}, {"loss": "huber"}),
        by=("q",),
        constants=dict.fromkeys(("next_q", "next_q_online"), "differentiates_the_target"),
        slopes=_q_slopes,
        speed=_large(properties.transitions, (256, 6), terminated=True),
    ),
    _entry(
        policy_gradient.ppo_loss,
        reference,
        _ppo,
        forms.PPO,
        properties.PPO,
        "log_probs old_log_probs advantages",
        settings=_ppo_settings,
        by=batches.INPUTS,
        slopes=_ppo_slopes,
        speed=_large(properties.policy_rows, (4096, 1)),
    ),
    _entry(
        avatarl_loss,
        reference.avatarl,
        _avatarl,
        forms.AVATARL,
        properties.AVATARL,
        "student_logits critic_logits targets",
        mistakes=mistakes("avatarl_update", _avatarl_mistake),
        settings=_avatarl_settings,
        variants=tuple({"variant": name} for name in ("fixed", "full", "original", "subset")),
        by=("student_logits",),
        constants={"critic_logits": "differentiates_the_rewards"},
        slopes=_avatarl_slopes,
        speed=_large(properties.positions, (64, 1), vocabulary=2000, top_k=4),
    ),
    _entry(
        allo_loss,
        reference.laplacian,
        _allo,
        forms.ALLO,
        properties.ALLO,
        " ".join(form.name for form in forms.ALLO),
        mistakes=mistakes("allo_step", _allo_mistake),
        variants=({}, {"scale": "full"}),
        by=("features", "next_features"),
        constants={"other_features": "trains_on_the_second_batch"},
        slopes=lambda case: _slopes_of(right_step(dict(case))),
        speed=_large(properties.features, (1024, 11)),
    ),
)
