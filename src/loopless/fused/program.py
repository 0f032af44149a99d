"""The compiled program: K updates in one scan, with losses, clipping, optimizers and followers.

Everything that changes from update to update is in the carry: the state, and for each loss how many
of its updates have been taken. The state is held in segments, flat vectors of several cells, so
that an optimizer moves all parameters of a group by one operation.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from loopless.fused import early, optimizers
from loopless.fused.capture import Captured
from loopless.fused.layout import Layout, concatenate, cut, join
from loopless.fused.lowering import lower
from loopless.fused.optimizers import Settings

HALVES = {np.dtype(np.float16), np.dtype(jnp.bfloat16)}


@dataclass(frozen=True)
class Mover:
    """Parameters that an optimizer moves by the same numbers."""

    gradients: list[int]  # which of the part's gradients are theirs
    weights: list[int]  # segments
    moments: list[int]  # one segment for each moment
    form: Settings
    group: int  # column of the rates
    table: int  # first column of the numbers


@dataclass(frozen=True)
class Part:
    """One loss in a program."""

    captured: Captured
    arguments: list[int | None]  # the cell of each tensor that the loss reads; None if it does not
    movers: list[Mover]
    written: list[int]  # segments that the loss writes to
    max_gradient_norm: float | None
    every: int
    due: int  # column of the numbers that says whether it is this part's turn


@dataclass(frozen=True)
class Follower:
    """Cells that move towards others, each a segment of its own."""

    moves: list[tuple[int, int]]  # segment of the target, cell of the source
    copies: list[tuple[int, int]]
    tau: float
    every: int
    due: int


@dataclass(frozen=True)
class Recipe:
    """All that shapes a program, but for its arguments.

    The cells are: state, inputs, the numbers [K, n] and the small ones among the batch's leaves,
    further leaves and indices.
    """

    layout: Layout
    segments: list[list[int]]  # cells of the state, in order
    inputs: int
    packed: list[bool]  # which leaves are cells; the others are arguments of their own
    batch: int  # leaves of the batch; further leaves follow
    parts: list[Part]
    followers: list[Follower]
    skip: bool
    gathered: bool  # whether batches are rows of one rollout, whose indices are the last leaf
    updates: int | None  # K, or None for a single update without the axis

    @property
    def state(self) -> int:
        """How many cells are state."""
        return sum(map(len, self.segments))

    def cells(self, segments: Sequence[Any]) -> list:
        """Return the arrays of the state's cells."""
        arrays = []
        for cells, vector in zip(self.segments, segments, strict=True):
            arrays += cut(vector, [self.layout.shapes[cell] for cell in cells])
        return arrays


def build(recipe: Recipe) -> tuple[Callable, list[Layout]]:
    """Return the program, and a list that holds the layout of its results once it is traced.

    It takes vectors of all cells and the leaves that are no cells. Its results are the state, and
    for each part the values [K], whether each update was finite [K], and extras.
    """
    layouts: list[Layout] = []

    def program(vectors: list, large: list) -> list:
        cells, rest = recipe.layout.split(vectors), iter(large)
        state = [concatenate([cells[cell] for cell in some]) for some in recipe.segments]
        inputs, (numbers, *small) = _cut(cells[recipe.state :], recipe.inputs)
        packed = iter(small)
        leaves = [next(packed) if is_packed else next(rest) for is_packed in recipe.packed]
        batch, others = _cut(leaves, recipe.batch)
        indices = others.pop() if recipe.gathered else None
        seed = numbers[0, -1].astype(jnp.int64)
        key = jax.random.key(seed)

        def update(carry: tuple, x: tuple) -> tuple:
            k, here, row, known = x
            state, counts = list(carry[0]), list(carry[1])
            drawn = here if indices is None else [leaf[here[0]] for leaf in batch]
            results = []
            for number, part in enumerate(recipe.parts):
                own = None
                if part.captured.random:
                    own = jax.random.fold_in(jax.random.fold_in(key, k), number)

                seen = known[number]

                def take(
                    state: list, count: Any, part: Part = part, own: Any = own, seen: Any = seen
                ) -> tuple:
                    table = lax.dynamic_index_in_dim(numbers, count, keepdims=False)
                    leaves = [*drawn, *others]
                    arguments = state, inputs, count, table, row, leaves, own, seen
                    return _take(recipe, part, *arguments)

                if part.every == 1:
                    state, counts[number], result = take(state, counts[number])
                else:
                    due = row[part.due] != 0
                    state, counts[number], result = _maybe(due, take, state, counts[number])
                results.append(result)
            for follower in recipe.followers:
                due = None if follower.every == 1 else row[follower.due] != 0
                state = _follow(recipe, follower, state, inputs, due)
            return (state, counts), results

        carry = state, [jnp.zeros((), jnp.int32) for _ in recipe.parts]
        here = batch if indices is None else [indices]
        if recipe.updates is None:
            here = [leaf[0] for leaf in here] if recipe.gathered else here
            carry, results = update(carry, (0, here, numbers[0], [{} for _ in recipe.parts]))
        else:
            known = [_foresee(recipe, part, inputs, leaves, indices) for part in recipe.parts]
            xs = jnp.arange(recipe.updates), here, numbers, known
            carry, results = lax.scan(update, carry, xs)
        cells = recipe.cells(carry[0])
        layouts[:] = [join([*cells, *jax.tree.leaves(results)])[0]]
        # The same vectors, put together from segments: fewer pieces.
        return join([*carry[0], *jax.tree.leaves(results)])[1]

    return program, layouts


def _take(
    recipe: Recipe,
    part: Part,
    state: list,
    inputs: list,
    count: Any,
    table: Any,
    rates: Any,
    leaves: list,
    key: Any,
    known: dict[str, Any],
) -> tuple:
    """Return the state, the count and the results after one update of one part."""
    tensors = _tensors(part, [*recipe.cells(state), *inputs])
    keyword = {"key": key} if part.captured.random else {}
    value, *outputs = part.captured.function(*tensors, *leaves, **keyword, known=known)
    extras, rest = _cut(outputs, part.captured.extra_tensors)
    gradients, writes = _cut(rest, len(part.captured.reached))
    vectors = [_wide(concatenate([gradients[n] for n in m.gradients])) for m in part.movers]
    squares = [jnp.sum(vector * vector) for vector in vectors]
    total = sum(squares[1:], start=squares[0])
    finite = jnp.isfinite(total) & jnp.all(jnp.isfinite(value))
    if part.max_gradient_norm is not None:
        factor = jnp.minimum(part.max_gradient_norm / (jnp.sqrt(total) + 1e-6), 1.0)
        vectors = [vector * factor.astype(vector.dtype) for vector in vectors]
    new = dict(zip(part.written, (w.reshape(-1) for w in writes), strict=True))
    for mover, vector in zip(part.movers, vectors, strict=True):
        new |= _move(mover, state, vector, table, rates)
    state = list(state)
    for segment, array in new.items():
        array = array.astype(state[segment].dtype)
        state[segment] = jnp.where(finite, array, state[segment]) if recipe.skip else array
    taken = finite.astype(jnp.int32) if recipe.skip else 1
    return state, count + taken, (value, finite.astype(value.dtype), extras)


def _tensors(part: Part, cells: list) -> list:
    """Return what a loss reads; a number stands for what it does not."""
    nothing = np.zeros((), np.float32)
    return [nothing if cell is None else cells[cell] for cell in part.arguments]


def _foresee(
    recipe: Recipe, part: Part, inputs: list, leaves: list, indices: Any
) -> dict[str, Any]:
    """Return what the updates do not change of a loss, such as a target network's outputs [K, …].

    Many small products become one that is large.
    """
    assert recipe.updates is not None
    if part.every > 1:
        return {}
    moving = {place for place, cell in enumerate(part.arguments) if (cell or 0) < recipe.state}
    count = len(part.arguments)
    graph = part.captured.graph
    nodes = early.find(graph, moving, range(count, count + recipe.batch))
    size = early.chunk(graph, nodes, recipe.updates)
    if size < 2:
        return {}
    function = lower(graph, only=nodes)
    batch, others = _cut(leaves, recipe.batch)
    if indices is not None:
        others = others[:-1]

    def compute(here: list) -> list:
        drawn = here if indices is None else [leaf[here[0]] for leaf in batch]
        return function(*tensors, *drawn, *others)

    tensors = _tensors(part, [*[np.zeros((), np.float32)] * recipe.state, *inputs])
    here = batch if indices is None else [indices]
    if size == recipe.updates:
        arrays = jax.vmap(compute)(here)
    else:
        arrays = lax.map(compute, here, batch_size=size)
    return {node.name: array for node, array in zip(nodes, arrays, strict=True)}


def _move(mover: Mover, state: list, gradient: Any, table: Any, rates: Any) -> dict[int, Any]:
    """Return the segments of a mover's parameters and moments after an update."""
    form, weights = mover.form, [state[segment] for segment in mover.weights]
    numbers = optimizers.with_rate(form, table[mover.table :], rates[mover.group])
    numbers = [number.astype(gradient.dtype) for number in numbers]
    moments = [_wide(state[segment]) for segment in mover.moments]
    weight = _wide(concatenate(weights))
    weight, moments = optimizers.move(form, weight, gradient, moments, numbers, jnp)
    pieces = cut(weight, [w.shape for w in weights])
    segments = [*mover.weights, *mover.moments]
    return dict(zip(segments, [*pieces, *moments], strict=True))


def _wide(array: Any) -> Any:
    """Return an array of a half type in single precision, in which PyTorch computes too."""
    return array.astype(jnp.float32) if array.dtype in HALVES else array


def _cut(values: list, count: int) -> tuple[list, list]:
    return values[:count], values[count:]


def _maybe(run: Any, take: Callable, state: list, count: Any) -> tuple:
    """Take an update if it is this part's turn; else its results are zeros, which nobody reads."""
    shapes = jax.eval_shape(take, state, count)[2]
    value, _, extras = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shapes)
    skipped = value, jnp.ones(value.shape, value.dtype), extras
    return lax.cond(run, take, lambda state, count: (state, count, skipped), state, count)


def _follow(recipe: Recipe, follower: Follower, state: list, inputs: list, run: Any) -> list:
    """Return the state after a follower has moved, if `run` is true or None."""

    def move(state: list) -> list:
        cells, state = [*recipe.cells(state), *inputs], list(state)
        for target, source in follower.moves:
            old, new = state[target], cells[source].reshape(-1)
            moved = (1 - follower.tau) * _wide(old) + follower.tau * _wide(new)
            state[target] = moved.astype(old.dtype)
        for target, source in follower.copies:
            state[target] = cells[source].reshape(-1).astype(state[target].dtype)
        return state

    return move(state) if run is None else lax.cond(run, move, list, state)
