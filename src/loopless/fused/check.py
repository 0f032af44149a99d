"""The first call checks itself, before anything of the user's has moved.

Values and gradients of the compiled losses are compared with PyTorch's on one batch, and then the
optimizers on equal gradients. Parameters after an update are not: Adam divides a gradient by its
own size, which turns the rounding of a zero gradient into a whole step.
"""

import time
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import torch
from torch.fx import GraphModule, Interpreter, Node

from loopless.fused import batches, client, eager, optimizers
from loopless.fused.blame import FuseError, first_line
from loopless.fused.calls import Call
from loopless.fused.capture import Captured, undone
from loopless.fused.lowering import is_random
from loopless.fused.reads import Reading
from loopless.fused.stages import Stage

# Relative to the largest entry of an array, and a hundredth of it to the largest of all gradients.
TOLERANCES = {torch.float64: 1e-9, torch.float32: 1e-3, torch.bfloat16: 5e-2, torch.float16: 1e-2}


def check_losses(
    stages: list[Stage], call: Call, reading: Reading, captured: list[Captured], update: int = 0
) -> None:
    """Refuse a program whose values or gradients on one batch are not PyTorch's.

    A loss that draws random numbers draws others than PyTorch. Of its own values and gradients only
    shapes are compared, and whether they are finite; then its graph is run by PyTorch, and values
    and gradients under the same draws are compared.
    """
    slots = call.slots(reading)
    leaves = call.sample(update, slots)
    for stage, each in zip(stages, captured, strict=True):
        parameters = stage.parameters()
        with undone(reading.tensors):
            value, extras, gradients = call.loss(stage, slots).gradients(
                [leaf.clone() for leaf in leaves], [tensor for tensor, _, _ in parameters]
            )
        tensors = [x.detach() for x in batches.flatten(extras)[0] if isinstance(x, torch.Tensor)]
        names = ["the loss", *(f"extra {n}" for n in range(len(tensors)))]
        names += [f"the gradient of {parameters[n][2]}" for n in each.reached]
        reached = [gradients[n] for n in each.reached]
        ours = _evaluate(each, leaves)
        largest = max(_largest(g.double().numpy()) for g in reached)
        tolerance = _tolerance(each)
        for name, own, other in zip(names, ours, [value, *tensors, *reached], strict=False):
            other, place = other.detach(), first_line(stage.loss)
            _compare_shapes(name, own, other, place)
            if each.random:
                _compare_finite(name, own, other, place)
            else:
                _compare(name, own, other, tolerance, largest, place)
        if each.random:
            with undone(reading.tensors), torch.no_grad():
                recorder = _Recorder(each.graph)
                outputs = recorder.run(*(t.detach().clone() for t in (*each.tensors, *leaves)))
            ours = _evaluate(each, leaves, recorder.draws)
            for name, own, other in zip(names, ours, outputs, strict=False):
                _compare(name, own, other, tolerance, largest, first_line(stage.loss))


class _Recorder(Interpreter):
    """Runs a graph in PyTorch and keeps what was drawn, by the names of the nodes."""

    def __init__(self, graph: GraphModule):
        super().__init__(graph)
        self.draws: dict[str, np.ndarray] = {}

    def run_node(self, n: Node) -> Any:
        result = super().run_node(n)
        if is_random(n):
            self.draws[n.name] = batches.as_numpy(result)
        return result


def _evaluate(
    captured: Captured, leaves: list[torch.Tensor], draws: dict[str, np.ndarray] | None = None
) -> list[np.ndarray]:
    arrays = [batches.as_numpy(tensor) for tensor in (*captured.tensors, *leaves)]
    nothing = np.zeros((), np.float32)
    passed = [a if used else nothing for a, used in zip(arrays, captured.used, strict=True)]

    def run(*arrays: Any) -> list:
        key = {"key": jax.random.key(0)} if captured.random and draws is None else {}
        return captured.function(*arrays, **key, known=draws)

    with client.x64(), client.keeping_programs():
        return [np.asarray(x) for x in client.compile(run)(*passed)]


def _tolerance(captured: Captured) -> float:
    """Return the tolerance of the coarsest type that the loss reads or computes in."""
    return 0.0 if captured.coarsest is None else TOLERANCES.get(captured.coarsest, 0.0)


def _compare_shapes(name: str, own: np.ndarray, other: torch.Tensor, where: str) -> None:
    if own.shape != tuple(other.shape):
        raise FuseError(
            f"fuse: {name} has shape {own.shape} compiled and {tuple(other.shape)} in eager "
            f"PyTorch ({where}); please report this"
        )


def _compare_finite(name: str, own: np.ndarray, other: torch.Tensor, where: str) -> None:
    if bool(other.isfinite().all()) and not np.isfinite(own.astype(np.float64)).all():
        raise FuseError(
            f"fuse: {name} is finite in eager PyTorch but not compiled ({where}); "
            "please report this"
        )


def _compare(
    name: str, own: np.ndarray, other: torch.Tensor, tolerance: float, largest: float, where: str
) -> None:
    own, expected = own.astype(np.float64), other.double().numpy()
    tolerance = (
        max(tolerance, TOLERANCES.get(other.dtype, 0.0)) if other.is_floating_point() else 0.0
    )
    if not own.size or np.array_equal(own, expected, equal_nan=True):
        return
    scale = tolerance * (_largest(expected) + 0.01 * largest)
    if not np.allclose(own, expected, rtol=0, atol=scale, equal_nan=True):
        worst = float(np.nanmax(np.abs(own - expected)))
        raise FuseError(
            f"fuse: {name} differs by {worst:.3g} from eager PyTorch ({where}); please report this"
        )


def _largest(array: np.ndarray) -> float:
    """Return the largest size of an array's finite entries."""
    return float(np.abs(array[np.isfinite(array)]).max(initial=0.0))


def check_optimizers(stages: list[Stage], captured: list[Captured]) -> None:
    """Refuse an optimizer whose update on given gradients is not PyTorch's."""
    for stage, each in zip(stages, captured, strict=True):
        copied, random = eager.copy_stage(stage), np.random.default_rng(0)
        parameters = [tensor for tensor, _, _ in copied.parameters()]
        names = [name for _, _, name in stage.parameters()]
        before = eager.copy_stage(copied)
        gradients: list = [None] * len(parameters)
        for n in each.reached:
            values = batches.as_tensor(random.standard_normal(parameters[n].shape))
            gradients[n] = values.to(parameters[n].dtype)
        eager.move(copied, parameters, [g if g is None else g.clone() for g in gradients])
        factor = _factor(stage.max_gradient_norm, [g for g in gradients if g is not None])
        for n in each.reached:
            old, number, _ = before.parameters()[n]
            group = before.optimizer.param_groups[number]
            own = _move(before.optimizer, group, old, gradients[n] * factor)
            dtype = parameters[n].dtype
            expected = parameters[n].detach().double().numpy()
            step = np.abs(expected - old.detach().double().numpy()).max(initial=0.0)
            rounding = torch.finfo(dtype).eps * np.abs(expected).max(initial=0.0)
            tolerance = TOLERANCES[dtype] * step + 4 * rounding
            if not np.allclose(own, expected, rtol=0, atol=tolerance, equal_nan=True):
                raise FuseError(
                    f"fuse: {type(stage.optimizer).__name__} moves {names[n]} differently from "
                    f"eager PyTorch ({first_line(stage.loss)}); please report this"
                )


def _factor(max_norm: float | None, gradients: list[torch.Tensor]) -> float:
    if max_norm is None:
        return 1.0
    norm = float(sum(float((g.double() ** 2).sum()) for g in gradients)) ** 0.5
    return min(max_norm / (norm + 1e-6), 1.0)


def _move(optimizer: Any, group: dict, weight: torch.Tensor, gradient: torch.Tensor) -> np.ndarray:
    """Return a parameter after one update, by our own rule, in double precision."""
    form = optimizers.settings(optimizer, group)
    state = optimizer.state.get(weight) or {}
    fresh = optimizers.fresh_state(optimizer, group, weight)
    known = {name: value for name, value in state.items() if value is not None}
    moments = [(fresh | known)[name] for name in form.moments]
    before = float(state["step"]) if "step" in state else float("momentum_buffer" in state)
    (numbers,) = optimizers.Numbers(form).rows(group, int(before), 1)
    numbers = optimizers.with_rate(form, numbers, float(group["lr"]))
    arrays = [t.detach().double().numpy() for t in (weight, gradient, *moments)]
    return optimizers.move(form, arrays[0], arrays[1], arrays[2:], numbers, np)[0]


def time_both(
    run: Callable[[], Any], stages: list[Stage], call: Call, reading: Reading
) -> tuple[float, float]:
    """Return the seconds of a program, and of as many updates of PyTorch on copies.

    Both are the fastest of some calls in turn, of more if the program seems to be the slower.
    """
    slots = call.slots(reading)
    leaves, ours, theirs = call.sample(0, slots), [], []
    copies = [eager.copy_stage(stage) for stage in stages]

    def update() -> float:
        total = 0.0
        for stage, copied in zip(stages, copies, strict=True):
            tensors = [tensor for tensor, _, _ in stage.parameters()]
            own = [tensor for tensor, _, _ in copied.parameters()]
            start = time.perf_counter()
            gradients = call.loss(stage, slots).gradients(leaves, tensors)[2]
            eager.move(copied, own, gradients)
            total += (time.perf_counter() - start) / stage.every
        return total

    with undone(reading.tensors):
        until = time.perf_counter() + PATIENCE
        while len(ours) < 3 or (min(ours) > min(theirs) and time.perf_counter() < until):
            start = time.perf_counter()
            run()
            ours.append(time.perf_counter() - start)
            theirs.append(update() * (call.updates or 1))
    return min(ours), min(theirs)


PATIENCE = 0.5  # seconds of doubt, before the slower one is called the slower
