"""`actor`: sample, log-probability and value from somebody's own modules, in one compiled call.

`network` keeps the modules' operations, `compiled.draws` runs them and draws. The distribution is
PyTorch's; the generator is ours, two integers that can be saved.
"""

# Numba's decorators change what a function's signature means:
# pyright: reportCallIssue=false

import os
import threading
import weakref
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy import asarray, empty, float32
from torch import nn

from loopless.compiled import program as ops
from loopless.compiled.draws import CATEGORICAL, NORMAL, SQUASHED, act
from loopless.compiled.mlp import generator
from loopless.compiled.random import bits
from loopless.fused.forward import as_vector, call_module, count_rows, is_large, not_numbers
from loopless.fused.network import Network
from loopless.fused.table import Table, Value
from loopless.refusals import check_choice, check_names, refuse

_KINDS = {"categorical": CATEGORICAL, "normal": NORMAL, "squashed": SQUASHED}
_NO_MASK = np.empty(0, bool)


class Actor:
    """A policy that acts on arrays; `actor` makes it."""

    def __init__(
        self,
        policy: nn.Module,
        kind: str,
        *,
        value: nn.Module | None,
        log_std: torch.Tensor | None,
        std: bool,
        sizes: Sequence[int] | None,
        bounds: tuple[Any, Any] | None,
        seed: int,
    ) -> None:
        self._arguments = policy, kind, value, log_std, std, sizes, bounds, seed
        self._kind, self._std, self._sizes, self._bounds = _KINDS[kind], std, sizes, bounds
        self._modules = [part for part in (policy, log_std, value) if part is not None]
        self._random = generator(seed)
        self._lock = threading.Lock()
        self._network = Network("actor", self._modules, self._end)
        _ACTORS.add(self)

    def __call__(self, obs: Any, *, mask: Any = None, greedy: bool = False) -> tuple[Any, Any, Any]:
        """Return action, log-probability and value for one observation [n_in], or [n, n_in].

        One observation gives a plain int for the action of one choice, an array [d] for numbers,
        and plain floats. A batch gives arrays [n], [n, d]. Without a value network the value is
        None.

        mask: for choices, true where legal, in the shape of the logits. Where nothing is legal,
        everything is.
        greedy: take the likeliest choice, or the mean, and draw nothing.
        """
        network = self._network
        if not network.is_current():
            network.refresh()
        try:
            x = asarray(obs, float32)
        except (TypeError, ValueError) as error:
            raise not_numbers("actor", obs) from error
        if x.shape != network.shape or mask is not None or not x.flags.carray:
            return self._call(x, mask, greedy)
        out = empty(self._many + 2, float32)
        with self._lock:
            bad = act(network.program, x, 1, _NO_MASK, greedy, self._random, out)
        if bad >= 0:
            self._refuse_nan(bad)
        if self._single:
            action, log_prob, value = out.tolist()
            return int(action), log_prob, value if self._has_value else None
        return self._arrange(out, 0)

    def state(self) -> dict[str, np.ndarray]:
        """Return a copy of the generator's state, for `restore`."""
        with self._lock:
            return {"random": self._random.copy()}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on with the draws that followed a `state()`."""
        problems = check_names(state, ["random"])
        random = np.asarray(state.get("random"))
        if not problems and (random.shape != (2,) or random.dtype != np.uint64):
            problems = [f"random must be uint64 [2]; received {random.dtype} {random.shape}"]
        refuse("actor.restore", problems)
        with self._lock:
            self._random[:] = random

    def __reduce__(self) -> tuple:
        policy, kind, value, log_std, std, sizes, bounds, seed = self._arguments
        options = {"value": value, "log_std": log_std, "std": std, "sizes": sizes}
        options |= {"bounds": bounds, "seed": seed}
        return _rebuild, (policy, kind, options, self.state())

    # --- calls ----------------------------------------------------------------------------------

    def _call(self, x: np.ndarray, mask: Any, greedy: bool) -> tuple[Any, Any, Any]:
        """Do a call for any number of observations."""
        network = self._network
        rows = count_rows("actor", x.shape, network.width)
        mask = _NO_MASK if mask is None else self._read_mask(mask, rows)
        program = network.program
        if is_large(network, rows):
            program, x = self._outside, self._outputs(x, rows)
        out = empty((self._many + 2) * (rows or 1), float32)
        with self._lock:
            bad = act(program, as_vector(x), rows or 1, mask, greedy, self._random, out)
        if bad >= 0:
            self._refuse_nan(bad)
        return self._arrange(out, rows)

    def _read_mask(self, mask: Any, rows: int) -> np.ndarray:
        mask = np.asarray(mask)
        shape = (rows, self._width) if rows else (self._width,)
        problems = []
        if self._kind != CATEGORICAL:
            problems = ["only choices have a mask; received one for numbers"]
        elif mask.shape != shape:
            problems = [f"mask has shape {mask.shape}, but the logits have {shape}"]
        elif mask.dtype != bool and not np.isin(mask, (0, 1)).all():
            problems = ["mask must be boolean, or 0 and 1"]
        refuse("actor", problems)
        return as_vector(mask.astype(bool))

    def _outputs(self, x: np.ndarray, rows: int) -> np.ndarray:
        """Return the modules' outputs [rows, …], computed by PyTorch, as the kernel reads them."""
        parts: list[np.ndarray] = []
        for module in self._modules:
            one = isinstance(module, torch.Tensor)
            outputs = module.detach().numpy() if one else call_module(module, x)
            parts += outputs if isinstance(outputs, tuple) else [outputs]
        if self._probabilities:
            with np.errstate(divide="ignore"):
                parts[0] = np.log(parts[0])
        blocks = [
            np.broadcast_to(part.reshape(-1, value.width), (rows, width))
            for part, value, width in zip(parts, self._values, self._widths, strict=True)
        ]
        return np.concatenate(blocks, axis=1)

    def _arrange(self, out: np.ndarray, rows: int) -> tuple[Any, Any, Any]:
        many, n = self._many, rows or 1
        actions, log_probs, values = out[: n * many], out[n * many : -n], out[-n:]
        if self._kind == CATEGORICAL:
            actions = actions.astype(np.int64)
        if not rows:
            action = int(actions[0]) if self._single else actions
            return action, float(log_probs[0]), float(values[0]) if self._has_value else None
        actions = actions if self._single else actions.reshape(rows, many)
        return actions, log_probs, values if self._has_value else None

    def _refuse_nan(self, row: int) -> None:
        what = "logits" if self._kind == CATEGORICAL else "mean and scale"
        raise ValueError(
            f"actor: the policy's {what} for observation {row} give no distribution: NaN or "
            "infinity. Check the observation and the policy's parameters."
        )

    # --- the table ------------------------------------------------------------------------------

    def _end(self, table: Table, outputs: list[Any]) -> list[list[int]]:
        """Return the row that says how to draw, from what the modules return."""
        params, scale, value = self._roles(outputs)
        self._values = [part for part in (params, scale, value) if part is not None]
        self._width, self._has_value = params.width, value is not None
        sizes = self._sizes or (self._width,)
        self._many = len(sizes) if self._kind == CATEGORICAL else self._width
        self._single = self._kind == CATEGORICAL and self._sizes is None
        self._probabilities = self._kind == CATEGORICAL and params.made_by == ops.SOFTMAX
        if self._probabilities:
            table.recode(params, ops.LOG_SOFTMAX)
        if scale is not None and scale.width < self._width:
            scale = table.widen(scale, self._width)
        numbers = len(sizes), table.address(*sizes), self._write_bounds(table), int(self._std)

        def row(*places: int) -> list[int]:
            return [ops.DRAW, self._kind, self._width, *places, *numbers]

        # the same for observations whose outputs PyTorch has computed, which stand side by side
        self._widths = [self._width] * (1 + (scale is not None)) + [1] * self._has_value
        second, last = 4 * self._width, 4 * sum(self._widths) - 4
        outside = [table.row(sum(self._widths)), table.row(*row(0, second, last if value else -1))]
        self._outside, self._numbers = np.array(outside, np.int64), table.numbers
        return [row(*(-1 if part is None else part.at for part in (params, scale, value)))]

    def _roles(self, outputs: list[Any]) -> tuple[Value, Value | None, Value | None]:
        """Return what the modules return as parameters, scale and value."""
        first = outputs[0]
        if isinstance(first, dict):
            refuse("actor", [f"the policy returns a dict of {list(first)}"], note="Return a tuple.")
        parts = [*(first if isinstance(first, tuple) else [first]), *outputs[1:]]
        scaled = self._kind != CATEGORICAL
        fewest = 1 + scaled + (self._arguments[2] is not None)  # with the critic's, if there is one
        if not fewest <= len(parts) <= 2 + scaled:
            needs = "mean and log_std (or pass log_std=)" if scaled else "logits"
            problem = f"the modules return {len(parts)} outputs in all; they must return {needs}"
            refuse("actor", [f"{problem}, and at most one value"])
        params, scale = parts[0], parts[1] if scaled else None
        value = parts[1 + scaled] if len(parts) > 1 + scaled else None
        problems = []
        if value is not None and value.width != 1:
            problems.append(f"the value must be one number; received {value.width}")
        if self._sizes and sum(self._sizes) != params.width:
            total = sum(self._sizes)
            problems.append(f"sizes add up to {total}, but there are {params.width} logits")
        if scale is not None and scale.width not in (1, params.width):
            problems.append(f"there are {params.width} means, but {scale.width} scales")
        if scale is not None and not self._std and scale.made_by in (ops.EXP, ops.SOFTPLUS):
            problems.append("the scale ends in exp or softplus, so it is no log_std; pass std=True")
        refuse("actor", problems)
        return params, scale, value

    def _write_bounds(self, table: Table) -> int:
        """Return the address of the middles and half widths of a squashed action's bounds."""
        low, high = (-1.0, 1.0) if self._bounds is None else self._bounds
        try:
            ends = np.broadcast_to(np.array([low, high], float).T, (self._width, 2)).T
        except ValueError:
            ends = np.full((2, self._width), np.nan)
        if not (np.isfinite(ends).all() and np.less(ends[0], ends[1]).all()):
            what = f"bounds must be finite with low < high, numbers or {self._width} each"
            refuse("actor", [f"{what}; received {low} and {high}"])
        return table.address(*(ends[0] + ends[1]) / 2, *(ends[1] - ends[0]) / 2)


def actor(
    policy: nn.Module,
    kind: str,
    *,
    value: nn.Module | None = None,
    log_std: torch.Tensor | None = None,
    std: bool = False,
    sizes: Sequence[int] | None = None,
    bounds: tuple[Any, Any] | None = None,
    seed: int = 0,
) -> Actor:
    """Return a function that acts: action, log_prob, value = act(obs), in microseconds.

    kind:
        "categorical": the policy returns logits, or probabilities if it ends in a softmax.
        "normal": it returns the mean, or mean and log_std; independent normal numbers.
        "squashed": as "normal", then tanh, between `bounds`; the log-probability is corrected for
        it, as in SAC.
    value: the critic, a module of its own. A policy that returns one output more than its
        distribution needs, such as a shared trunk with two heads, returns the value itself.
    log_std: the parameter with the log-scales, if the policy does not return them.
    std: the scales are standard deviations, not their logarithms.
    sizes: the choices of a multi-discrete action; the logits stand one after another.
    bounds: low and high of a squashed action, numbers or arrays; by default -1 and 1.

    act(obs) takes one observation [n_in] or a batch [n, n_in], as `forward` does, and like it reads
    the memory of the modules' own parameters. act(obs, mask=…) forbids choices, and
    act(obs, greedy=True) draws nothing. Log-probabilities are those of `torch.distributions`. The
    draws come from a generator of its own: `act.state()` and `act.restore(state)` save it, and
    after a fork each child draws its own stream.
    """
    problems = check_choice("kind", kind, _KINDS)
    numbers = kind in ("normal", "squashed")
    for name, given, fits in (
        ("log_std", log_std is not None, numbers),
        ("std", std, numbers),
        ("sizes", sizes is not None, kind == "categorical"),
        ("bounds", bounds is not None, kind == "squashed"),
    ):
        if not problems and given and not fits:
            problems.append(f"{name} does not go with {kind!r}")
    refuse("actor", problems)
    options = {"value": value, "log_std": log_std, "std": std, "sizes": sizes, "bounds": bounds}
    return Actor(policy, kind, **options, seed=seed)


def _rebuild(policy: nn.Module, kind: str, options: dict[str, Any], state: dict) -> Actor:
    copy = actor(policy, kind, **options)
    copy.restore(state)
    return copy


# --- forks ---------------------------------------------------------------------------------------

_ACTORS: weakref.WeakSet[Actor] = weakref.WeakSet()
_FORKS = [0]  # how often this process and its ancestors have forked


def _count_fork() -> None:
    _FORKS[0] += 1


def _separate() -> None:
    """Give every actor of a child process a generator that no other process has."""
    for one in _ACTORS:
        one._lock = threading.Lock()  # another thread of the parent may have held it
        one._random[0] = bits.py_func(one._random[0], np.uint64(2**63 + _FORKS[0]))


os.register_at_fork(before=_count_fork, after_in_child=_separate)
