"""Captured losses, optimizers and followers, put together to one program over cells of memory."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from loopless.fused import batches, client, optimizers
from loopless.fused.blame import FuseError, first_line
from loopless.fused.calls import Call
from loopless.fused.capture import Captured, capture
from loopless.fused.layout import Layout
from loopless.fused.optimizers import Settings
from loopless.fused.program import Follower, Mover, Part, Recipe, build
from loopless.fused.reads import Reading
from loopless.fused.stages import Follow, Stage

PACKED = 2**15  # bytes of a leaf up to which copying it costs less than an argument of its own


@dataclass(frozen=True)
class Block:
    """Columns of the numbers that belong to some trained parameters of one group."""

    start: int
    stop: int
    group: int
    form: Settings
    trained: list[int]


@dataclass(frozen=True)
class Compiled:
    """A program, and what its cells, rates and numbers stand for."""

    recipe: Recipe
    run: Callable
    results: list[Layout]  # of what `run` returns, once it has run
    sources: list[tuple]  # of each cell: (place,), or (stage, parameter, moment)
    trained: list[tuple[int, int]]  # (stage, parameter) of each trained parameter
    blocks: list[Block]
    width: int  # columns of the numbers: rates, blocks, whose turn it is, and a seed


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
    """Return the captured losses."""
    slots = call.slots(reading)
    leaves = call.sample(0, slots)
    captured = []
    for stage in stages:
        parameters = [tensor for tensor, _, _ in stage.parameters()]
        loss = call.loss(stage, slots)
        captured.append(capture(loss, parameters, reading.tensors, leaves, random=random))
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
    tensors = reading.tensors
    parameters = [stage.parameters() for stage in stages]
    trained = [(stage, n) for stage, each in enumerate(captured) for n in each.reached]
    places = {pair: reading.index(parameters[pair[0]][pair[1]][0]) for pair in trained}
    moved = [
        [(reading.index(a), reading.index(b)) for a, b in entry.pairs(kind)]
        for entry in follow
        for kind in ("parameters", "buffers")
    ]
    targets = [target for some in moved for target, _ in some]
    _refuse_writes(stages, captured, tensors, parameters, targets, reading)
    written = [place for each in captured for place in each.written]
    kinds = [tensors[places[pair]].dtype for pair in trained]
    blocks, due = _blocks(trained, kinds, parameters, stages, apart)
    segments = _segments(blocks, trained, places, [*targets, *written])
    state = [source for some in segments for source in some]
    used = [place for each in captured for place in range(len(each.tensors)) if each.used[place]]
    used += [source for some in moved for _, source in some]
    inputs = [(place,) for place in dict.fromkeys(used) if (place,) not in state]
    cells = {source: cell for cell, source in enumerate([*state, *inputs])}
    segment_of = {source: n for n, some in enumerate(segments) for source in some}

    def mover(block: Block) -> Mover:
        pairs = [trained[n] for n in block.trained]
        moments = [segment_of[*pairs[0], name] for name in block.form.moments]
        weights = list(dict.fromkeys(segment_of[(places[pair],)] for pair in pairs))
        order = [captured[pairs[0][0]].reached.index(n) for _, n in pairs]
        return Mover(order, weights, moments, block.form, block.group, block.start)

    def part(number: int, each: Captured) -> Part:
        stage = stages[number]
        return Part(
            each,
            [cells[(p,)] if each.used[p] else None for p in range(len(each.tensors))],
            [mover(block) for block in blocks if trained[block.trained[0]][0] == number],
            [segment_of[(place,)] for place in each.written],
            stage.max_gradient_norm,
            stage.every,
            due + number,
        )

    def follower(number: int, entry: Follow) -> Follower:
        pairs = [
            [(segment_of[(a,)], cells[(b,)]) for a, b in some] for some in moved[2 * number :][:2]
        ]
        return Follower(pairs[0], pairs[1], entry.tau, entry.every, due + len(stages) + number)

    width = due + len(stages) + len(follow) + 1
    arrays = [
        batches.as_numpy(tensors[source[0] if len(source) == 1 else places[source[:2]]])
        for source in cells
    ]
    leaves = call.leaves(call.slots(reading))
    packed = [leaf.nbytes <= PACKED for leaf in leaves]
    arrays.append(np.empty((1 if call.updates is None else call.updates, width)))
    arrays += [leaf for leaf, is_packed in zip(leaves, packed, strict=True) if is_packed]
    recipe = Recipe(
        Layout([array.shape for array in arrays], [array.dtype for array in arrays]),
        [[cells[source] for source in some] for some in segments],
        len(inputs),
        packed,
        len(call.arrays),
        [part(number, each) for number, each in enumerate(captured)],
        [follower(number, entry) for number, entry in enumerate(follow)],
        skip,
        call.indices is not None,
        call.updates,
    )
    program, results = build(recipe)
    run = client.compile(program)
    return Compiled(recipe, run, results, list(cells), trained, blocks, width)


def _blocks(
    trained: list, kinds: list, parameters: list, stages: list[Stage], apart: bool
) -> tuple[list[Block], int]:
    """Return blocks of numbers, one for each group and dtype or each parameter, and their end."""
    all_forms, offsets = forms(stages), _offsets(stages)
    members: dict[Any, list[int]] = {}
    for number, ((stage, place), kind) in enumerate(zip(trained, kinds, strict=True)):
        group = offsets[stage] + parameters[stage][place][1]
        members.setdefault((group, kind, number if apart else 0), []).append(number)
    blocks, start = [], len(all_forms)
    for (group, *_), numbers in members.items():
        stop = start + optimizers.COLUMNS[all_forms[group].kind]
        blocks.append(Block(start, stop, group, all_forms[group], numbers))
        start = stop
    return blocks, start


def _segments(blocks: list[Block], trained: list, places: dict, single: list) -> list[list[tuple]]:
    """Return the state's cells, by what they are: parameters and moments of a block together.

    A parameter that several losses train, follow or write to is a segment of its own.
    """
    times = Counter([*places.values(), *dict.fromkeys(single)])
    segments: list[list[tuple]] = []
    for block in blocks:
        pairs = [trained[n] for n in block.trained]
        weights = [(places[pair],) for pair in pairs]
        if any(times[place] > 1 for (place,) in weights):
            segments += [[weight] for weight in weights if [weight] not in segments]
        else:
            segments.append(weights)
        segments += [[(*pair, name) for pair in pairs] for name in block.form.moments]
    segments += [[(place,)] for place in dict.fromkeys(single) if [(place,)] not in segments]
    return segments


def _offsets(stages: list[Stage]) -> list[int]:
    counts = [len(stage.optimizer.param_groups) for stage in stages]
    return [sum(counts[:number]) for number in range(len(stages))]


def _refuse_writes(
    stages: list[Stage],
    captured: list[Captured],
    tensors: list,
    parameters: list,
    targets: list,
    reading: Reading,
) -> None:
    """Refuse a loss that writes to what updates move, and views that would go stale inside."""
    moving = {reading.index(t): name for some in parameters for t, _, name in some}
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
