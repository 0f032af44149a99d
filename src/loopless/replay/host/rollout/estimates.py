"""Advantages and returns of a rollout's columns, whatever their lengths and ends.

Imports `casts`, `ends`, `refusals` and the kernels, where the maths stands. Tests:
`tests/replay/test_rollout_estimates.py`, and against loops `tests/replay/test_rollout_model.py`.
"""

from typing import Any

import numpy as np

from loopless.kernels.returns import gae
from loopless.kernels.rollouts import successor_values
from loopless.refusals import list_first
from loopless.replay.casts import convert_all
from loopless.replay.host.rollout.ends import Ends


def estimate(where: str, ends: Ends, last_values, *, gamma, lambda_) -> tuple[Any, Any]:
    """Advantages and returns [longest column, envs], 0 where a row is no step."""
    columns, view = ends.columns, ends.columns.view
    if not columns.rows:
        raise RuntimeError(f"{where}: nothing was added since the last clear().")
    advantages, returns = gae(
        view("rewards"),
        view("values"),
        next_values(where, ends, last_values),
        view("terminated"),
        view("truncated"),
        gamma=gamma,
        lambda_=lambda_,
        valid=ends.valid(columns.rows),
    )
    return advantages, returns


def next_values(where: str, ends: Ends, last_values) -> Any:
    """The value of each row's true successor, `last_values` [envs] where it is outside."""
    columns, store = ends.columns, ends.store
    outside = successor_outside(where, ends)
    if last_values is None and outside.size:
        raise ValueError(
            f"{where}: the column of env {list_first(outside)} has not ended, and last_values is "
            f"missing. Pass the values [envs] of the observations that follow the last rows."
        )
    field = columns.fields["values"]
    last = store.zeros((columns.envs,), field.dtype)
    if last_values is not None:
        given, fields = {"last_values": last_values}, {"last_values": field}
        last = convert_all(where, given, fields, (columns.envs,), store)["last_values"]
    successors, _ = successor_values(
        columns.view("values"),
        last,
        columns.view("terminated"),
        columns.view("truncated"),
        final_values=columns.view("final_values") if ends.same_step else None,
        autoreset="same_step" if ends.same_step else "next_step",
        previous_end=None if ends.same_step else ends.previous,
    )
    # below a short column's last row is padding, not last_values
    cells = columns.cells(columns.lengths[outside] - 1, outside)
    successors[cells] = last[store.array(outside)]
    return successors


def successor_outside(where: str, ends: Ends) -> np.ndarray:
    """The envs whose last row's successor is in no row; an error if a row cannot be estimated."""
    steps, envs = ends.pending()
    if len(steps):
        raise RuntimeError(
            f"{where}: {len(steps)} truncated rows wait for their successor's value, at (step, "
            f"env) {list_first(np.stack([steps, envs], 1))}. Call bootstrap(values) in the order "
            f"of pending(), or pass final_values to add()."
        )
    columns, host = ends.columns, ends.store.host
    terminated, truncated = host(columns.view("terminated")), host(columns.view("truncated"))
    valid, ended = host(ends.valid(columns.rows)), terminated | truncated
    if (ended & ~valid).any():
        step, env = np.argwhere(ended & ~valid)[0].tolist()
        raise RuntimeError(
            f"{where}: row {step} of env {env} follows an end, so with next-step autoreset it is "
            f"a reset, yet it is flagged as an end itself. If the environments reset in the step "
            f'of the end, use autoreset="same_step".'
        )
    envs = np.flatnonzero(columns.lengths)
    last = columns.lengths[envs] - 1, envs
    return envs[~ended[last] if ends.same_step else valid[last] & ~terminated[last]]
