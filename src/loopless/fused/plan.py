"""A program, bound to the user's tensors: what one call pays for.

A plan serves all calls with arguments of one kind. `is_current` compares identities, pointers and
shapes; when one differs, `step.py` makes the plan again, and only a difference that the program can
see (a number, a shape, a dtype) makes it compile.
"""

from operator import is_
from typing import Any

import numpy as np

from loopless.fused import optimizers
from loopless.fused.assemble import Compiled
from loopless.fused.calls import Call
from loopless.fused.memory import Memory, Moment
from loopless.fused.reads import Reading
from loopless.fused.stages import Follow, Stage


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
        self._table = np.zeros((call.updates or 1, compiled.width))
        self._numbers = [optimizers.Numbers(block.form) for block in compiled.blocks]
        self._groups = [group for stage in stages for group in stage.optimizer.param_groups]
        self._optimizers = [
            (stage.optimizer, stage.optimizer.param_groups, len(stage.optimizer.param_groups))
            for stage in stages
        ]
        self._shaping = list(map(optimizers.shape_of, self._groups))
        self._lists = [(group["params"], list(group["params"])) for group in self._groups]
        self._parameters = [tensor for group in self._groups for tensor in group["params"]]
        self._requires = [tensor.requires_grad for tensor in self._parameters]
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
        return (
            all(
                optimizer.param_groups is groups and len(groups) == count
                for optimizer, groups, count in self._optimizers
            )
            and all(len(a) == len(b) and all(map(is_, a, b)) for a, b in self._lists)
            and list(map(optimizers.shape_of, self._groups)) == self._shaping
            and [tensor.requires_grad for tensor in self._parameters] == self._requires
            and self.memory.is_current()
            and self.reading.is_same()
        )

    def fits(self, before: list[float]) -> bool:
        """Return whether parameters that share numbers have had as many updates as each other."""
        for block in self.compiled.blocks:
            if len({before[number] for number in block.trained}) > 1:
                return False
        return True

    def numbers(self, before: list[float], updates: int, rates: np.ndarray | None) -> np.ndarray:
        """Return rates and optimizers' numbers of K updates that follow `before` earlier ones."""
        table = self._table
        for column, group in enumerate(self._groups):
            table[:, column] = group["lr"]
        if rates is not None:
            table[:, : len(self._groups)] = rates.reshape(updates, -1)
        for block, numbers in zip(self.compiled.blocks, self._numbers, strict=True):
            earlier = int(before[block.trained[0]])
            rows = numbers.rows(self._groups[block.group], earlier, updates)
            table[:, block.start : block.stop] = rows
        return table

    def turns(self, numbers: np.ndarray, before: int) -> np.ndarray:
        """Enter in the numbers in which updates each loss and follower runs, and return it."""
        count = 1 + before + np.arange(len(numbers))[:, None]
        numbers[:, self._due : -1] = count % self._every == 0
        return numbers[:, self._due : -1]

    def results(self, vectors: list[np.ndarray]) -> list[tuple]:
        """Return for each loss its values, whether they are finite, and its extras."""
        if self._results is None:
            (layout,) = self.compiled.results
            self._results = layout.slices()[self.compiled.recipe.state :]
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
