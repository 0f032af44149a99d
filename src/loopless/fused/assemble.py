"""Captured losses, optimizers and followers, put together to one program over cells of memory."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from loopless.fused import batches, client, optimizers
from loopless.fused.blame import FuseError, first_line
from loopless.fused.calls import Call
from loopless.fused.capture import Captured, capture
from loopless.fused.optimizers import Settings
from loopless.fused.program import Follower, Layout, Part, Recipe, Trained, build
from loopless.fused.reads import Reading
from loopless.fused.stages import Follow, Stage


@dataclass(frozen=True)
class Block:
    """Columns of the numbers that belong to some trained parameters of one group."""

    start: int
    group: int
    form: Settings
    trained: list[int]


@dataclass(frozen=True)
class Compiled:
    """A program, and what its cells, rates and numbers stand for."""

    recipe: Recipe
    run: Callable
    unknown: list[torch.Tensor]  # tensors that no reading knows, kept as they are
    sources: list[tuple]  # of each cell: (place,), or (stage, parameter, moment)
    trained: list[tuple[int, int]]  # (stage, parameter) of each trained parameter
    blocks: list[Block]
    width: int  # columns of the numbers, the rates included


def forms(stages: list[Stage]) -> list[Settings]:
    """Return the form of the updates of each parameter group, of all optimizers in turn."""
    return [
        optimizers.settings(stage.optimizer, group)
        for stage in stages
        for group in stage.optimizer.param_groups
    ]


def capture_all(
    stages: list[Stage], call: Call, reading: Reading, *, random: bool
) -> list[Captured]:
    """Return the captured losses; each knows the tensors that the ones before it met."""
    slots = call.slots(reading)
    leaves = call.batch(0) + [
        batches.as_tensor(leaf)
        for leaf, slot in zip(call.other_leaves, slots, strict=True)
        if slot
    ]
    tensors, captured = list(reading.tensors), []
    for stage in stages:
        parameters = [tensor for tensor, _, _ in stage.parameters()]
        loss = call.loss(stage, slots)
        captured.append(capture(loss, parameters, tensors, leaves, random=random))
        tensors = captured[-1].tensors
    return captured


def assemble(
    stages: list[Stage],
    follow: list[Follow],
    call: Call,
    reading: Reading,
    captured: list[Captured],
    *,
    skip: bool,
    apart: bool,
) -> Compiled:
    """Return the program of some captured losses.

    With `apart` each parameter has its own numbers, because their counts of steps differ.
    """
    tensors = captured[-1].tensors
    parameters = [stage.parameters() for stage in stages]
    reached = [
        [(stage, place) for place in captured[stage].reached] for stage in range(len(stages))
    ]
    trained = [pair for some in reached for pair in some]
    places = {pair: reading.place(parameters[pair[0]][pair[1]][0]) for pair in trained}
    moved = [
        [(reading.place(a), reading.place(b)) for a, b in entry.pairs(kind)]
        for entry in follow
        for kind in ("parameters", "buffers")
    ]
    targets = [target for some in moved for target, _ in some]
    _refuse_writes(stages, captured, tensors, parameters, targets, reading)
    written = [place for each in captured for place in each.written]
    state = list(dict.fromkeys([*places.values(), *targets, *written]))
    all_forms, offsets = forms(stages), _offsets(stages)
    moments = [
        (stage, place, name)
        for stage, place in trained
        for name in all_forms[offsets[stage] + parameters[stage][place][1]].moments
    ]
    used = [place for each in captured for place in range(len(each.tensors)) if each.used[place]]
    used += [source for some in moved for _, source in some]
    inputs = [place for place in dict.fromkeys(used) if place not in state]
    sources = [*((p,) for p in state), *moments, *((p,) for p in inputs)]
    cells = {source: cell for cell, source in enumerate(sources)}
    blocks, width = _blocks(trained, parameters, all_forms, offsets, apart)
    block_of = {n: block for block in blocks for n in block.trained}

    def part(number: int, each: Captured) -> Part:
        movers = []
        for pair in reached[number]:
            block = block_of[trained.index(pair)]
            slots = tuple(cells[*pair, name] for name in block.form.moments)
            cell = cells[(places[pair],)]
            movers.append(Trained(cell, slots, block.form, block.group, block.start))
        return Part(
            each,
            [cells[(p,)] if each.used[p] else None for p in range(len(each.tensors))],
            movers,
            [cells[(p,)] for p in each.written],
            stages[number].max_gradient_norm,
            stages[number].every,
        )

    def follower(number: int, entry: Follow) -> Follower:
        pairs = [[(cells[(a,)], cells[(b,)]) for a, b in some] for some in moved[2 * number :][:2]]
        return Follower(pairs[0], pairs[1], entry.tau, entry.every)

    arrays = [batches.as_numpy(tensors[_tensor_of(source, places)]) for source in sources]
    layout = Layout(
        [array.shape for array in arrays],
        [array.dtype for array in arrays],
        len(state) + len(moments),
    )
    recipe = Recipe(
        layout,
        [part(number, each) for number, each in enumerate(captured)],
        [follower(number, entry) for number, entry in enumerate(follow)],
        skip,
        call.indices is not None,
        call.updates,
    )
    unknown = tensors[len(reading.tensors) :]
    run = client.compile(build(recipe))
    return Compiled(recipe, run, unknown, sources, trained, blocks, width)


def _tensor_of(source: tuple, places: dict) -> int:
    """Return the place of the tensor that has a cell's shape: a moment's parameter, or itself."""
    return source[0] if len(source) == 1 else places[source[:2]]


def _offsets(stages: list[Stage]) -> list[int]:
    counts = [len(stage.optimizer.param_groups) for stage in stages]
    return [sum(counts[:number]) for number in range(len(stages))]


def _blocks(
    trained: list, parameters: list, all_forms: list[Settings], offsets: list[int], apart: bool
) -> tuple[list[Block], int]:
    """Return blocks of numbers, one for each group or for each parameter, and their width."""
    members: dict[Any, list[int]] = {}
    for number, (stage, place) in enumerate(trained):
        group = offsets[stage] + parameters[stage][place][1]
        members.setdefault((group, number if apart else 0), []).append(number)
    blocks, width = [], len(all_forms)
    for (group, _), numbers in members.items():
        blocks.append(Block(width, group, all_forms[group], numbers))
        width += optimizers.COLUMNS[all_forms[group].kind]
    return blocks, width


def _refuse_writes(
    stages: list[Stage],
    captured: list[Captured],
    tensors: list,
    parameters: list,
    targets: list,
    reading: Reading,
) -> None:
    """Refuse a loss that writes to what updates move, and views that would go stale inside."""
    moving = {reading.place(t): name for some in parameters for t, _, name in some}
    moving |= {place: reading.names[place] for place in targets}
    for stage, each in zip(stages, captured, strict=True):
        for place in each.written:
            if place in moving:
                raise FuseError(
                    f"fuse: the loss writes to {moving[place]}, which updates move "
                    f"({first_line(stage.loss)})"
                )
    memory = {tensors[place].untyped_storage().data_ptr(): name for place, name in moving.items()}
    for place, tensor in enumerate(tensors):
        name = memory.get(tensor.untyped_storage().data_ptr())
        if name is not None and place not in moving and any(c.used[place] for c in captured):
            raise FuseError(
                f"fuse: a loss reads a view of {name} that was made before the call; read the "
                f"parameter itself ({first_line(stages[0].loss)})"
            )
