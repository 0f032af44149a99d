"""Every return estimator in one table: its arguments, its kernel and its loop twin."""

from collections.abc import Callable
from dataclasses import dataclass

import loopless.reference as reference
from loopless.kernels import off_policy, returns

FLAGS = ("terminated", "truncated")


@dataclass(frozen=True)
class Estimator:
    """How to call an estimator: positional arrays first, then what goes by keyword."""

    name: str
    kernel: Callable
    twin: Callable
    floats: tuple[str, ...]
    numbers: tuple[str, ...] = ("gamma", "lambda_")  # each a number, or an array over the data
    flags: tuple[str, ...] = FLAGS
    options: tuple[tuple[str, object], ...] = ()  # fixed keywords of this entry
    extras: tuple[str, ...] = ()  # floats that go by keyword
    takes_valid: bool = True
    label: str = ""

    @property
    def arrays(self) -> tuple[str, ...]:
        return self.floats + self.flags

    def call(self, function: Callable, data: dict, **overrides):
        """`function` on the arguments in `data`, as a tuple of outputs."""
        keywords = {name: data[name] for name in (*self.numbers, *self.extras)}
        if self.takes_valid:
            keywords["valid"] = data.get("valid")
        keywords |= dict(self.options) | {"time_axis": data.get("time_axis", 0)} | overrides
        out = function(*(data[name] for name in self.arrays), **keywords)
        return out if isinstance(out, tuple) else (out,)


def _entry(name, floats, *, label="", module=returns, **more) -> Estimator:
    return Estimator(
        name,
        getattr(module, name),
        getattr(reference, name),
        tuple(floats.split()),
        label=label or name,
        **more,
    )


_OFF = "rewards q_values next_values"

ESTIMATORS: dict[str, Estimator] = {
    entry.label: entry
    for entry in (
        _entry("gae", "rewards values next_values"),
        _entry("lambda_returns", "rewards next_values"),
        _entry("discounted_returns", "rewards next_values", numbers=("gamma",)),
        _entry(
            "n_step_returns",
            "rewards next_values",
            numbers=("gamma",),
            options=(("n", 3),),
        ),
        _entry(
            "n_step_returns",
            "rewards next_values",
            label="n_step_returns, n beyond T",
            numbers=("gamma",),
            options=(("n", 1000),),
        ),
        _entry("vtrace", "log_ratios rewards values next_values", module=off_policy),
        _entry(
            "vtrace",
            "log_ratios rewards values next_values",
            label="vtrace, leaky",
            module=off_policy,
            options=(("mix", 0.7), ("clip_rho", 1.3), ("clip_c", 0.9), ("clip_pg_rho", 2.0)),
        ),
        _entry("retrace", _OFF, module=off_policy, extras=("log_ratios",)),
        _entry(
            "retrace",
            _OFF,
            label="retrace, importance_sampling",
            module=off_policy,
            extras=("log_ratios",),
            options=(("trace", "importance_sampling"),),
        ),
        _entry(
            "retrace",
            _OFF,
            label="retrace, tree_backup",
            module=off_policy,
            extras=("log_policy",),
            options=(("trace", "tree_backup"),),
        ),
        _entry(
            "retrace",
            _OFF,
            label="retrace, q_lambda",
            module=off_policy,
            options=(("trace", "q_lambda"),),
        ),
        _entry("upgo", "rewards values next_values", numbers=("gamma",)),
        _entry(
            "token_gae",
            "rewards values",
            label="token_gae, skip",
            flags=("mask",),
            takes_valid=False,
            options=(("gaps", "skip"),),
        ),
        _entry(
            "token_gae",
            "rewards values",
            label="token_gae, reset",
            flags=("mask",),
            takes_valid=False,
            options=(("gaps", "reset"),),
        ),
    )
}
