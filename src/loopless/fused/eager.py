"""The same updates by PyTorch itself: the measure of a program, and what runs if it is slower."""

import contextlib
import copy
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch

from loopless.fused import batches
from loopless.fused.calls import Call
from loopless.fused.reads import Reading
from loopless.fused.stages import Follow, Stage


def run(
    stages: list[Stage],
    followers: list[Follow],
    call: Call,
    reading: Reading,
    due: np.ndarray,
    rates: np.ndarray | None,
    skip: bool,
) -> list[list[tuple]]:
    """Make the updates of a call and return for each loss (update, value, finite, extras).

    Without `skip` an update that is not finite is the last entry, and nothing has moved.
    """
    slots = call.slots(reading)
    results: list[list[tuple]] = [[] for _ in stages]
    offsets = np.cumsum([0] + [len(stage.optimizer.param_groups) for stage in stages])
    with _undone_unless_finite(stages, reading) as keep:
        for update in range(call.updates or 1):
            leaves = call.sample(update, slots)
            for number, stage in enumerate(stages):
                if not due[update, number]:
                    continue
                parameters = [tensor for tensor, _, _ in stage.parameters()]
                buffers = [t for t in reading.tensors if not t.requires_grad] if skip else []
                before = [buffer.clone() for buffer in buffers]
                value, extras, gradients = call.loss(stage, slots).gradients(leaves, parameters)
                finite = all(bool(g.isfinite().all()) for g in (value, *gradients) if g is not None)
                results[number].append((update, value.detach(), finite, extras))
                if finite:
                    own = None if rates is None else rates[update][offsets[number] :]
                    move(stage, parameters, gradients, own)
                elif skip:
                    for buffer, old in zip(buffers, before, strict=True):
                        buffer.copy_(old)
                else:
                    return results
            for number, follower in enumerate(followers, len(stages)):
                if due[update, number]:
                    follow(follower)
        keep()
    return results


def move(stage: Stage, parameters: list, gradients: Any, rates: Any = None) -> None:
    """Clip gradients, step the optimizer, and leave no gradient behind."""
    for parameter, gradient in zip(parameters, gradients, strict=True):
        parameter.grad = gradient
    groups = stage.optimizer.param_groups
    before = [group["lr"] for group in groups]
    try:
        if stage.max_gradient_norm is not None:
            torch.nn.utils.clip_grad_norm_(parameters, stage.max_gradient_norm)
        if rates is not None:
            for group, rate in zip(groups, rates, strict=False):
                group["lr"] = float(rate)
        stage.optimizer.step()
    finally:
        for group, rate in zip(groups, before, strict=True):
            group["lr"] = rate
        for parameter in parameters:
            parameter.grad = None


@torch.no_grad()
def follow(follower: Follow) -> None:
    """Move a follower's parameters, and copy its buffers."""
    for target, source in follower.pairs("parameters"):
        target.copy_((1 - follower.tau) * target + follower.tau * source)
    for target, source in follower.pairs("buffers"):
        target.copy_(source)


def copy_stage(stage: Stage) -> Stage:
    """Return a stage whose optimizer has parameters and a state of its own."""
    copies, groups = {}, []
    for group in stage.optimizer.param_groups:
        own = [copies.setdefault(p, _clone(p)) for p in group["params"]]
        groups.append({**group, "params": own})
    optimizer = type(stage.optimizer)(groups)
    for parameter, state in stage.optimizer.state.items():
        optimizer.state[copies[parameter]] = copy.deepcopy(state)
    return Stage(stage.loss, stage.module, optimizer, stage.max_gradient_norm, stage.every)


def _clone(parameter: torch.Tensor) -> torch.Tensor:
    return parameter.detach().clone().requires_grad_(parameter.requires_grad)


@contextlib.contextmanager
def _undone_unless_finite(stages: list[Stage], reading: Reading) -> Iterator[Any]:
    """Run a block and put everything back, unless it calls the function that it is given."""
    kept = False
    tensors = [(tensor, tensor.detach().clone()) for tensor in reading.tensors]
    states = [
        (stage.optimizer.state, parameter, {**state}, copy.deepcopy(state))
        for stage in stages
        for parameter, state in list(stage.optimizer.state.items())
    ]

    def keep() -> None:
        nonlocal kept
        kept = True

    try:
        yield keep
    finally:
        if not kept:
            with torch.no_grad():
                for tensor, old in tensors:
                    tensor.detach().copy_(old)
                known = {(id(state), parameter) for state, parameter, _, _ in states}
                for stage in stages:
                    for parameter in list(stage.optimizer.state):
                        if (id(stage.optimizer.state), parameter) not in known:
                            del stage.optimizer.state[parameter]
                for state, parameter, own, old in states:
                    for name, value in own.items():
                        if isinstance(value, torch.Tensor):
                            value.copy_(old[name])
                    state[parameter].clear()
                    state[parameter].update(own)


def stack(rows: list[tuple], many: bool) -> tuple:
    """Return values and extras of some updates of one loss, stacked if there may be many."""
    values = [value for _, value, _, _ in rows]
    leaves = [batches.flatten(extras) for _, _, _, extras in rows]
    if not many:
        return values[0], _detach(leaves[0][0]), leaves[0][1]
    columns = zip(*(some for some, _ in leaves), strict=True)
    stacked = [
        torch.stack(_detach(column)) if isinstance(column[0], torch.Tensor) else column[0]
        for column in map(list, columns)
    ]
    return torch.stack(values), stacked, leaves[0][1]


def _detach(leaves: list) -> list:
    return [leaf.detach() if isinstance(leaf, torch.Tensor) else leaf for leaf in leaves]
