"""A program, bound to the user's tensors: what one call pays for.

A plan serves all calls with arguments of one kind. `is_current` compares identities, pointers and
shapes; when one differs, `step.py` makes the plan again, and only a difference that the program can
see (a number, a shape, a dtype) makes it compile.
"""

from operator import is_
from typing import Any

import numpy as np
import torch

from loopless.fused import optimizers
from loopless.fused.assemble import Compiled
from loopless.fused.calls import Call
from loopless.fused.guard import Guard
from loopless.fused.memory import Memory, Moment
from loopless.fused.reads import Reading
from loopless.fused.stages import Follow, Stage

AHEAD = 256  # updates whose numbers are computed at once


class Plan:
    """A compiled program, the memory it works on, and the arguments that it was made for."""

    def __init__(
        self,
        compiled: Compiled,
        program: Any,
        reading: Reading,
        stages: list[Stage],
        followers: list[Follow],
        call: Call,
    ):
        self.compiled, self.program, self.reading = compiled, program, reading
        self._every = np.array([entry.every for entry in [*stages, *followers]])
        self._due = compiled.width - 1 - len(self._every)
        self.slots = call.slots(reading)
        self._others = call.other_leaves
        self._results: list | None = None
        self._values: tuple | None = None
        self._all_taken = [call.updates or 1] * len(compiled.trained)
        self._ahead, self._settings = np.zeros((0, compiled.width)), []
        self._first: list[int] = []
        self._numbers = [optimizers.Numbers(block.form) for block in compiled.blocks]
        self._groups = [group for stage in stages for group in stage.optimizer.param_groups]
        self._guard = self._watch(stages)
        parameters = [stage.parameters() for stage in stages]
        tensors = reading.tensors

        def moment(stage: int, place: int, name: str) -> Moment:
            tensor, group, _ = parameters[stage][place]
            optimizer = stages[stage].optimizer
            return Moment(optimizer, optimizer.param_groups[group], tensor, name)

        sources = [tensors[s[0]] if len(s) == 1 else moment(*s) for s in compiled.sources]
        counted = [
            "momentum_buffer" if optimizers.KINDS[type(stages[s].optimizer)] == "sgd" else "step"
            for s, _ in compiled.trained
        ]
        steps = [moment(*pair, name) for pair, name in zip(compiled.trained, counted, strict=True)]
        trained = [(tensor, name) for some in parameters for tensor, _, name in some]
        self.memory = Memory(compiled.recipe, sources, steps, trained)

    def is_current(self, other_leaves: list) -> bool:
        """Return whether everything that the plan was made for is still there."""
        if not all(map(is_, other_leaves, self._others)):
            for leaf, before, slot in zip(other_leaves, self._others, self.slots, strict=True):
                if leaf is not before and not (slot and _is_alike(leaf, before, self.reading)):
                    return False
        return self._guard.holds() and self.memory.is_current()

    def _watch(self, stages: list[Stage]) -> Guard:
        """Return what notices a change of the optimizers' groups and of what the losses read."""
        guard = Guard()
        for stage in stages:
            groups = stage.optimizer.param_groups
            guard.add("{}.param_groups is {}", stage.optimizer, groups)
            guard.add("len({}) == {}", groups, len(groups))
            for number, group in enumerate(groups):
                guard.add("{}[{}] is {}", groups, number, group)
                parameters = list(group["params"])
                guard.add("len({}['params']) == {}", group, len(parameters))
                guard.add("all(map({}, {}['params'], {}))", is_, group, parameters)
                optimizers.watch(group, guard)
                for tensor in parameters:
                    guard.add("{}.requires_grad is {}", tensor, tensor.requires_grad)
        self.reading.watch(guard)
        return guard

    def fits(self, before: list[float]) -> bool:
        """Return whether parameters that share numbers have had as many updates as each other."""
        if before.count(before[0]) == len(before):
            return True
        for block in self.compiled.blocks:
            if len({before[number] for number in block.trained}) > 1:
                return False
        return True

    def numbers(self, before: list[float], updates: int, rates: np.ndarray | None) -> np.ndarray:
        """Return rates and optimizers' numbers of K updates that follow `before` earlier ones.

        They are computed for many updates ahead, so that a call whose settings are those of the
        call before takes rows of a table.
        """
        blocks = self.compiled.blocks
        settings = [group["lr"] for group in self._groups]
        settings += [optimizers.read(block.form, self._groups[block.group]) for block in blocks]
        earlier = [int(before[block.trained[0]]) for block in blocks]
        start = earlier[0] - self._first[0] if self._first else 0
        if (
            rates is None
            and settings == self._settings
            and 0 <= start <= len(self._ahead) - updates
            and (len(earlier) == 1 or earlier == [first + start for first in self._first])
        ):
            return self._ahead[start : start + updates]
        ahead = max(updates, AHEAD if rates is None and settings == self._settings else 0)
        table = np.zeros((ahead, self.compiled.width))
        table[:, : len(self._groups)] = settings[: len(self._groups)]
        if rates is not None:
            table[:, : len(self._groups)] = rates.reshape(updates, -1)
        for block, numbers, first in zip(blocks, self._numbers, earlier, strict=True):
            table[:, block.start : block.stop] = numbers.rows(
                self._groups[block.group], first, ahead
            )
        self._settings = settings if rates is None else []
        self._ahead, self._first = table, earlier
        return table[:updates]

    def turns(self, numbers: np.ndarray, before: int) -> np.ndarray:
        """Enter in the numbers in which updates each loss and follower runs, and return it."""
        count = 1 + before + np.arange(len(numbers))[:, None]
        numbers[:, self._due : -1] = count % self._every == 0
        return numbers[:, self._due : -1]

    def finish(self, vectors: list) -> torch.Tensor | None:
        """Write what the program computed and return the values of the only loss.

        Return None, with nothing written, where there is more to look at: several losses or dtypes,
        extras, an update that was not finite.
        """
        if self._values is None:
            self._values, parts = (), self.compiled.recipe.parts
            if len(vectors) == len(parts) == 1 and not parts[0].captured.has_extras:
                ((_, start, stop, shape), _) = self._slices()
                if vectors[0].dtype == np.float32:
                    self._values = start, stop - start, shape
        if not self._values:
            return None
        start, count, shape = self._values
        values = np.empty(count, np.float32)
        address = vectors[0].unsafe_buffer_pointer()
        if not self.memory.write_finite(address, start, values, self._all_taken):
            return None
        return torch.from_numpy(values.reshape(shape))

    def _slices(self) -> list[tuple]:
        (layout,) = self.compiled.results
        return layout.slices()[self.compiled.recipe.state :]

    def results(self, vectors: list[np.ndarray]) -> list[tuple]:
        """Return for each loss its values, whether they are finite, and its extras."""
        if self._results is None:
            self._results = self._slices()
        arrays = [vectors[n][start:stop].reshape(shape) for n, start, stop, shape in self._results]
        results, place = [], 0
        for part in self.compiled.recipe.parts:
            end = place + 2 + part.captured.extra_tensors
            results.append((arrays[place], arrays[place + 1], arrays[place + 2 : end]))
            place = end
        return results


def _is_alike(leaf: Any, before: Any, reading: Reading) -> bool:
    return (
        type(leaf) is type(before)
        and leaf.shape == before.shape
        and leaf.dtype == before.dtype
        and reading.place(leaf) is None
    )
