"""The compiled program: K updates in one scan, each with its losses, clipping, optimizers and followers.

Everything that changes from update to update is in `carry`: the arrays of the state and, for each
loss, how many of its updates have been taken. Everything else stands before the scan.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from loopless.fused import optimizers
from loopless.fused.capture import Captured
from loopless.fused.optimizers import Settings

HALVES = {np.dtype(np.float16), np.dtype(jnp.bfloat16)}


@dataclass(frozen=True)
class Trained:
    """A parameter that a loss moves: its cell, its moments' cells, and where its numbers stand."""

    cell: int
    moments: tuple[int, ...]
    form: Settings
    group: int  # column of the rates
    table: int  # first column of the numbers


@dataclass(frozen=True)
class Part:
    """One loss in a program."""

    captured: Captured
    arguments: list[int | None]  # the cell of each tensor that the loss reads; None if it does not
    trained: list[Trained]  # in the order of the gradients
    written: list[int]  # cells that the loss writes to
    max_gradient_norm: float | None
    every: int


@dataclass(frozen=True)
class Follower:
    """Cells that move towards others."""

    moves: list[tuple[int, int]]  # target, source
    copies: list[tuple[int, int]]
    tau: float
    every: int


@dataclass(frozen=True)
class Layout:
    """Arrays, in cells, as one flat vector for each dtype; the first `state` of them are state."""

    shapes: list[tuple[int, ...]]
    dtypes: list[np.dtype]
    state: int

    def kinds(self, state: bool) -> list[np.dtype]:
        """Return the dtypes that occur, in the order of the vectors."""
        return sorted(set(self.dtypes[: self.state] if state else self.dtypes), key=str)

    def cells(self, kind: np.dtype, state: bool) -> list[int]:
        """Return the cells of one dtype."""
        count = self.state if state else len(self.shapes)
        return [cell for cell in range(count) if self.dtypes[cell] == kind]

    def split(self, vectors: Sequence[Any]) -> list:
        """Return the arrays of all cells."""
        arrays: list = [None] * len(self.shapes)
        for kind, vector in zip(self.kinds(False), vectors, strict=True):
            start = 0
            for cell in self.cells(kind, False):
                size = int(np.prod(self.shapes[cell]))
                arrays[cell] = vector[start : start + size].reshape(self.shapes[cell])
                start += size
        return arrays

    def join(self, arrays: Sequence[Any]) -> list:
        """Return the vectors of the state."""
        cells = [self.cells(kind, True) for kind in self.kinds(True)]
        return [jnp.concatenate([arrays[cell].reshape(-1) for cell in some]) for some in cells]


@dataclass(frozen=True)
class Recipe:
    """All that shapes a program, but for its arguments."""

    layout: Layout
    parts: list[Part]
    followers: list[Follower]
    skip: bool
    gathered: bool  # whether batches are rows of one rollout
    updates: int | None  # K, or None for a single update without the axis


def build(recipe: Recipe) -> Callable:
    """Return the program.

    It takes vectors of all cells, numbers [K, n], runs [K, parts + followers], the batch's leaves
    [K, …], further leaves, indices [K, B] or None, and a seed. It returns the vectors of the
    state, and for each part values [K], whether each update was finite [K], and extras.
    """

    def program(vectors, numbers, runs, leaves, others, indices, seed) -> tuple:
        cells = recipe.layout.split(vectors)
        state, inputs = cells[: recipe.layout.state], cells[recipe.layout.state :]
        key = jax.random.key(seed) if any(p.captured.random for p in recipe.parts) else None

        def update(carry: tuple, k: Any, batch: list, rates: Any, run: Any) -> tuple:
            state, counts = list(carry[0]), list(carry[1])
            if recipe.gathered:
                batch = [leaf[batch[0]] for leaf in leaves]
            results = []
            for number, part in enumerate(recipe.parts):
                step_key = None if key is None else jax.random.fold_in(jax.random.fold_in(key, k), number)

                def take(state: list, count: Any, part: Part = part, key: Any = step_key) -> tuple:
                    table = lax.dynamic_index_in_dim(numbers, count, keepdims=False)
                    arrays = [*state, *inputs]
                    return _take(recipe, part, arrays, count, table, rates, [*batch, *others], key)

                if part.every == 1:
                    state, counts[number], result = take(state, counts[number])
                else:
                    state, counts[number], result = _maybe(run[number], take, state, counts[number])
                results.append(result)
            for number, follower in enumerate(recipe.followers, len(recipe.parts)):
                due = None if follower.every == 1 else run[number]
                state = _follow(follower, state, inputs, due)
            return (state, counts), results

        counts = [jnp.zeros((), jnp.int32) for _ in recipe.parts]
        if recipe.updates is None:
            first = [indices[0]] if recipe.gathered else list(leaves)
            (state, _), results = update((state, counts), 0, first, numbers[0], None if runs is None else runs[0])
        else:

            def body(carry, x):
                k, batch, rates, run = x
                return update(carry, k, batch, rates, run)

            batch = [indices] if recipe.gathered else list(leaves)
            xs = jnp.arange(recipe.updates), batch, numbers, runs
            (state, _), results = lax.scan(body, (state, counts), xs)
        return recipe.layout.join(state), results

    return program


def _take(
    recipe: Recipe,
    part: Part,
    cells: list,
    count: Any,
    table: Any,
    rates: Any,
    leaves: list,
    key: Any,
) -> tuple:
    """Return the state, the count and the results after one update of one part."""
    nothing = np.zeros((), np.float32)
    tensors = [nothing if cell is None else cells[cell] for cell in part.arguments]
    keyword = {"key": key} if part.captured.random else {}
    value, *outputs = part.captured.function(*tensors, *leaves, **keyword)
    state = cells[: recipe.layout.state]
    extras, rest = _cut(outputs, part.captured.extra_tensors)
    gradients, writes = _cut(rest, len(part.trained))
    wide = [g.astype(jnp.float32) if g.dtype in HALVES else g for g in gradients]
    squares = sum((jnp.sum(g * g) for g in wide), start=jnp.zeros((), jnp.float32))
    finite = jnp.isfinite(squares) & jnp.all(jnp.isfinite(value))
    if part.max_gradient_norm is not None:
        norm = jnp.sqrt(squares)
        factor = jnp.minimum(part.max_gradient_norm / (norm + 1e-6), 1.0)
        wide = [g * factor.astype(g.dtype) for g in wide]
    new = dict(zip(part.written, writes, strict=True))
    for trained, gradient in zip(part.trained, wide, strict=True):
        form, compute = trained.form, gradient.dtype
        slots = (trained.cell, *trained.moments)
        weight, *moments = (state[cell].astype(compute) for cell in slots)
        numbers = optimizers.with_rate(form, table[trained.table :], rates[trained.group])
        numbers = [number.astype(compute) for number in numbers]
        weight, moments = optimizers.move(form, weight, gradient, moments, numbers, jnp)
        new |= dict(zip(slots, (weight, *moments), strict=True))
    for cell, array in new.items():
        array = array.astype(state[cell].dtype)
        state[cell] = jnp.where(finite, array, state[cell]) if recipe.skip else array
    taken = finite.astype(jnp.int32) if recipe.skip else 1
    return state, count + taken, (value, finite, extras)


def _cut(values: list, count: int) -> tuple[list, list]:
    return values[:count], values[count:]


def _maybe(run: Any, take: Callable, state: list, count: Any) -> tuple:
    """Take an update if it is this part's turn; else its results are zeros, which nobody reads."""
    shapes = jax.eval_shape(take, state, count)[2]
    zeros = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shapes)
    value, _, extras = zeros
    skipped = value, jnp.ones((), bool), extras
    return lax.cond(run, take, lambda state, count: (state, count, skipped), state, count)


def _follow(follower: Follower, state: list, inputs: list, run: Any) -> list:
    def move(state: list) -> list:
        cells, state = [*state, *inputs], list(state)
        for target, source in follower.moves:
            old = cells[target]
            moved = (1 - follower.tau) * old + follower.tau * cells[source].astype(old.dtype)
            state[target] = moved.astype(old.dtype)
        for target, source in follower.copies:
            state[target] = cells[source].astype(cells[target].dtype)
        return state

    return move(state) if run is None else lax.cond(run, move, list, state)
