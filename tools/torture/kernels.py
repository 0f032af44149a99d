"""Every public function of arrays, with random sound arguments for it and its loop twin.

`calls` spoils these arguments and compares every answer with the twin's.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from loopless import reference
from loopless.reference import avatarl, laplacian
from torture.failure import Failure

SIZES = ((4, 3), (1, 2), (3, 1), (0, 2))  # few, so that JAX compiles few programs
VARIANTS = ("original", "subset", "full", "fixed")


class Kernel(NamedTuple):
    """A function by its name, what makes its arguments, and its twin."""

    name: str
    make: Callable[[np.random.Generator], dict[str, Any]]
    twin: Callable[..., Any]


def _shape(rng) -> tuple[int, int]:
    return SIZES[rng.choice(len(SIZES), p=(0.7, 0.12, 0.12, 0.06))]


def _floats(rng, *names: str, shape) -> dict:
    return {name: rng.standard_normal(shape) for name in names}


def _flags(rng, *names: str, shape) -> dict:
    return {name: rng.random(shape) < 0.3 for name in names}


def _maybe(rng, name: str, value: Any) -> dict:
    return {name: value} if rng.random() < 0.5 else {}


def _estimator(floats: str, numbers: str = "gamma lambda_", **options) -> Callable:
    def make(rng) -> dict:
        shape = _shape(rng)
        case = _floats(rng, *floats.split(), shape=shape)
        case |= _flags(rng, "terminated", "truncated", shape=shape)
        case |= {name: rng.random() for name in numbers.split()}
        case |= {name: values[rng.integers(len(values))] for name, values in options.items()}
        return case | _maybe(rng, "valid", rng.random(shape) < 0.7)

    return make


def _retrace(rng) -> dict:
    case = _estimator("rewards q_values next_values")(rng)
    trace = ("retrace", "importance_sampling", "tree_backup", "q_lambda")[rng.integers(4)]
    name = {"tree_backup": "log_policy", "q_lambda": None}.get(trace, "log_ratios")
    extra = {name: -rng.random(case["rewards"].shape)} if name else {}
    return case | {"trace": trace} | extra


def _token_gae(rng) -> dict:
    shape = _shape(rng)
    case = _floats(rng, "rewards", "values", shape=shape) | _flags(rng, "mask", shape=shape)
    return case | {
        "gamma": rng.random(),
        "lambda_": rng.random(),
        "gaps": ("skip", "reset")[rng.integers(2)],
    }


def _scan(rng) -> dict:
    shape = _shape(rng)
    case = _floats(rng, "a", "b", shape=shape) | {"reverse": bool(rng.integers(2))}
    return case | _maybe(rng, "init", rng.standard_normal(shape[1:]))


def _normalize(rng) -> dict:
    shape = _shape(rng)
    return _floats(rng, "x", shape=shape) | _maybe(rng, "valid", rng.random(shape) < 0.6)


def _successors(rng) -> dict:
    shape = _shape(rng)
    case = _floats(rng, "values", shape=shape)
    case |= _floats(rng, "last_values", shape=shape[1:])
    case |= _flags(rng, "terminated", "truncated", shape=shape)
    if rng.integers(2):
        return case | _floats(rng, "final_values", shape=shape)
    return case | {"autoreset": "next_step"} | _flags(rng, "previous_end", shape=shape[1:])


def _successors_twin(*args, **case) -> tuple:
    """Return what the loop does; where values cannot be looked at, unknown ones are NaN."""
    try:
        return reference.successor_values(*args, **case)
    except ValueError:
        shape, unknown = np.shape(case["terminated"]), {}
        if case.get("final_values") is None:
            unknown["final_values"] = np.full(shape, np.nan)
        is_open = case["last_values"] is None and np.shape(case["values"]) == shape
        if is_open:
            unknown["last_values"] = np.full(shape[1:], np.nan)
        values, steps = reference.successor_values(*args, **(case | unknown))
        if is_open:  # nothing follows, and what follows a dummy row is of no use
            values[-1:] = np.where(steps[-1:], values[-1:], 0)
        return values, steps


def _unlag(rng) -> dict:
    shape = _shape(rng)
    return _floats(rng, "x", shape=shape) | _floats(rng, "last", shape=shape[1:])


def _valid_mask(rng) -> dict:
    return {"lengths": rng.integers(0, 5, 3), "steps": 4}


def _q_targets(rng) -> dict:
    case = _floats(rng, "rewards", shape=(5,)) | _flags(rng, "terminated", shape=(5,))
    case |= _floats(rng, "next_q", shape=(5, 3)) | {"gamma": rng.random()}
    if rng.integers(2):
        return case | _maybe(rng, "next_actions", rng.integers(0, 3, 5))
    return case | _floats(rng, "next_q_online", shape=(5, 3))


def _q_loss(rng) -> dict:
    case = _floats(rng, "q", shape=(5, 3)) | {"actions": rng.integers(0, 3, 5)}
    case |= _floats(rng, "targets", shape=(5,)) | {"loss": ("mse", "huber")[rng.integers(2)]}
    return case | _maybe(rng, "weights", rng.random(5))


def _policy_gradient(names: str, **options) -> Callable:
    def make(rng) -> dict:
        case = _floats(rng, *names.split(), shape=(4, 3))
        case |= {name: rng.random() for name in ("value_coefficient", "entropy_coefficient")}
        case |= {name: rng.random() + 0.1 for name in options}
        return case | _maybe(rng, "valid", rng.random((4, 3)) < 0.7)

    return make


def _allo(rng) -> dict:
    names = ("features", "next_features", "other_features")
    case = _floats(rng, *names, shape=(4, 3)) | _floats(rng, "duals", shape=(3, 3))
    return case | {"barrier": rng.random(), "scale": ("half", "full")[rng.integers(2)]}


def _ggdo(rng) -> dict:
    names = ("features", "next_features", "other_features")
    return _floats(rng, *names, shape=(4, 3)) | {"barrier": rng.random()}


def _logits(rng, *names: str) -> dict:
    return _floats(rng, *names, shape=(3, 6))


def _avatarl(rng) -> dict:
    case = _logits(rng, "student_logits", "critic_logits") | {"targets": rng.integers(0, 6, 3)}
    case |= {"top_k": 1 + int(rng.integers(2)), "variant": VARIANTS[rng.integers(4)]}
    return case | _maybe(rng, "mask", rng.random(3) < 0.7)


def _actions(rng) -> dict:
    case = _avatarl(rng)
    del case["variant"]
    return case


def _rewards(rng) -> dict:
    """Return an action set of which the first is gold, some of the others standing there twice."""
    tokens = rng.integers(0, 6, (3, 4))
    present = np.array([[t not in row[:i] for i, t in enumerate(row)] for row in tokens.tolist()])
    case = _logits(rng, "critic_logits") | {"actions": tokens, "present": present}
    return case | {"variant": VARIANTS[rng.integers(4)]} | _maybe(rng, "mask", rng.random(3) < 0.7)


def _sound(mask, *logits) -> np.ndarray:
    """Return where all logits are distributions and nothing is masked.

    JAX's arrays are not looked at: rows with NaN or +inf, or nothing above -inf, give NaN.
    """
    largest = [np.max(np.asarray(x, float), axis=-1, initial=-np.inf) for x in logits]
    counted = True if mask is None else np.asarray(mask) != 0  # NaN counts, as it does in JAX
    return np.logical_and.reduce([np.isfinite(x) for x in largest]) & counted


def _avatarl_twin(student_logits, critic_logits, targets, *, mask=None, **settings) -> tuple:
    """Return what the loop does; NaN for all if a row that counts is no distribution."""
    sound = _sound(mask, student_logits, critic_logits)
    counted = np.ones(sound.shape, bool) if mask is None else np.asarray(mask, bool)
    loss, stats = avatarl.avatarl_loss(
        student_logits, critic_logits, targets, mask=sound, **settings
    )
    if np.array_equal(sound, counted):
        return loss, stats
    return np.nan, dict.fromkeys(stats, np.nan)


def _actions_twin(student_logits, critic_logits, targets, *, mask=None, **case) -> np.ndarray:
    sound = _sound(mask, student_logits, critic_logits)
    return avatarl.avatarl_actions(student_logits, critic_logits, targets, mask=sound, **case)


def dense_actions(answer: tuple, student_logits, critic_logits, mask=None, **_) -> np.ndarray:
    """Return an answer of `avatarl_actions` in the form of its twin: a flag for each token."""
    actions, present = map(np.asarray, answer)
    dense = np.zeros(np.shape(student_logits), bool)
    if (actions < 0).any() or (actions >= dense.shape[-1]).any():
        raise Failure("avatarl_actions: an action is no token")
    for place in zip(*np.nonzero(_sound(mask, student_logits, critic_logits)), strict=True):
        for token, is_present in zip(actions[place], present[place], strict=True):
            dense[(*place, token)] |= bool(is_present)
    return dense


def _rewards_twin(critic_logits, actions, present, *, mask=None, **settings) -> np.ndarray:
    """Return what the loop's own parts give for any action set, 0 where not present or masked."""
    numbers = avatarl.Settings(top_k=1, **settings)
    rewards = np.zeros(np.shape(actions))
    for place in np.ndindex(rewards.shape[:-1]):
        if mask is not None and not mask[place]:
            continue
        if not _sound(None, critic_logits[place]):
            rewards[place] = np.where(present[place], np.nan, 0)
            continue
        tokens = [int(t) for t, p in zip(actions[place], present[place], strict=True) if p]
        log_m = avatarl._log_softmax(critic_logits[place].tolist())
        mentor = {i: np.exp(log_m[i]) for i in tokens}
        reality = avatarl._reality(tokens, tokens[0], numbers)
        w_r, w_m = avatarl._weights(mentor, numbers)
        u = {i: avatarl._power(reality[i], w_r) * avatarl._power(mentor[i], w_m) for i in tokens}
        fixed = numbers.variant == "fixed"
        by_token = avatarl._target(u, tokens[0]) if fixed else avatarl._rewards(u, numbers)
        for k, (token, is_present) in enumerate(zip(actions[place], present[place], strict=True)):
            if is_present:
                rewards[(*place, k)] = by_token[int(token)]
    return rewards


def _soft(rng) -> dict:
    case = _logits(rng, "logits") | {"tokens": rng.integers(0, 6, (3, 2))}
    return case | {"weights": rng.random((3, 2))} | _maybe(rng, "mask", rng.random(3) < 0.7)


def _cross_entropy(rng) -> dict:
    case = _logits(rng, "logits") | {"targets": rng.integers(0, 6, 3)}
    return case | _maybe(rng, "mask", rng.random(3) < 0.7)


def _cross_entropy_twin(logits, targets, *, mask=None) -> float:
    tokens = np.asarray(targets)[..., None]
    return avatarl.soft_cross_entropy(logits, tokens, np.ones(tokens.shape), mask=mask)[0]


def _distillation(rng) -> dict:
    case = _logits(rng, "student_logits", "critic_logits") | {"temperature": 0.5 + rng.random()}
    return case | _maybe(rng, "mask", rng.random(3) < 0.7)


_PPO = "log_probs old_log_probs advantages values returns entropies"
KERNELS = (
    Kernel("affine_scan", _scan, reference.affine_scan),
    Kernel("gae", _estimator("rewards values next_values"), reference.gae),
    Kernel("lambda_returns", _estimator("rewards next_values"), reference.lambda_returns),
    Kernel(
        "discounted_returns",
        _estimator("rewards next_values", "gamma"),
        reference.discounted_returns,
    ),
    Kernel(
        "n_step_returns",
        _estimator("rewards next_values", "gamma", n=(1, 2, 9)),
        reference.n_step_returns,
    ),
    Kernel("vtrace", _estimator("log_ratios rewards values next_values"), reference.vtrace),
    Kernel("retrace", _retrace, reference.retrace),
    Kernel("upgo", _estimator("rewards values next_values", "gamma"), reference.upgo),
    Kernel("token_gae", _token_gae, reference.token_gae),
    Kernel("normalize", _normalize, reference.normalize),
    Kernel("successor_values", _successors, _successors_twin),
    Kernel("unlag", _unlag, reference.unlag),
    Kernel("valid_mask", _valid_mask, reference.valid_mask),
    Kernel("q_targets", _q_targets, reference.q_targets),
    Kernel("q_loss", _q_loss, reference.q_loss),
    Kernel("ppo_loss", _policy_gradient(_PPO, clip=1), reference.ppo_loss),
    Kernel(
        "policy_gradient_loss",
        _policy_gradient("log_probs advantages values returns entropies"),
        reference.policy_gradient_loss,
    ),
    Kernel("allo_loss", _allo, laplacian.allo_loss),
    Kernel("ggdo_loss", _ggdo, laplacian.ggdo_loss),
    Kernel("avatarl_loss", _avatarl, _avatarl_twin),
    Kernel("avatarl_actions", _actions, _actions_twin),
    Kernel("avatarl_rewards", _rewards, _rewards_twin),
    Kernel("soft_cross_entropy", _soft, lambda *a, **k: avatarl.soft_cross_entropy(*a, **k)[0]),
    Kernel("cross_entropy", _cross_entropy, _cross_entropy_twin),
    Kernel("distillation", _distillation, lambda *a, **k: avatarl.distillation(*a, **k)[0]),
)
