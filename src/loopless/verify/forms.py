"""In how many ways functions ask for the same thing: other names, other shapes, fewer flags.

A `Form` is one way of giving a function a part of a case: successor values as an array of their
own, as one row more of `values`, or as the last row alone. What a set of forms leaves out is
`hidden`: a function with one `done` flag cannot know a truncation, whatever it does. Imports NumPy.
Tests: `tests/verify/test_plans.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Form:
    """One way to be given a part of a case."""

    name: str  # what `--map` calls it
    kind: str  # rows flags rows+1 last last_flag matrix actions number integer vector table choice
    names: tuple[str, ...]  # what others call it
    make: Callable[[Mapping], Any]
    optional: bool = False  # a parameter with a default may be left alone


def _form(name: str, kind: str, names: str, make=None, optional: bool = False) -> Form:
    return Form(name, kind, (name, *names.split()), make or (lambda case: case[name]), optional)


def _done(case):
    return case["terminated"] | case["truncated"]


def _starts(case):
    """Whether each row is the first of its episode: the flag of the row before."""
    done = _done(case)
    return np.concatenate([np.zeros_like(done[:1]), done[:-1]])


def _valid(case):
    return case.get("valid", np.ones(np.shape(case["rewards"]), bool))


ROLLOUT = (
    _form("rewards", "rows", "reward r rew rews r_t"),
    _form("values", "rows", "value v vals val v_t v_tm1 state_values state_value v_s baseline"),
    _form(
        "values_and_last",
        "rows+1",
        "values value v vals val v_t state_values values_t",
        lambda case: np.concatenate([case["values"], case["next_values"][-1:]]),
    ),
    _form(
        "next_values",
        "rows",
        "next_value next_state_value next_state_values v_next values_next next_vals next_v v_s_ "
        "successor_values bootstrap_values v_tp1",
    ),
    _form(
        "last_values",
        "last",
        "last_value next_value next_values bootstrap_value bootstrap_values bootstrap final_value "
        "last_val v_last last_v final_values",
        lambda case: case["next_values"][-1],
    ),
    _form("terminated", "flags", "terminations terminateds terminal terminals term is_terminal"),
    _form("truncated", "flags", "truncations truncateds trunc timeouts timeout time_limits"),
    _form("done", "flags", "dones d done_t is_done ended end ends end_flag finished", _done),
    _form(
        "not_done",
        "flags",
        "masks mask nonterminal nonterminals not_dones continues continuation non_terminal",
        lambda case: ~_done(case),
    ),
    _form("starts", "flags", "episode_starts is_first resets firsts episode_start first", _starts),
    _form(
        "last_done", "last_flag", "next_done last_dones next_dones", lambda case: _done(case)[-1]
    ),
    _form(
        "discounts",
        "rows",
        "discount_t",
        lambda case: np.where(case["terminated"], 0.0, case["gamma"]),
    ),
    _form("gamma", "number", "discount discount_factor g discount_rate"),
    _form(
        "lambda_",
        "number",
        "lam lmbda lambd gae_lambda tau td_lambda gaelambda lamda lambda_t",
    ),
    _form("n", "integer", "n_step n_steps nstep nsteps horizon steps"),
    _form("valid", "flags", "mask masks valid_mask padding_mask is_valid", _valid, True),
)

OFF_POLICY = (
    *ROLLOUT,
    _form("log_ratios", "rows", "log_rhos log_rho log_ratio log_importance_weights"),
    _form(
        "ratios",
        "rows",
        "rhos rho rho_t rho_tm1 ratio importance_weights is_ratios",
        lambda case: np.exp(case["log_ratios"]),
    ),
    _form(
        "log_behaviour",
        "rows",
        "log_mu behaviour_log_probs behavior_log_probs old_log_probs mu_logprobs log_probs_old",
    ),
    _form(
        "log_target",
        "rows",
        "log_pi target_log_probs log_probs new_log_probs pi_logprobs logp",
        lambda case: case["log_behaviour"] + case["log_ratios"],
    ),
    _form("q_values", "rows", "q qs q_t action_values"),
    _form("clip_rho", "number", "rho_bar clip_rho_threshold rho_clip rho_thresh", optional=True),
    _form("clip_c", "number", "c_bar clip_c_threshold c_clip c_thresh", optional=True),
    _form("clip_pg_rho", "number", "clip_pg_rho_threshold pg_rho_clip", optional=True),
)

TOKENS = (
    _form("rewards", "rows", "reward token_level_rewards token_rewards r"),
    _form("values", "rows", "value v state_values"),
    _form(
        "mask",
        "flags",
        "response_mask masks eos_mask loss_mask action_mask response_masks padding_mask valid",
    ),
    _form("lengths", "last_count", "response_lengths length", lambda case: case["mask"].sum(0)),
    _form("gamma", "number", "discount"),
    _form("lambda_", "number", "lam lmbda lambd gae_lambda tau"),
)

NORMALIZE = (
    _form("x", "rows", "advantages adv advs values a array data returns"),
    _form(
        "valid",
        "flags",
        "mask masks valid_mask",
        lambda case: case.get("valid", np.ones(case["x"].shape, bool)),
        True,
    ),
)

Q = (
    _form("rewards", "vector", "reward r rew"),
    _form("terminated", "vector_flags", "terminations terminal terminals term is_terminal"),
    _form("truncated", "vector_flags", "truncations trunc timeouts timeout time_limits"),
    _form("done", "vector_flags", "dones d is_done done_mask", _done),
    _form(
        "not_done",
        "vector_flags",
        "masks mask nonterminal not_dones non_final_mask continues",
        lambda case: ~_done(case),
    ),
    _form(
        "next_q",
        "matrix",
        "q_next next_q_values target_q next_q_target q_target next_q_targets next_target_q "
        "target_next_q q_tp1 next_qs target_q_values",
    ),
    _form(
        "next_q_online",
        "matrix",
        "online_next_q next_q_eval q_next_online online_q next_online_q next_q_values_online",
    ),
    _form("next_actions", "actions", "next_action a_next a_tp1"),
    _form("gamma", "number", "discount discount_factor g"),
)

Q_LOSS = (
    _form("q", "matrix", "q_values qs q_tm1 current_q q_online q_pred"),
    _form("actions", "actions", "action a acts a_tm1"),
    _form("targets", "vector", "target y q_targets td_target td_targets target_values"),
    _form("weights", "vector", "weight is_weights w importance_weights", optional=True),
    _form("delta", "number", "beta kappa huber_delta", optional=True),
    *Q,
)

PPO = (
    _form("log_probs", "vector", "logp new_log_probs newlogprob logprobs log_prob new_logprob"),
    _form("old_log_probs", "vector", "logp_old oldlogprob old_logprobs old_log_prob b_logprobs"),
    _form("advantages", "vector", "adv advs advantage a"),
    _form("values", "vector", "value v newvalue new_values"),
    _form("returns", "vector", "ret rets return_ targets value_targets"),
    _form("entropies", "vector", "entropy ent"),
    _form("clip", "number", "clip_coef clip_range epsilon eps clip_ratio cliprange clip_eps"),
    _form("value_coefficient", "number", "vf_coef value_coef c1 vf_coeff critic_coef"),
    _form("entropy_coefficient", "number", "ent_coef entropy_coef c2 ent_coeff"),
    _form(
        "valid",
        "vector_flags",
        "mask masks valid_mask",
        lambda case: case.get("valid", np.ones(case["log_probs"].shape, bool)),
        True,
    ),
)

AVATARL = (
    _form("student_logits", "table", "logits student z"),
    _form("critic_logits", "table", "mentor_logits teacher_logits critic"),
    _form("targets", "actions", "labels y target gold ground_truth ground_truth_tokens"),
    _form("top_k", "integer", "k topk"),
    _form("reality_weight", "number", "w_r", lambda case: case.get("reality_weight", 0.7), True),
    _form(
        "critic_weight",
        "number",
        "mentor_weight w_m",
        lambda case: case.get("critic_weight", 0.3),
        True,
    ),
    _form(
        "label_smoothing",
        "number",
        "label_smoothing_epsilon smoothing epsilon eps",
        lambda case: case.get("label_smoothing", 0.1),
        True,
    ),
    _form(
        "entropy_coefficient",
        "number",
        "entropy_coef beta",
        lambda case: case.get("entropy_coefficient", 0.01),
        True,
    ),
)

ALLO = (
    _form("features", "table", "phi phi_1 start_representation x"),
    _form("next_features", "table", "phi_next next_phi end_representation y"),
    _form("other_features", "table", "psi phi_2 constraint_representation other_phi"),
    _form("duals", "table", "dual_variables beta dual"),
    _form("barrier", "number", "b barrier_coefficient barrier_coef"),
)


@dataclass(frozen=True)
class Hidden:
    """What a function cannot know from what it is given, and the known mistake this comes to."""

    mistake: str
    seen: Callable[[dict], dict]  # a case as the function sees it


_ONE_FLAG = "treats_truncation_as_termination"


def _no_truncation(case: dict) -> dict:
    """One flag for both ends, or none for truncations that it is told of."""
    return case | {"terminated": _done(case), "truncated": np.zeros_like(case["truncated"])}


def _unnoticed(case: dict) -> dict:
    return case | {"truncated": np.zeros_like(case["truncated"])}


def _endless(case: dict) -> dict:
    return _unnoticed(case) | {"terminated": np.zeros_like(case["terminated"])}


def _following(case: dict) -> dict:
    following = np.concatenate([case["values"][1:], case["next_values"][-1:]])
    return case | {"next_values": following}


def _zero_last(case: dict) -> dict:
    after = case["next_values"].copy()
    after[-1] = 0.0
    return case | {"next_values": after}


def _no_values(case: dict) -> dict:
    return case | {"next_values": np.zeros_like(case["next_values"])}


def hidden(forms: Iterable[str]) -> tuple[Hidden, ...]:
    """What a function that is given these forms of a rollout or a transition cannot know."""
    given, found = set(forms), []
    if not given & {"rewards"}:
        return ()
    either = given & {"done", "not_done", "starts"}
    one_flag = "takes_done_for_terminated" if "next_q" in given else _ONE_FLAG
    if not (given & {"terminated", "discounts"}):
        if not either:
            found.append(Hidden("hears_of_no_end", _endless))
        elif "truncated" not in given:
            found.append(Hidden(one_flag, _no_truncation))
    elif not (given & {"truncated"} or either) and "next_q" not in given:
        found.append(Hidden("hears_of_no_truncation", _unnoticed))
    if not given & {"next_values", "next_q"}:
        if given & {"values_and_last", "last_values"}:
            if "values" in given or "values_and_last" in given:
                found.append(Hidden("bootstraps_from_the_next_row", _following))
        elif "values" in given:
            found.append(Hidden("bootstraps_from_the_next_row", _following))
            found.insert(0, Hidden("bootstraps_the_window_with_zero", _zero_last))
        else:
            found.append(Hidden("discounted_returns_forget_the_bootstrap", _no_values))
    return tuple(found)
