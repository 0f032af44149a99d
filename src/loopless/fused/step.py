"""`fuse`: updates of somebody's own PyTorch module, K at a time, in one compiled call."""

import os
import threading
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from loopless.fused import batches, client
from loopless.fused.assemble import assemble, capture_all, forms
from loopless.fused.blame import FuseError
from loopless.fused.calls import Call, read
from loopless.fused.capture import TENSOR, Captured, undone
from loopless.fused.plan import Plan
from loopless.fused.stages import parse
from loopless.refusals import check_choice, refuse


def fuse(
    loss: Any,
    module: Any = None,
    optimizer: Any = None,
    *,
    max_gradient_norm: float | Sequence | None = None,
    follow: Sequence = (),
    every: Sequence[int] | None = None,
    random: bool = False,
    check: str = "first",
    on_nan: str = "stop",
) -> "Step":
    """Return `step`, which updates a PyTorch module in one compiled call."""
    stages, followers = parse(loss, module, optimizer, max_gradient_norm, follow, every)
    refuse(
        "fuse",
        check_choice("check", check, ("first", "always", "never")),
        check_choice("on_nan", on_nan, ("stop", "skip")),
    )
    return Step(stages, followers, random=random, check=check, on_nan=on_nan)


class Step:
    """Updates of one or several losses; made by `fuse`."""

    def __init__(self, stages, followers, *, random: bool, check: str, on_nan: str):
        self._stages, self._followers = stages, followers
        self._random, self._check, self._skip = random, check, on_nan == "skip"
        self._lock, self._process = threading.RLock(), os.getpid()
        self._plans: dict[tuple, Plan] = {}
        self._compiled: dict[tuple, Any] = {}
        self._last: tuple = (None, None)
        self.updates = 0

    def __call__(self, batch: Any, *others: Any) -> Any:
        """Make one update and return the loss, or (loss, extras)."""
        with self._lock:
            results = self._run(self._call(batch, others, None, None), None)
        return results

    def many(self, batches: Any, *others: Any, indices: Any = None, learning_rates: Any = None):
        """Make K updates and return the losses [K], or (losses, extras)."""
        with self._lock:
            return self._run(self._call(batches, others, indices, True), learning_rates)

    def _call(self, batch: Any, others: tuple, indices: Any, many: Any) -> Call:
        leaves, structure = batches.flatten(batch)
        other_leaves, other_structure = batches.flatten(others)
        arrays = batches.views(leaves, lambda: batches.names(structure))
        updates = None
        if indices is not None:
            (indices,) = batches.views([indices], lambda: ["indices"])
            updates = len(indices)
        elif many:
            updates = len(arrays[0])
        return Call(structure, arrays, others, other_structure, other_leaves, updates, indices)

    def _run(self, call: Call, rates: Any) -> Any:
        updates = 1 if call.updates is None else call.updates
        kind = call.kind()
        plan = self._last[1] if kind == self._last[0] else self._plans.get(kind)
        if plan is None or not plan.is_current(call.other_leaves):
            plan = self._plans[kind] = self._plan(call, apart=False)
        self._last = kind, plan
        plan.memory.check_gradients()
        numbers = plan.numbers(updates, rates)
        if numbers is None:
            plan = self._plans[kind] = self._plan(call, apart=True)
            numbers = plan.numbers(updates, rates)
        recipe = plan.compiled.recipe
        leaves = call.leaves(plan.slots)
        small, large = [numbers], []
        for leaf, packed in zip(leaves, recipe.packed, strict=True):
            (small if packed else large).append(leaf)
        vectors = plan.memory.read(small)
        with client.x64():
            vectors = plan.compiled.run(vectors, large)
        vectors = [np.asarray(vector) for vector in vectors]
        (layout,) = plan.compiled.results
        taken = [updates] * len(plan.compiled.trained)
        plan.memory.write(layout, vectors, taken)
        value, finite, *extras = plan.results(vectors)
        return torch.from_numpy(np.array(value))

    def _plan(self, call: Call, *, apart: bool) -> Plan:
        reading = read(self._stages, self._followers, call)
        key = call.kind(), reading.signature, tuple(forms(self._stages)), apart
        compiled = self._compiled.get(key)
        if compiled is None:
            with undone(reading.tensors):
                captured = capture_all(self._stages, call, reading, random=self._random)
            compiled = self._compiled[key] = assemble(
                self._stages, self._followers, call, reading, captured, skip=self._skip, apart=apart
            )
        return Plan(compiled, reading, self._stages, call)
