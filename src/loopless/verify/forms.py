"""The many ways in which functions take the same thing: other names, other shapes, fewer flags.

A `Form` is one way to pass a part of a case to a function. Successor values, for example, may be a
separate array, one more row of `values`, or the last row alone. What a set of forms leaves out is
`hidden`: a function with a single `done` flag cannot tell a truncation from a termination.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from inspect import cleandoc
from operator import itemgetter
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Form:
    """One way to pass a part of a case."""

    name: str  # what `--map` calls it
    # Over time: rows flags rows+1 last last_flag last_count. Without time: vector vector_flags
    # actions matrix table. Either: number integer.
    kind: str
    names: tuple[str, ...]  # what parameters are called in other code
    make: Callable[[Mapping], Any]


def _forms(table: str, **makers: Callable[[Mapping], Any]) -> tuple[Form, ...]:
    """Return the forms of a table: on each line a name, its kind, and its names in other code.

    An indented line goes on with the names of the line before. A form is the case's entry of that
    name, unless `makers` has a function that makes it from a case.
    """
    lines = cleandoc(table).replace("\n ", " ").splitlines()
    return tuple(
        Form(name, kind, (name, *names), makers.get(name) or itemgetter(name))
        for name, kind, *names in map(str.split, lines)
    )


def _all_true(name: str) -> Callable[[Mapping], Any]:
    """Return a function from a case to its mask, or to an all-true mask for array `name`."""
    return lambda case: case.get("valid", np.ones(np.shape(case[name]), bool))


def _number(name: str, default: float) -> Callable[[Mapping], Any]:
    """Return a function from a case to its number `name`, or to the default."""
    return lambda case: case.get(name, default)


def _done(case):
    return case["terminated"] | case["truncated"]


def _not_done(case):
    return ~_done(case)


def _starts(case):
    """Return whether each step is the first of its episode: whether the step before ended one."""
    done = _done(case)
    return np.concatenate([np.zeros_like(done[:1]), done[:-1]])


ROLLOUT = _forms(
    """
    rewards          rows       reward r rew rews r_t
    values           rows       value v vals val v_t v_tm1 state_values state_value v_s baseline
    values_and_last  rows+1     values value v vals val v_t state_values values_t
    next_values      rows       next_value next_state_value next_state_values v_next values_next
                                next_vals next_v v_s_ successor_values bootstrap_values v_tp1
    last_values      last       last_value next_value next_values bootstrap_value bootstrap_values
                                bootstrap final_value last_val v_last last_v final_values
    terminated       flags      terminations terminateds terminal terminals term is_terminal
    truncated        flags      truncations truncateds trunc timeouts timeout time_limits
    done             flags      dones d done_t is_done ended end ends end_flag finished
    not_done         flags      masks mask nonterminal nonterminals not_dones continues
                                continuation non_terminal
    starts           flags      episode_starts is_first resets firsts episode_start first
    last_done        last_flag  next_done last_dones next_dones
    discounts        rows       discount_t
    gamma            number     discount discount_factor g discount_rate
    lambda_          number     lam lmbda lambd gae_lambda tau td_lambda gaelambda lamda lambda_t
    n                integer    n_step n_steps nstep nsteps horizon steps
    valid            flags      mask masks valid_mask padding_mask is_valid
    """,
    values_and_last=lambda case: np.concatenate([case["values"], case["next_values"][-1:]]),
    last_values=lambda case: case["next_values"][-1],
    done=_done,
    not_done=_not_done,
    starts=_starts,
    last_done=lambda case: _done(case)[-1],
    discounts=lambda case: np.where(case["terminated"], 0.0, case["gamma"]),
    valid=_all_true("rewards"),
)

OFF_POLICY = ROLLOUT + _forms(
    """
    log_ratios     rows    log_rhos log_rho log_ratio log_importance_weights
    ratios         rows    rhos rho rho_t rho_tm1 ratio importance_weights is_ratios
    log_behaviour  rows    log_mu behaviour_log_probs behavior_log_probs old_log_probs mu_logprobs
                           log_probs_old
    log_target     rows    log_pi target_log_probs log_probs new_log_probs pi_logprobs logp
    q_values       rows    q qs q_t action_values
    clip_rho       number  rho_bar clip_rho_threshold rho_clip rho_thresh
    clip_c         number  c_bar clip_c_threshold c_clip c_thresh
    clip_pg_rho    number  clip_pg_rho_threshold pg_rho_clip
    """,
    ratios=lambda case: np.exp(case["log_ratios"]),
    log_target=lambda case: case["log_behaviour"] + case["log_ratios"],
)

TOKENS = _forms(
    """
    rewards  rows        reward token_level_rewards token_rewards r
    values   rows        value v state_values
    mask     flags       response_mask masks eos_mask loss_mask action_mask response_masks
                         padding_mask valid
    lengths  last_count  response_lengths length
    gamma    number      discount
    lambda_  number      lam lmbda lambd gae_lambda tau
    """,
    lengths=lambda case: case["mask"].sum(0),
)

NORMALIZE = _forms(
    """
    x      rows   advantages adv advs values a array data returns
    valid  flags  mask masks valid_mask
    """,
    valid=_all_true("x"),
)

Q = _forms(
    """
    rewards        vector        reward r rew
    terminated     vector_flags  terminations terminal terminals term is_terminal
    truncated      vector_flags  truncations trunc timeouts timeout time_limits
    done           vector_flags  dones d is_done done_mask
    not_done       vector_flags  masks mask nonterminal not_dones non_final_mask continues
    next_q         matrix        q_next next_q_values target_q next_q_target q_target next_q_targets
                                 next_target_q target_next_q q_tp1 next_qs target_q_values
    next_q_online  matrix        online_next_q next_q_eval q_next_online online_q next_online_q
                                 next_q_values_online
    next_actions   actions       next_action a_next a_tp1
    gamma          number        discount discount_factor g
    """,
    done=_done,
    not_done=_not_done,
)

Q_LOSS = (
    _forms(
        """
        q        matrix   q_values qs q_tm1 current_q q_online q_pred
        actions  actions  action a acts a_tm1
        targets  vector   target y q_targets td_target td_targets target_values
        weights  vector   weight is_weights w importance_weights
        delta    number   beta kappa huber_delta
        """
    )
    + Q
)

PPO = _forms(
    """
    log_probs            vector        logp new_log_probs newlogprob logprobs log_prob new_logprob
    old_log_probs        vector        logp_old oldlogprob old_logprobs old_log_prob b_logprobs
    advantages           vector        adv advs advantage a
    values               vector        value v newvalue new_values
    returns              vector        ret rets return_ targets value_targets
    entropies            vector        entropy ent
    clip                 number        clip_coef clip_range epsilon eps clip_ratio cliprange
                                       clip_eps
    value_coefficient    number        vf_coef value_coef c1 vf_coeff critic_coef
    entropy_coefficient  number        ent_coef entropy_coef c2 ent_coeff
    valid                vector_flags  mask masks valid_mask
    """,
    valid=_all_true("log_probs"),
)

# What AvataRL's published code uses, for functions that have these numbers built in.
PUBLISHED = {
    "reality_weight": 0.7,
    "critic_weight": 0.3,
    "label_smoothing": 0.1,
    "entropy_coefficient": 0.01,
}
AVATARL = _forms(
    """
    student_logits       table    logits student z
    critic_logits        table    mentor_logits teacher_logits critic
    targets              actions  labels y target gold ground_truth ground_truth_tokens
    top_k                integer  k topk
    reality_weight       number   w_r
    critic_weight        number   mentor_weight w_m
    label_smoothing      number   label_smoothing_epsilon smoothing epsilon eps
    entropy_coefficient  number   entropy_coef beta
    """,
    **{name: _number(name, value) for name, value in PUBLISHED.items()},
)

ALLO = _forms(
    """
    features        table   phi phi_1 start_representation x
    next_features   table   phi_next next_phi end_representation y
    other_features  table   psi phi_2 constraint_representation other_phi
    duals           table   dual_variables beta dual
    barrier         number  b barrier_coefficient barrier_coef
    """
)


# --- what a function cannot know


@dataclass(frozen=True)
class Hidden:
    """Something that a function cannot know from its arguments, and the mistake that follows."""

    mistake: str
    seen: Callable[[dict], dict]  # from a case to the case as the function sees it


_ONE_FLAG = "treats_truncation_as_termination"


def _one_flag(case: dict) -> dict:
    return case | {"terminated": _done(case), "truncated": np.zeros_like(case["truncated"])}


def _no_truncations(case: dict) -> dict:
    return case | {"truncated": np.zeros_like(case["truncated"])}


def _no_ends(case: dict) -> dict:
    return _no_truncations(case) | {"terminated": np.zeros_like(case["terminated"])}


def _values_of_next_row(case: dict) -> dict:
    following = np.concatenate([case["values"][1:], case["next_values"][-1:]])
    return case | {"next_values": following}


def _zero_after_the_window(case: dict) -> dict:
    after = case["next_values"].copy()
    after[-1] = 0.0
    return case | {"next_values": after}


def _no_values(case: dict) -> dict:
    return case | {"next_values": np.zeros_like(case["next_values"])}


def hidden(forms: Iterable[str]) -> tuple[Hidden, ...]:
    """Return what a function with these forms of a rollout or a transition cannot know."""
    taken, unknown = set(forms), []
    if "rewards" not in taken:
        return ()
    either = taken & {"done", "not_done", "starts"}
    if not (taken & {"terminated", "discounts"}):
        if not either:
            unknown.append(Hidden("ignores_ends", _no_ends))
        elif "truncated" not in taken:
            mistake = "takes_done_for_terminated" if "next_q" in taken else _ONE_FLAG
            unknown.append(Hidden(mistake, _one_flag))
    elif not (taken & {"truncated"} or either) and "next_q" not in taken:
        unknown.append(Hidden("ignores_truncations", _no_truncations))
    if not taken & {"next_values", "next_q"}:
        if taken & {"values_and_last", "last_values"}:
            if taken & {"values", "values_and_last"}:
                unknown.append(Hidden("bootstraps_from_the_next_row", _values_of_next_row))
        elif "values" in taken:
            unknown.append(Hidden("bootstraps_from_the_next_row", _values_of_next_row))
            unknown.insert(0, Hidden("bootstraps_the_window_with_zero", _zero_after_the_window))
        else:
            unknown.append(Hidden("discounted_returns_forget_the_bootstrap", _no_values))
    return tuple(unknown)
