"""The arguments of one call, taken apart, and what the losses read besides them."""

import inspect
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from loopless.fused import batches
from loopless.fused.blame import first_line
from loopless.fused.capture import SLOT, Loss
from loopless.fused.reads import Reading
from loopless.fused.stages import Follow, Stage, check_module


@dataclass(slots=True)
class Call:
    """A batch and further arguments, as leaves and structures."""

    structure: Any
    arrays: list[np.ndarray]  # the batch's leaves
    others: tuple
    other_structure: Any
    other_leaves: list
    updates: int | None  # K of `many`, None for a single update
    indices: np.ndarray | None

    def kind(self) -> tuple:
        """Return what decides which plan serves this call."""
        indices = None if self.indices is None else (self.indices.shape, self.indices.dtype)
        arrays = tuple([(array.shape, array.dtype) for array in self.arrays])
        return self.structure, arrays, self.other_structure, self.updates, indices

    def leaves(self, slots: list[bool]) -> list[np.ndarray]:
        """Return the arrays that a program takes: the batch, further leaves, indices."""
        leaves = self.arrays
        if any(slots):
            others = [leaf for leaf, slot in zip(self.other_leaves, slots, strict=True) if slot]
            names = batches.names(self.other_structure, "others")
            leaves = [*leaves, *batches.views(others, lambda: names)]
        return leaves if self.indices is None else [*leaves, self.indices]

    def sample(self, update: int, slots: list[bool]) -> list[torch.Tensor]:
        """Return the leaves of one update, as tensors of their own memory."""
        batch, others = self.arrays, self.leaves(slots)[len(self.arrays) :]
        if self.indices is not None:
            rows = others.pop()[update]
            batch = [array[rows] for array in batch]
        elif self.updates is not None:
            batch = [array[update] for array in batch]
        return [batches.as_tensor(array) for array in [*batch, *others]]

    def slots(self, reading: Reading) -> list[bool]:
        """Return which of the further arguments the program takes as arrays.

        A tensor that a loss trains or that follows is not among them: it is known by identity.
        """
        return [
            batches.is_array(leaf)
            and not (isinstance(leaf, torch.Tensor) and reading.place(leaf) is not None)
            for leaf in self.other_leaves
        ]

    def loss(self, stage: Stage, slots: list[bool]) -> Loss:
        """Return the loss of a stage as a function of leaves."""
        leaves = zip(self.other_leaves, slots, strict=True)
        kept = [SLOT if slot else leaf for leaf, slot in leaves]
        return Loss(stage.loss, stage.module, self.structure, self.other_structure, kept)


def read(stages: list[Stage], follow: list[Follow], call: Call) -> Reading:
    """Return what the losses of a step read, the optimizers' parameters first."""
    reading = Reading()
    for number, stage in enumerate(stages):
        for tensor, group, name in stage.parameters():
            reading.tensor(f"{number}/{group}/{name}", tensor)
    for number, stage in enumerate(stages):
        reading.value(f"module {number}", stage.module)
    for number, entry in enumerate(follow):
        reading.module(f"target {number}", entry.target)
        reading.module(f"source {number}", entry.source)
    for number, leaf in enumerate(call.other_leaves):
        if not batches.is_array(leaf):
            reading.value(f"argument {number}", leaf)
    for number, stage in enumerate(stages):
        reading.function(f"loss {number}", stage.loss, _arguments(stage, call.others))
    for module in reading.modules:
        check_module(module, first_line(stages[0].loss))
    return reading


def _arguments(stage: Stage, others: tuple) -> dict[str, Any]:
    """Return a loss's arguments by name, all but the batch."""
    try:
        signature = inspect.signature(stage.loss)
    except (TypeError, ValueError):
        return {}
    try:
        bound = signature.bind(stage.module, None, *others).arguments
    except TypeError as error:
        raise TypeError(
            f"fuse: the loss is called with the module, the batch and {len(others)} more: {error} "
            f"({first_line(stage.loss)})"
        ) from None
    return {name: value for place, (name, value) in enumerate(bound.items()) if place != 1}
