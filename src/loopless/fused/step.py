"""`fuse`: updates of somebody's own PyTorch module, K at a time, in one compiled call."""

import os
import threading
import warnings
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from loopless.fused import batches, check, client, eager
from loopless.fused.assemble import Compiled, assemble, capture_all, forms
from loopless.fused.blame import FuseError, first_line, user_line
from loopless.fused.calls import Call, read
from loopless.fused.capture import TENSOR, undone
from loopless.fused.plan import Plan
from loopless.fused.reads import Reading
from loopless.fused.stages import parse
from loopless.refusals import check_choice, refuse

_FORKS: list[int] = []  # the processes that forks have led to, up to this one
os.register_at_fork(after_in_child=lambda: _FORKS.append(os.getpid()))
MANY_SHAPES = 6  # of batches, after which it is said that each is compiled


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
    """Return a `Step` that updates a PyTorch module by its own optimizer, compiled.

        def loss(net, batch, target):                   # plain PyTorch
            q = net(batch["obs"]).gather(1, batch["action"][:, None]).squeeze(1)
            with torch.no_grad():
                best = target(batch["next_obs"]).max(1).values
            return F.smooth_l1_loss(q, batch["reward"] + 0.99 * (1 - batch["done"]) * best)

        step = ll.fuse(loss, net, optimizer, max_gradient_norm=10.0)
        value = step(batch, target)                     # one update
        values = step.many(batches, target)             # K updates of [K, B, …]
        values = step.many(rollout, target, indices=i)  # K minibatches, rows i [K, B] of a rollout

    Afterwards the module and the optimizer stand where as many eager updates (zero_grad, backward,
    clip, step) would have left them, within rounding. A loss may return (value, extras); extras
    come back stacked. Several losses are a list of (loss, module, optimizer), which run in turn; a
    leaf tensor may stand for a module. `follow` is a list of (target, module, tau): after the
    losses, target ← (1 − τ) target + τ module, and buffers are copied. `every` says for each loss,
    and then for each follower, in which updates it runs: every n-th, counted from 1.

    Tensors and modules that a loss reads from closures, globals and objects are read anew at each
    call; a tensor that cannot be found again that way is refused. Numbers are part of the program:
    another value compiles another one.

    `random=True` admits losses that draw random numbers: by the same law as PyTorch, but other
    draws, from a seed that PyTorch's generator gives. `check` compares values, gradients and
    optimizers with eager PyTorch, at the "first" call, "always" or "never"; the first call runs
    the loss several times, and undoes what it did. A loss that draws random numbers is compared
    under equal draws. `on_nan="stop"` raises at a loss or gradient that is not finite, with
    everything as it was before the call; "skip" leaves such updates out.

    Where eager PyTorch is faster, which the first call measures, it warns and goes on in eager.
    CPU only. Adam, AdamW, SGD and RMSprop.
    """
    stages, followers = parse(loss, module, optimizer, max_gradient_norm, follow, every)
    refuse(
        "fuse",
        check_choice("check", check, ("first", "always", "never")),
        check_choice("on_nan", on_nan, ("stop", "skip")),
    )
    return Step(stages, followers, random=random, check=check, skip=on_nan == "skip")


@dataclass
class Program:
    """One compiled program of a step: for how many updates, for which batch, and how fast."""

    updates: int
    shapes: dict[str, tuple[int, ...]]
    compiled: bool = True  # False where eager PyTorch is faster and runs instead
    seconds: float | None = None  # of one call, as timed at the first
    eager_seconds: float | None = None  # of as many updates in eager PyTorch


class Step:
    """Updates of one or several losses, made by `fuse`.

    `programs` lists what has been compiled, and `updates` counts the updates so far.
    """

    def __init__(self, stages: list, followers: list, *, random: bool, check: str, skip: bool):
        self.programs: list[Program] = []
        self.updates = 0
        self._stages, self._followers = stages, followers
        self._random, self._check, self._skip = random, check, skip
        self._lock, self._forks = threading.RLock(), len(_FORKS)
        self._delayed = any(entry.every > 1 for entry in [*stages, *followers])
        self._plans: dict[tuple, Plan] = {}
        self._compiled: dict[tuple, tuple[Compiled, Program]] = {}
        self._last: tuple = (None, None)
        self._checked = False
        self._numbers: dict[str, Any] = {}
        self._changes: Counter = Counter()
        self._generator: torch.Tensor | None = None  # PyTorch's, before this call has drawn

    def __call__(self, batch: Any, *others: Any) -> Any:
        """Make one update on `batch` and return the loss, or (loss, extras).

        `others` are passed on to the loss. With several losses the result is a tuple of these, and
        None for a loss whose turn it was not.
        """
        with self._lock:
            leaves, structure = batches.flatten(batch)
            arrays = batches.views(leaves, lambda: batches.names(structure))
            other_leaves, other_structure = batches.flatten(others)
            call = Call(structure, arrays, others, other_structure, other_leaves, None, None)
            return self._run(call, None)

    def many(
        self, batch: Any, *others: Any, indices: Any = None, learning_rates: Any = None
    ) -> Any:
        """Make K updates on batches [K, B, …] and return the losses [K], or (losses, extras).

        With `indices` [K, B] the batches are those rows of `batch` [N, …]. `learning_rates` [K], or
        [K, groups], take the place of the optimizers' own. With several losses the result is a
        tuple; a loss that did not run in all K updates has as many values as it ran.
        """
        with self._lock:
            leaves, structure = batches.flatten(batch)
            arrays = batches.views(leaves, lambda: batches.names(structure))
            other_leaves, other_structure = batches.flatten(others)
            if indices is not None:
                (indices,) = batches.views([indices], lambda: ["indices"])
            updates = batches.count_updates(arrays, indices, lambda: batches.names(structure))
            call = Call(structure, arrays, others, other_structure, other_leaves, updates, indices)
            return self._run(call, self._rates(learning_rates, updates))

    def _rates(self, rates: Any, updates: int) -> np.ndarray | None:
        if rates is None:
            return None
        groups = sum(len(stage.optimizer.param_groups) for stage in self._stages)
        rates = np.asarray(rates, np.float64)
        if rates.shape == (updates,):
            rates = np.repeat(rates[:, None], groups, 1)
        if rates.shape != (updates, groups) or not (np.isfinite(rates) & (rates >= 0)).all():
            raise ValueError(
                f"fuse: learning_rates must be {updates} numbers of at least 0, or of shape "
                f"({updates}, {groups}); received shape {rates.shape} ({user_line()})"
            )
        return rates

    def _run(self, call: Call, rates: np.ndarray | None) -> Any:
        if len(_FORKS) != self._forks:
            raise FuseError("fuse: a step works only in the process that made it, not after a fork")
        if torch.is_autocast_enabled("cpu"):
            raise FuseError(
                f"fuse: autocast is on; call a fused step outside of it ({user_line()})"
            )
        updates = 1 if call.updates is None else call.updates
        kind = call.kind()
        plan = self._last[1] if kind == self._last[0] else self._plans.get(kind)
        if plan is None or not plan.is_current(call.other_leaves):
            plan = self._plans[kind] = self._plan(call, apart=False)
        plan.memory.check_waiting()
        before = plan.memory.steps()
        if not plan.fits(before):
            plan = self._plans[kind] = self._plan(call, apart=True)
        numbers = plan.numbers(before, updates, rates)
        self._last = kind, plan
        if self._check == "always" and self._checked:
            with undone(plan.reading.tensors):
                captured = [part.captured for part in plan.compiled.recipe.parts]
                check.check_losses(self._stages, call, plan.reading, captured)
                check.check_optimizers(self._stages, captured)
        due = plan.turns(numbers, self.updates) if self._delayed else None
        if self._random:
            self._generator = torch.get_rng_state()
            numbers[0, -1] = int(torch.randint(2**53, ()))
        leaves, large, small = call.leaves(plan.slots), [], [numbers]
        for leaf, packed in zip(leaves, plan.compiled.recipe.packed, strict=True):
            (small if packed else large).append(leaf)
        vectors = plan.memory.read(small)
        if plan.program.seconds is None:
            self._time(plan, call, vectors, large)
        if not plan.program.compiled:
            return self._run_eager(plan, call, due, rates)
        with client.x64():
            vectors = plan.compiled.run(vectors, large)
        if due is None and (values := plan.finish(vectors)) is not None:
            self._finish(updates)
            return values
        vectors = [np.asarray(vector) for vector in vectors]
        results = plan.results(vectors)
        taken = self._taken(plan, results, due, updates)
        plan.memory.write(plan.compiled.results[0], vectors, taken)
        self._finish(updates)
        return self._shape(plan, call, results, due)

    def _plan(self, call: Call, *, apart: bool) -> Plan:
        """Return a program bound to what the losses read now; compile one if there is none."""
        for stage in self._stages:
            stage.check()
        reading = read(self._stages, self._followers, call)
        key = call.kind(), reading.signature, tuple(forms(self._stages)), apart
        if key not in self._compiled:
            self._tell_changes(reading)
            with undone(reading.tensors):
                # An exception of the loss itself is the user's, and comes before any of ours.
                slots = call.slots(reading)
                for stage in self._stages:
                    parameters = [tensor for tensor, _, _ in stage.parameters()]
                    call.loss(stage, slots).gradients(call.sample(0, slots), parameters)
            with undone(reading.tensors):
                captured = capture_all(self._stages, call, reading, random=self._random)
            if self._check != "never" and not self._checked:
                check.check_losses(self._stages, call, reading, captured)
                check.check_optimizers(self._stages, captured)
            compiled = assemble(
                self._stages, self._followers, call, reading, captured, skip=self._skip, apart=apart
            )
            names = batches.names(call.structure)
            shapes = {name: a.shape for name, a in zip(names, call.arrays, strict=True)}
            self._compiled[key] = compiled, Program(call.updates or 1, shapes)
            self._tell_shapes()
        self._numbers = reading.numbers
        compiled, program = self._compiled[key]
        return Plan(compiled, program, reading, self._stages, self._followers, call)

    def _tell_changes(self, reading: Reading) -> None:
        """Warn about a number that keeps changing: each of its values is a program of its own."""
        for path, value in reading.numbers.items():
            if path in self._numbers and self._numbers[path] != value:
                self._changes[path] += 1
                if self._changes[path] >= 3:
                    warnings.warn(
                        f"fuse: {path} has changed {self._changes[path]} times, now to {value!r}, "
                        "and every value is compiled anew; pass it as a tensor, in the batch or "
                        "as a further argument of the loss",
                        stacklevel=5,
                    )

    def _tell_shapes(self) -> None:
        """Warn about batches of ever new shapes: each of them is a program of its own."""
        shapes = {tuple(program.shapes.values()) for _, program in self._compiled.values()}
        if len(shapes) == MANY_SHAPES:
            warnings.warn(
                f"fuse: this is the {MANY_SHAPES}th shape of a batch, and every shape is compiled "
                "anew, for about a second; pad batches to a few lengths and give each row a "
                f"weight, 0 for padding ({first_line(self._stages[0].loss)})",
                stacklevel=5,
            )

    def _time(self, plan: Plan, call: Call, vectors: list, large: list) -> None:
        """Time the program beside eager PyTorch, and choose the faster."""
        program = plan.program

        def run() -> None:
            with client.x64():
                for vector in plan.compiled.run(vectors, large):
                    np.asarray(vector)

        with client.keeping_programs():
            run()  # compiles
        seconds, eager_seconds = check.time_both(run, self._stages, call, plan.reading)
        program.seconds, program.eager_seconds = seconds, eager_seconds
        program.compiled = seconds <= eager_seconds
        if not program.compiled:
            warnings.warn(
                f"fuse: {program.updates} updates take {1e3 * seconds:.3g} ms compiled and "
                f"{1e3 * eager_seconds:.3g} ms in eager PyTorch, so these run in eager "
                f"({first_line(self._stages[0].loss)})",
                stacklevel=4,
            )
        self._checked = True
        self.programs.append(program)

    def _taken(self, plan: Plan, results: list, due: np.ndarray | None, updates: int) -> list[int]:
        """Return how many updates each trained parameter has had; refuse one that is not finite."""
        counts = []
        for number, (value, finite, _) in enumerate(results):
            runs = updates if due is None else int(due[:, number].sum())
            bad = int(finite.size - np.count_nonzero(finite))
            if bad and not self._skip:
                update = int(np.argmin(finite))
                self._refuse_nan(number, update, np.ravel(value)[update])
            counts.append(runs - bad)
        return [counts[stage] for stage, _ in plan.compiled.trained]

    def _refuse_nan(self, number: int, update: int, value: Any) -> None:
        if self._generator is not None:
            torch.set_rng_state(self._generator)
        raise FuseError(
            f"fuse: update {update + 1} of this call is not finite: the loss is {float(value):g}, "
            f"or a gradient is not finite; nothing has been changed "
            f"({first_line(self._stages[number].loss)})"
        )

    def _finish(self, updates: int) -> None:
        self.updates += updates
        for stage in self._stages:
            stage.optimizer._opt_called = True  # or the next scheduler.step() would warn

    def _shape(self, plan: Plan, call: Call, results: list, due: np.ndarray | None) -> Any:
        """Return values and extras as tensors of their own memory."""
        shaped, parts = [], plan.compiled.recipe.parts
        for number, (part, (value, _, arrays)) in enumerate(zip(parts, results, strict=True)):
            ran = None if due is None else due[:, number] != 0
            if ran is not None and call.updates is None and not ran[0]:
                shaped.append(None)
                continue
            pick = slice(None) if call.updates is None or ran is None else ran
            pick = ... if call.updates is None else pick
            tensors = iter(batches.wrap(np.array(array[pick])) for array in arrays)
            value = batches.wrap(np.array(value[pick]))
            captured = part.captured
            leaves = [next(tensors) if c is TENSOR else c for c in captured.constants]
            extras = batches.unflatten(captured.extras, leaves)
            shaped.append((value, extras) if captured.has_extras else value)
        return shaped[0] if len(shaped) == 1 else tuple(shaped)

    def _run_eager(
        self, plan: Plan, call: Call, due: np.ndarray | None, rates: np.ndarray | None
    ) -> Any:
        updates = 1 if call.updates is None else call.updates
        if due is None:
            due = np.ones((updates, len(self._stages) + len(self._followers)), bool)
        rows = eager.run(self._stages, self._followers, call, plan.reading, due, rates, self._skip)
        shaped = []
        parts = plan.compiled.recipe.parts
        for number, (part, some) in enumerate(zip(parts, rows, strict=True)):
            for update, value, finite, _ in some:
                if not finite and not self._skip:
                    self._refuse_nan(number, update, value)
            if not some:
                shaped.append(None)
                continue
            value, leaves, structure = eager.stack(some, call.updates is not None)
            extras = batches.unflatten(structure, leaves)
            shaped.append((value, extras) if part.captured.has_extras else value)
        self._finish(updates)
        return shaped[0] if len(shaped) == 1 else tuple(shaped)
