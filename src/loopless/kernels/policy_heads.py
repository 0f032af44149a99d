"""PPO's loss of an action made of several heads, and of weighted entries: see `ppo_loss`.

All heads are stacked along a first axis, so that the number of operations does not grow with them.
"""

from typing import Any, NamedTuple

import numpy as np

from loopless.arrays import checks
from loopless.arrays.library import NUMBER, NUMPY, Library, typed
from loopless.kernels.policy_arguments import check_number
from loopless.kernels.policy_gradient import bounded_error, finite, is_cut, is_unclipped

_ALONE = ""  # the name of the only head of an action without heads
_FUNCTION = "ppo_loss"


def loss(arrays, numbers, valid, weights, masks, floor, floor_coefficient) -> tuple[Any, tuple]:
    """Return the loss and the parts, in the order of `PPOParts`."""
    log_probs, old_log_probs, advantages, values, returns, entropies, old_values = arrays
    clip, value_coefficient, entropy_coefficient, value_clip = numbers
    heads = isinstance(log_probs, dict)
    by_head = {"log_probs": log_probs, "old_log_probs": old_log_probs, "entropies": entropies}
    names = tuple(log_probs) if heads else (_ALONE,)
    if not names:
        raise ValueError(f"{_FUNCTION}: log_probs has no heads.")
    if not heads:
        by_head = {name: {_ALONE: x} for name, x in by_head.items()}
    by_head["advantages"] = _spread(advantages, names)
    for name, group in {**by_head, "masks": masks}.items():
        _check_heads(name, group, names if heads or name != "masks" else ())
    arguments = checks.Arguments(_FUNCTION, "values", values)
    library, xp = arguments.library, arguments.library.xp
    whole = {"returns": returns} | ({} if value_clip is None else {"old_values": old_values})
    if value_clip is not None and old_values is None:
        raise ValueError(f"{_FUNCTION}: value_clip={value_clip} needs old_values.")
    every = {"values": values, **whole} | {
        f"{name}[{head!r}]" if heads else name: x
        for name, group in by_head.items()
        for head, x in group.items()
    }
    if weights is not None:
        every["weights"] = weights
    dtype = arguments.floats(every)
    wide = library.wide(dtype)
    counts = _flags(arguments, valid, masks, names, values)
    rows = counts[0] if valid is None else arguments.boolean("valid", valid)
    rows = rows | True if valid is None else rows
    coefficients = {
        name: _by_head(arguments, name, x, names, wide, values)
        for name, x in (
            ("clip", clip),
            ("entropy_coefficient", entropy_coefficient),
            ("entropy_floor", floor),
        )
    }
    scales = [
        scale if isinstance(scale, NUMBER) else library.cast(library.constant(scale), wide)
        for scale in _checked(
            arguments, value_coefficient=value_coefficient, floor_coefficient=floor_coefficient
        ).values()
    ]
    value_clip = None if value_clip is None else check_number(arguments, "value_clip", value_clip)
    stacked = {
        name: library.cast(xp.stack([group[head] for head in names]), wide)
        for name, group in by_head.items()
    }
    fields = _Values(
        library.cast(values, wide),
        library.cast(returns, wide),
        None if value_clip is None else library.cast(old_values, wide),
    )
    with np.errstate(over="ignore", invalid="ignore"):
        total, parts = _terms(
            library, stacked, fields, counts, rows, weights, coefficients, scales, value_clip, wide
        )

    def of_heads(x):
        x = library.cast(x, dtype)
        each = map(np.asarray, x) if library is NUMPY else x
        return dict(zip(names, each, strict=True)) if heads else x[0, ...]

    def scalar(x):
        x = library.cast(x, dtype)
        return np.asarray(x) if library is NUMPY else x

    fixed = map(library.constant, map(scalar, parts[:2]))
    return scalar(total), (*fixed, *map(of_heads, parts[2:]))


def _terms(
    library: Library, by_head, fields, counts, rows, weights, of_head, scales, value_clip, wide
):
    xp, fixed = library.xp, library.constant
    axes = tuple(range(1, counts.ndim))
    used, used_rows = counts, rows
    if weights is not None:
        weights = library.cast(fixed(weights), wide)
        used, used_rows = counts & (weights != 0), rows & (weights != 0)
        weights = xp.where(used_rows, weights, 0)

    def sums(x):
        return x if not axes else x.sum(axes)

    number = sums(library.cast(counts, wide))
    shares = xp.where(number > 0, number, 1)

    def mean(x, weighted=True):  # padding was set to 0 before: 0·NaN is NaN
        return sums(x if weights is None or not weighted else weights * x) / shares

    pushes = xp.where(used, -fixed(by_head["advantages"]), 0)
    log_ratio = xp.where(used, by_head["log_probs"] - fixed(by_head["old_log_probs"]), 0)
    still = fixed(log_ratio)
    change = xp.expm1(still)
    clip = finite(library, of_head["clip"], fixed, wide)
    cut = is_cut(xp.where, change, pushes, clip)
    followed = xp.expm1(xp.where(cut, 0, log_ratio))
    limited = xp.where(change < -clip, -clip, xp.where(change > clip, clip, change))
    policy = mean((1 + xp.where(cut, limited, followed)) * pushes)
    entropy = mean(xp.where(used, by_head["entropies"], 0))
    short = of_head["entropy_floor"].reshape(-1) - entropy
    short = xp.where((short > 0) & (number > 0), short, 0)
    values, returns, old_values = fields
    errors = xp.where(used_rows, values - fixed(returns), 0)
    if value_clip is not None:
        limit = finite(library, value_clip, fixed, wide)
        away = xp.where(used_rows, fixed(values) - fixed(old_values), 0)
        old = xp.where(used_rows, fixed(old_values) - fixed(returns), 0)
        bounded = bounded_error(xp.clip, away, old, limit)
        errors = xp.where(is_unclipped(fixed(errors), bounded, away, limit), errors, bounded)
    squares = errors * errors if weights is None else weights * errors * errors
    size = library.cast(rows, wide).sum()
    value = 0.5 * squares.sum() / xp.where(size > 0, size, 1)
    bonus = (of_head["entropy_coefficient"].reshape(-1) * entropy).sum()
    total = policy.sum() + scales[0] * value - bonus + scales[1] * (short * short).sum()
    divergence = mean(change - still, weighted=False)
    clipped = library.cast((abs(change) > clip) & used, wide)
    return total, (policy.sum(), value, fixed(entropy), divergence, mean(clipped, weighted=False))


class _Values(NamedTuple):
    """What the value loss is of; the old values are None without a clip."""

    values: Any
    returns: Any
    old_values: Any


def _checked(arguments: checks.Arguments, **numbers) -> dict[str, Any]:
    return {name: check_number(arguments, name, x) for name, x in numbers.items()}


def _spread(x, names) -> dict:
    return x if isinstance(x, dict) else dict.fromkeys(names, x)


def _check_heads(name: str, group, names) -> None:
    if group is None:
        return
    if not isinstance(group, dict) or set(group) != set(names):
        received = ", ".join(map(str, group)) if isinstance(group, dict) else type(group).__name__
        raise ValueError(
            f"{_FUNCTION}: {name} must be a dict with the heads of log_probs, "
            f"{', '.join(names) or 'which has none'}; received {received}."
        )


def _flags(arguments: checks.Arguments, valid, masks, names, values) -> Any:
    """Return where each head counts, [heads, ...]."""
    xp = arguments.library.xp
    if valid is not None:
        valid = arguments.flag("valid", valid)
    every = valid if valid is not None else xp.ones_like(values, dtype=_bool(arguments.library))
    if masks is None:
        return xp.stack([every] * len(names))
    flags = [arguments.flag(f"masks[{head!r}]", masks[head]) for head in names]
    return xp.stack(flags) & every


def _bool(library: Library) -> Any:
    return library.xp.bool if library.name == "torch" else np.bool_


def _by_head(arguments: checks.Arguments, name: str, x, names, wide, values) -> Any:
    """Return a number for each head as an array [heads, 1, …]."""
    library = arguments.library
    if isinstance(x, dict):
        _check_heads(name, x, names)
    given = _spread(x, names)
    numbers = [
        typed(library, library.constant(check_number(arguments, name, given[head])), wide, values)
        for head in names
    ]
    shape = (-1, *[1] * values.ndim)
    return library.xp.stack(list(map(library.xp.asarray, numbers))).reshape(shape)
