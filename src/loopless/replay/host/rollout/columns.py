"""Arrays [steps, envs, ...] with one cursor for each env, and the batches that are cut from them.

Columns may differ in length. They know where steps are stored, not what they mean: `estimates`
does.
"""

from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Any

import numpy as np

from loopless.refusals import list_first
from loopless.replay.casts import convert_all
from loopless.replay.fields import Field, unflatten
from loopless.replay.sampling import Batch, as_batch
from loopless.replay.storage.memory import check_bytes_fit


class Columns:
    """The arrays of all `fields`, allocated together. `owner` is the class that errors name."""

    def __init__(
        self,
        owner: str,
        steps: int,
        envs: int,
        fields: Mapping[str, Field],
        library,
        initial: Mapping[str, Any] | None = None,
    ) -> None:
        self.owner, self.steps, self.envs = owner, steps, envs
        self.fields, self.library = fields, library
        self.extent = f"{steps:,} steps × {envs:,} envs"
        advice = "Use fewer steps or envs, or smaller dtypes."
        self.nbytes = check_bytes_fit(owner, self.extent, steps * envs, fields, library, advice)
        self.data = {
            name: library.zeros((steps, envs, *field.shape), field.dtype)
            for name, field in fields.items()
        }
        self.initial = {} if initial is None else initial  # arrays like a field's; else it is 0
        for name, value in self.initial.items():
            self.data[name][...] = value
        self.lengths = np.zeros(envs, np.int64)
        self.stale = np.zeros(envs, np.int64)  # up to there an earlier rollout may have left data
        self.changes = 0

    @property
    def longest(self) -> int:
        """Return the length of the longest column."""
        return int(self.lengths.max())

    def view(self, name: str) -> Any:
        """Return a field, [longest column, envs, ...], its initial values past cursors."""
        self.scrub()
        if name in self.data:
            return self.data[name][: self.longest]
        inner = {
            path.removeprefix(f"{name}/"): data[: self.longest]
            for path, data in self.data.items()
            if path.startswith(f"{name}/")
        }
        if not inner:
            raise KeyError(f"{self.owner} has no {name!r}; it has {', '.join(self.data)}.")
        return unflatten(inner)

    def scrub(self) -> None:
        """Put initial values in place of what an earlier, longer rollout left past the cursors.

        This happens on reading, not on adding: a step costs nothing, and a buffer that is filled
        again needs no scrubbing at all.
        """
        if (self.stale > self.lengths).any():
            steps = np.arange(self.steps)[:, None]
            left = self.library.array((steps >= self.lengths) & (steps < self.stale))
            for name, data in self.data.items():
                data[left] = self.initial.get(name, 0)
        self.stale[:] = 0

    def choose(self, where: str, env, envs=None) -> tuple[Any, tuple[int, ...]]:
        """Return an index over envs, and the leading shape of arrays with an entry for each."""
        if env is None and envs is None:
            return slice(None), (self.envs,)
        if env is not None and envs is not None:
            raise ValueError(f"{where}: pass env or envs, not both.")
        received, axes = (env, 0) if envs is None else (envs, 1)
        chosen = np.asarray(received)
        if chosen.size == 0:
            chosen = chosen.astype(np.int64)  # NumPy takes [] for floats
        if (
            chosen.dtype.kind not in "iu"
            or chosen.ndim != axes
            or not ((chosen >= 0) & (chosen < self.envs)).all()
            or (axes and np.unique(chosen).size != chosen.size)
        ):
            wanted = ("env must be one index", "envs must be distinct indices [k]")[axes]
            raise ValueError(
                f"{where}: {wanted}, from 0 to {self.envs - 1}; received {received!r}."
            )
        return (chosen.astype(np.int64), chosen.shape) if axes else (int(chosen), ())

    def cells(self, steps: np.ndarray, chosen) -> Any:
        """Return an index for step `steps[i]` of env `chosen[i]`: plain integers if possible."""
        if isinstance(chosen, int):
            return int(steps), chosen
        if isinstance(chosen, slice):
            if (steps == steps[0]).all():
                return int(steps[0])
            chosen = np.arange(self.envs)
        return self.library.array(steps.copy()), self.library.array(chosen)

    def append(self, where: str, chosen, arrays: Mapping[str, Any]) -> None:
        """Write one step of checked `arrays` to each of the `chosen` envs."""
        lengths = self.lengths[chosen]
        if (lengths >= self.steps).any():
            full = np.atleast_1d(np.arange(self.envs)[chosen])[lengths >= self.steps]
            raise RuntimeError(
                f"{where}: the column of env {list_first(full)} is full with "
                f"{self.steps:,} steps. Nothing was added; call finish(), train, then clear()."
            )
        cells = self.cells(lengths, chosen)
        for name, array in arrays.items():
            self.data[name][cells] = array
        self.lengths[chosen] += 1

    def convert(self, where: str, values, leading, problems=(), note="") -> dict[str, Any]:
        """Return `values` as arrays [*leading, ...] that fit the columns of those names."""
        return convert_all(
            where, values, self.fields, leading, self.library, problems=problems, note=note
        )

    def forget(self, chosen) -> None:
        """Rewind the cursors of the `chosen` envs."""
        self.stale[chosen] = np.maximum(self.stale[chosen], self.lengths[chosen])
        self.lengths[chosen] = 0

    def replace(self, lengths: np.ndarray, arrays: Mapping[str, Any]) -> None:
        """Take over columns of other `lengths`, from checked `arrays` [longest, envs, ...]."""
        longest = int(lengths.max())
        for name, array in arrays.items():
            self.data[name][:longest] = array
        self.stale = np.maximum(np.maximum(self.stale, self.lengths), longest)
        self.lengths = lengths

    def gather(self, data, axis: int, batches, changes: int) -> Iterator[Batch]:
        """Yield for each of `batches`, indices along `axis`, a `Batch` of `data` there.

        Raise if the columns have changed since `changes` was read.
        """
        self.scrub()
        for batch in batches:
            if changes != self.changes:
                raise RuntimeError(
                    f"{self.owner}: steps were added, cleared or estimated anew while batches were "
                    f"drawn. Ask for new batches after that."
                )
            indices = self.library.array(batch)
            arrays = {name: self.library.take(array, indices, axis) for name, array in data.items()}
            yield as_batch(unflatten(arrays), nested=True)


class Shuffler:
    """Permutations that follow from a seed and from how many were drawn before."""

    def __init__(self, seed: int) -> None:
        self.seed, self.draws = seed, 0

    def batches(self, items, bounds, epochs: int, shuffle: bool) -> Iterator[np.ndarray]:
        """Yield `items` cut at `bounds`, in a new order for each epoch."""
        for _epoch in range(epochs):
            order = items
            if shuffle:
                order = np.random.default_rng((self.seed, self.draws)).permutation(items)
                self.draws += 1
            for first, end in pairwise(bounds):
                yield order[first:end]


def batch_bounds(where: str, total: int, size, count, drop_last: bool) -> list[int]:
    """Return where batches of `total` items begin and end: of `size` each, or `count`, or one."""
    if size is not None and count is not None:
        raise ValueError(f"{where}: pass batch_size or count, not both.")
    number = count if size is None else size
    if number is not None and (not isinstance(number, int | np.integer) or number < 1):
        raise ValueError(
            f"{where}: the size or count of batches must be at least 1; received {number!r}."
        )
    if total == 0:
        raise RuntimeError(f"{where}: there are no valid steps. Add some first.")
    if size is None:
        count = int(count or 1)
        if count > total:
            raise ValueError(f"{where}: {total} items do not make {count} batches.")
        whole = total - total % count if drop_last else total
        return (np.arange(count + 1) * whole // count).tolist()
    if drop_last and size > total:
        raise ValueError(
            f"{where}: with drop_last, {total} items make no batch of {size}. Use smaller batches."
        )
    rest = [] if drop_last or total % size == 0 else [total]
    return [*range(0, total + 1, int(size)), *rest]
