"""The user's own tensors, read and written: parameters, moments, buffers and step counts.

A program takes all arrays of one dtype as one vector, which is put together from NumPy views of the
tensors in one call. Results are copied to the tensors in place and version counters move, so that
nothing is re-pointed and autograd notices. Views are kept between calls, and pointers are compared.
"""

from dataclasses import dataclass
from operator import is_
from typing import Any

import numpy as np
import torch
from torch.autograd.graph import increment_version

from loopless.compiled.program import scatter, scatter_finite
from loopless.fused import batches, optimizers
from loopless.fused.blame import FuseError, user_line
from loopless.fused.guard import Guard
from loopless.fused.layout import Layout
from loopless.fused.program import Recipe


@dataclass(frozen=True)
class Moment:
    """A moment of an optimizer, by name."""

    optimizer: Any
    group: dict
    parameter: torch.Tensor
    name: str

    def tensor(self) -> torch.Tensor | None:
        """Return the tensor in the optimizer's state, or None before the first update."""
        state = self.optimizer.state
        return state[self.parameter].get(self.name) if self.parameter in state else None


class Memory:
    """The tensors behind the cells of a layout, and the counts of steps beside them."""

    def __init__(
        self,
        recipe: Recipe,
        sources: list[torch.Tensor | Moment],
        steps: list[Moment],
        trained: list[tuple[torch.Tensor, str]],
    ):
        self._recipe, self._sources, self._steps = recipe, sources, steps
        self._trained = trained
        self._optimizers = list({id(m.optimizer): m.optimizer for m in steps}.values())
        self._bind()

    def _bind(self) -> None:
        tensors = [s.tensor() if isinstance(s, Moment) else s for s in self._sources]
        self._tensors = [t for t in tensors if t is not None]
        self._state_tensors = tensors[: self._recipe.state]
        layout = self._recipe.layout
        arrays = [
            np.zeros(shape, dtype) if tensor is None else batches.as_numpy(tensor)
            for tensor, shape, dtype in zip(tensors, layout.shapes, layout.dtypes, strict=False)
        ]
        self._reads = []
        for kind in layout.kinds:
            cells = layout.cells(kind)
            views = [arrays[cell] for cell in cells if cell < len(arrays)]
            views = [view.ravel() if view.flags.c_contiguous else view for view in views]
            passed = [cell - len(arrays) for cell in cells if cell >= len(arrays)]
            self._reads.append((views, passed, _aligned(sum(layout.sizes(kind)), kind)))
        self._writes: tuple | None = None
        counts = [moment.tensor() for moment in self._steps]
        self._step_views = [
            _ZERO if t is None else t.numpy() if moment.name == "step" else _ONE
            for moment, t in zip(self._steps, counts, strict=True)
        ]
        self._single_steps = [
            moment.name == "step" and view is not _ZERO and view.dtype == np.float32
            for moment, view in zip(self._steps, self._step_views, strict=True)
        ]
        pairs = zip(counts, self._single_steps, strict=True)
        addresses = [t.data_ptr() for t, single in pairs if single and t is not None]
        self._counters, self._taken = np.array(addresses, np.int64), None
        self._unborn = any(tensor is None for tensor in [*tensors, *counts])
        self._guard, self._idle = self._watch(), self._watch_waiting()

    def _watch(self) -> Guard:
        """Return what notices that a tensor or its memory has been replaced."""
        guard = Guard()
        for optimizer in self._optimizers:
            state = optimizer.state
            guard.add("{}.state is {}", optimizer, state)
            for holder in (state, *state.values()):
                guard.add("len({}) == {}", holder, len(holder))
                guard.add("all(map({}, {}.values(), {}))", is_, holder, tuple(holder.values()))
        # The same memory, shape and strides:
        aliases = [tensor.detach() for tensor in self._tensors]
        guard.add("all(map({}, {}, {}))", torch.Tensor.is_set_to, self._tensors, aliases)
        return guard

    def _watch_waiting(self) -> Guard:
        """Return what holds as long as no gradient waits and nothing has a hook."""
        guard = Guard()
        guard.add("not any({})", optimizers.common_hooks())
        for optimizer in self._optimizers:
            guard.add("not {}._optimizer_step_pre_hooks", optimizer)
            guard.add("not {}._optimizer_step_post_hooks", optimizer)
        for parameter, _ in self._trained:
            guard.add("{}.grad is None", parameter)
            guard.add("not {}._backward_hooks", parameter)
            guard.add("not {}._post_accumulate_grad_hooks", parameter)
        return guard

    def is_current(self) -> bool:
        """Return whether the tensors are still those that were looked at, on the same memory."""
        return self._guard.holds()

    def check_waiting(self) -> None:
        """Refuse a gradient that waits in a parameter, which eager code adds to, and hooks."""
        if self._idle.holds():
            return
        for optimizer in self._optimizers:
            if optimizers.has_hooks(optimizer):
                optimizers.raise_hooked(optimizer, user_line())
        for parameter, name in self._trained:
            if parameter._backward_hooks or parameter._post_accumulate_grad_hooks:
                raise FuseError(
                    f"fuse: {name} has a gradient hook, which would never run ({user_line()})"
                )
            if parameter.grad is not None:
                raise FuseError(
                    f"fuse: {name} has a gradient already; call optimizer.zero_grad() before "
                    f"fused updates, which leave none ({user_line()})"
                )

    def steps(self) -> list[float]:
        """Return how many updates each trained parameter has had."""
        return [view.item() for view in self._step_views]

    def read(self, passed: list[np.ndarray]) -> list[np.ndarray]:
        """Return the vectors of all cells; `passed` are the arrays that are no tensors of ours."""
        vectors = []
        for views, places, vector in self._reads:
            if not views and len(places) == 1:
                vectors.append(passed[places[0]].ravel())
                continue
            np.concatenate([*views, *[passed[place] for place in places]], None, vector)
            vectors.append(vector)
        return vectors

    def write(self, layout: Layout, vectors: list[np.ndarray], taken: list[int]) -> None:
        """Copy new values to the tensors, and count the updates that each parameter has had."""
        if self._unborn:
            self._make_states(taken)
        if self._writes is None:
            self._writes = self._make_writes(layout)
        tables, stages, targets, sources, moved = self._writes
        counters, counts = self._counters, self._count(taken)
        for vector, table, stage in zip(vectors, tables, stages, strict=True):
            if stage is None:
                scatter(vector, table, counters, counts)
                counters, counts = _NO_COUNTERS, _NO_COUNTS
            else:
                np.copyto(stage, vector)
        if targets:
            _copy(targets, sources)
        if counters.size:
            scatter(_NO_COUNTS, _NO_TABLE, counters, counts)
        increment_version(moved)

    def write_finite(self, source: int, start: int, values: np.ndarray, taken: list[int]) -> bool:
        """Do in one call what `write` does, if all values are finite; return whether it is done.

        It is for a single vector of float32, at the address `source`; `values` are filled from
        its numbers at `start`, which are followed by whether each is finite.
        """
        if self._writes is None or self._unborn:
            return False
        tables, stages, _, _, moved = self._writes
        if len(tables) != 1 or stages[0] is not None or len(self._counters) != len(taken):
            return False
        if not scatter_finite(source, start, tables[0], self._counters, self._count(taken), values):
            return False
        increment_version(moved)
        return True

    def _count(self, taken: list[int]) -> np.ndarray:
        """Return what to add to the counters; the few that are not in single precision move here.

        Most calls take all their updates, as the call before.
        """
        if taken != self._taken:
            pairs = zip(self._single_steps, taken, strict=True)
            self._counts = np.array([count for single, count in pairs if single], np.float32)
            self._taken = taken
        if len(self._counts) < len(taken):
            for moment, view, count in zip(self._steps, self._step_views, taken, strict=True):
                if moment.name == "step" and view is not _ZERO and view.dtype != np.float32:
                    view[()] += count
        return self._counts

    def _make_writes(self, layout: Layout) -> tuple[list, list, list, list, list]:
        """Return how each vector is written: by our kernel, or staged and copied by PyTorch.

        These are tables and stages, one of either kind for each vector; what PyTorch copies, and
        where from; and the tensors that PyTorch does not know to be written.
        """
        tables, stages, targets, sources = [], [], [], []
        moved = [t for m in self._steps if m.name == "step" and (t := m.tensor()) is not None]
        for kind in layout.kinds:
            cells = [cell for cell in layout.cells(kind) if cell < self._recipe.state]
            tensors = [self._state_tensors[cell] for cell in cells]
            plain = [t for t in tensors if t is not None and t.is_contiguous()]
            if len(plain) == len(tensors) and kind.itemsize % WORD == 0:
                words = [(t.data_ptr(), t.numel() * kind.itemsize // WORD) for t in plain]
                tables.append(np.array(words, np.int64).reshape(-1, 2))
                stages.append(None)
                moved += plain
                continue
            sizes = layout.sizes(kind)
            tables.append(None)
            stages.append(_aligned(sum(sizes), kind))
            parts = batches.wrap(stages[-1]).split(sizes)
            for cell, tensor, part in zip(cells, tensors, parts, strict=False):
                if tensor is not None:
                    targets.append(tensor.detach())
                    sources.append(part.view(layout.shapes[cell]))
        return tables, stages, targets, sources, moved

    def _make_states(self, taken: list[int]) -> None:
        """Make the states that PyTorch would have made at the first update of a parameter."""
        for moment, count in zip(self._steps, taken, strict=True):
            state = optimizers.fresh_state(moment.optimizer, moment.group, moment.parameter)
            if count and state:
                own = moment.optimizer.state[moment.parameter]
                own.update({name: t for name, t in state.items() if own.get(name) is None})
        self._bind()


_copy: Any = torch._foreach_copy_  # pyright: ignore[reportPrivateImportUsage]
_ZERO, _ONE = np.zeros(()), np.ones(())
_NO_TABLE, _NO_COUNTERS = np.empty((0, 2), np.int64), np.empty(0, np.int64)
_NO_COUNTS = np.empty(0, np.float32)
WORD = 4  # bytes, of those that `scatter` copies


def _aligned(size: int, kind: np.dtype) -> np.ndarray:
    """Return an empty vector on a boundary of 64 bytes, which XLA reads without a copy."""
    raw = np.empty(size * kind.itemsize + 64, np.uint8)
    start = -raw.ctypes.data % 64
    return raw[start : start + size * kind.itemsize].view(kind)
