"""Adam, AdamW, SGD and RMSprop as PyTorch computes them, one parameter at a time.

An optimizer is read in three parts. `settings` are what shapes the program (AMSGrad or not).
`numbers` are the rates, betas and bias corrections of each update: they are computed here in double
precision, as PyTorch computes them, and are arguments of the program, so that a scheduler compiles
nothing. `move` is the arithmetic on arrays; it takes JAX's arrays and NumPy's.
"""

import sys
from dataclasses import dataclass
from operator import itemgetter
from typing import Any, NoReturn

import numpy as np
import torch

from loopless.fused.blame import FuseError, name_of
from loopless.fused.guard import Guard

_common = vars(sys.modules[torch.optim.Optimizer.__module__])  # where hooks of all are
KINDS = {
    torch.optim.Adam: "adam",
    torch.optim.AdamW: "adam",
    torch.optim.SGD: "sgd",
    torch.optim.RMSprop: "rmsprop",
}
COLUMNS = {"adam": 7, "sgd": 4, "rmsprop": 5}  # of `numbers`


@dataclass(frozen=True)
class Settings:
    """What an optimizer's group says about the form of an update; numbers are not part of it."""

    kind: str
    moments: tuple[str, ...]  # the names of the state's arrays
    decay: str  # "", "coupled" (added to the gradient) or "decoupled" (AdamW's)
    maximize: bool = False
    nesterov: bool = False


def check(optimizer: Any, where: str) -> None:
    """Refuse an optimizer whose updates are not computed here; `where` is the loss's line."""
    if type(optimizer) not in KINDS:
        known = ", ".join(cls.__name__ for cls in KINDS)
        raise FuseError(
            f"fuse: {name_of(optimizer)} is not supported as an optimizer; there are {known} "
            f"({where})"
        )
    if has_hooks(optimizer):
        raise_hooked(optimizer, where)
    for group in optimizer.param_groups:
        if group.get("differentiable"):
            raise FuseError(
                f"fuse: {name_of(optimizer)} with differentiable=True is not supported ({where})"
            )
        if _has_tensors(group):
            raise FuseError(
                f"fuse: the rate or a beta of {name_of(optimizer)} is a tensor, with which PyTorch "
                f"computes in other precision; pass a number ({where})"
            )


_TENSORS = frozenset({torch.Tensor, torch.nn.Parameter})


def _has_tensors(group: dict) -> bool:
    return not _TENSORS.isdisjoint(map(type, (group["lr"], *group.get("betas", ()))))


def common_hooks() -> list:
    """Return the hooks on step() of all optimizers there are, before and after it."""
    return [_common["_global_optimizer_pre_hooks"], _common["_global_optimizer_post_hooks"]]


def has_hooks(optimizer: Any) -> bool:
    """Return whether functions wait for the optimizer's step()."""
    return bool(
        optimizer._optimizer_step_pre_hooks
        or optimizer._optimizer_step_post_hooks
        or any(common_hooks())
    )


def raise_hooked(optimizer: Any, where: str) -> NoReturn:
    """Refuse an optimizer that has hooks."""
    raise FuseError(
        f"fuse: {name_of(optimizer)} has a hook on step(), which would never run ({where})"
    )


def settings(optimizer: Any, group: dict) -> Settings:
    """Return what a parameter group says about the form of an update."""
    kind = KINDS[type(optimizer)]
    decoupled = isinstance(optimizer, torch.optim.AdamW) or group.get("decoupled_weight_decay")
    decay = ("decoupled" if decoupled else "coupled") if group["weight_decay"] != 0 else ""
    if kind == "adam":
        moments = ("exp_avg", "exp_avg_sq") + ("max_exp_avg_sq",) * bool(group["amsgrad"])
    elif kind == "sgd":
        moments = ("momentum_buffer",) * (group["momentum"] != 0)
    else:
        moments = ("square_avg",) + ("momentum_buffer",) * (group["momentum"] > 0)
        moments += ("grad_avg",) * bool(group["centered"])
    nesterov = bool(group.get("nesterov"))
    return Settings(kind, moments, decay, bool(group["maximize"]), nesterov)


def watch(group: dict, guard: Guard) -> None:
    """Have a guard notice a change of the entries of a group that decide its settings."""
    for name in _SHAPING:
        if name in group:
            guard.add("{}[{}] == {}", group, name, group[name])
        else:
            guard.add("{} not in {}", name, group)
    for name in ("weight_decay", "momentum"):
        if name in group:
            guard.add("({}[{}] != 0) is {}", group, name, bool(group[name] != 0))
    guard.add("{}['lr'].__class__ not in {}", group, _TENSORS)
    for place in range(len(group.get("betas", ()))):
        guard.add("{}['betas'][{}].__class__ not in {}", group, place, _TENSORS)


_SHAPING = (
    "amsgrad", "maximize", "nesterov", "centered", "decoupled_weight_decay", "differentiable"
)  # fmt: skip


def fresh_state(optimizer: Any, group: dict, parameter: torch.Tensor) -> dict:
    """Return a parameter's state before its first update: PyTorch's keys, dtypes and order."""
    form = settings(optimizer, group)
    state = {}
    if form.kind != "sgd":
        double = torch.get_default_dtype() == torch.float64 and not group.get("fused")
        state["step"] = torch.zeros((), dtype=torch.float64 if double else torch.float32)
    for name in form.moments:
        state[name] = torch.zeros_like(parameter, memory_format=torch.preserve_format)
    return state


class Numbers:
    """The numbers of an optimizer's coming updates, all but the rate, computed many at a time.

    They depend on a group's settings and on how many updates there were, so that most calls only
    take rows of a table.
    """

    AHEAD = 1024

    def __init__(self, form: Settings):
        self._form, self._settings = form, ()
        self._first, self._table = 0, np.empty((0, COLUMNS[form.kind]))

    def rows(self, group: dict, before: int, updates: int) -> np.ndarray:
        """Return the numbers [K, n] of K updates that follow `before` earlier ones."""
        settings = read(self._form, group)[1:]
        start = before - self._first
        if settings != self._settings or not 0 <= start <= len(self._table) - updates:
            steps = before + 1 + np.arange(max(updates, self.AHEAD))
            columns = _columns(self._form, group, steps)
            self._table = np.stack(np.broadcast_arrays(*columns, steps)[:-1], 1)
            self._settings, self._first, start = settings, before, 0
        return self._table[start : start + updates]


_READ = {  # what a group says about the numbers of an update
    "adam": itemgetter("lr", "betas", "eps", "weight_decay"),
    "sgd": itemgetter("lr", "momentum", "dampening", "weight_decay"),
    "rmsprop": itemgetter("lr", "alpha", "momentum", "eps", "weight_decay"),
}


def read(form: Settings, group: dict) -> tuple:
    """Return a group's settings that are arguments of the program: the rate, then the others."""
    return _READ[form.kind](group)


def _columns(form: Settings, group: dict, steps: Any) -> tuple:
    if form.kind == "adam":
        one, two = group["betas"]
        one, two = float(one), float(two)
        root, share = (1 - two**steps) ** 0.5, 1 - one**steps
        return 1 - one, two, 1 - two, root, group["eps"], share, group["weight_decay"]
    if form.kind == "sgd":
        return group["momentum"], 1 - group["dampening"], steps == 1, group["weight_decay"]
    alpha = group["alpha"]
    return alpha, 1 - alpha, group["momentum"], group["eps"], group["weight_decay"]


def with_rate(form: Settings, numbers: Any, rate: Any) -> list:
    """Return what `move` takes: the numbers of one update and its rate, in double precision."""
    *numbers, decay = (numbers[n] for n in range(COLUMNS[form.kind]))
    if form.kind == "adam":
        *numbers, of_mean = numbers
        size = rate / of_mean
    else:
        size = rate
    return [*numbers, size, 1 - rate * decay if form.decay == "decoupled" else decay]


def move(
    form: Settings, weight: Any, gradient: Any, moments: list, numbers: list, xp: Any
) -> tuple:
    """Return a parameter and its moments after one update."""
    *numbers, decay = numbers
    gradient = -gradient if form.maximize else gradient
    if form.decay == "decoupled":
        weight = weight * decay
    elif form.decay:
        gradient = gradient + decay * weight
    rule = {"adam": _adam, "sgd": _sgd, "rmsprop": _rmsprop}[form.kind]
    return rule(form, weight, gradient, moments, numbers, xp)


def _adam(form: Settings, weight: Any, g: Any, moments: list, numbers: list, xp: Any) -> tuple:
    share, two, rest_of_two, root, epsilon, size = numbers
    mean, square, *largest = moments
    mean = mean + share * (g - mean)
    square = square * two + rest_of_two * g * g
    moments = [mean, square]
    if largest:
        square = xp.maximum(largest[0], square)
        moments.append(square)
    return weight - size * mean / (xp.sqrt(square) / root + epsilon), moments


def _sgd(form: Settings, weight: Any, g: Any, moments: list, numbers: list, xp: Any) -> tuple:
    momentum, rest, first, rate = numbers
    if moments:
        moments = [xp.where(first != 0, g, moments[0] * momentum + rest * g)]
        g = g + momentum * moments[0] if form.nesterov else moments[0]
    return weight - rate * g, moments


def _rmsprop(form: Settings, weight: Any, g: Any, moments: list, numbers: list, xp: Any) -> tuple:
    alpha, rest, momentum, epsilon, rate = numbers
    state = dict(zip(form.moments, moments, strict=True))
    square = state["square_avg"] = alpha * state["square_avg"] + rest * g * g
    if "grad_avg" in state:
        mean = state["grad_avg"] = state["grad_avg"] + rest * (g - state["grad_avg"])
        square = square - mean * mean
    change = g / (xp.sqrt(square) + epsilon)
    if "momentum_buffer" in state:
        change = state["momentum_buffer"] = momentum * state["momentum_buffer"] + change
    return weight - rate * change, [state[name] for name in form.moments]
