"""Arrays [steps, envs, ...] with one cursor for each env: columns that may differ in length.

They know where rows are, not what rows mean: `rollout` and `ends` do. Imports `casts`, `fields`,
`memory` and `refusals`. Tests: `tests/replay/test_rollout_views.py`, and against lists of rows
`tests/replay/test_rollout_model.py`.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from loopless.refusals import list_first
from loopless.replay.casts import convert_all
from loopless.replay.fields import Field, unflatten
from loopless.replay.storage import size as memory


class Columns:
    """The arrays of all `fields`, allocated together. `owner` is whom errors speak of."""

    def __init__(
        self, owner: str, steps: int, envs: int, fields: Mapping[str, Field], store
    ) -> None:
        self.owner, self.steps, self.envs = owner, steps, envs
        self.fields, self.store = fields, store
        self.extent = f"{steps:,} steps × {envs:,} envs"
        advice = "Use fewer steps or envs, or smaller dtypes."
        self.nbytes = memory.bytes_that_fit(owner, self.extent, steps * envs, fields, store, advice)
        self.data = {
            name: store.zeros((steps, envs, *field.shape), field.dtype)
            for name, field in fields.items()
        }
        self.lengths = np.zeros(envs, np.int64)
        self.stale = np.zeros(envs, np.int64)  # rows below it may hold an earlier rollout's data
        self.changes = 0

    @property
    def rows(self) -> int:
        """The length of the longest column."""
        return int(self.lengths.max())

    def view(self, name: str) -> Any:
        """A field as far as any env has rows, 0 below the cursors; a nested one is a dict."""
        self.scrub()
        if name in self.data:
            return self.data[name][: self.rows]
        inner = {
            path.removeprefix(f"{name}/"): data[: self.rows]
            for path, data in self.data.items()
            if path.startswith(f"{name}/")
        }
        if not inner:
            raise KeyError(f"{self.owner} has no {name!r}; it has {', '.join(self.data)}.")
        return unflatten(inner)

    def scrub(self) -> None:
        """Zero what an earlier, longer rollout left below the cursors.

        Done when something is read, not when it is added: a step costs nothing, and a buffer
        that is filled again needs no scrubbing at all.
        """
        if (self.stale > self.lengths).any():
            rows = np.arange(self.steps)[:, None]
            left = self.store.array((rows >= self.lengths) & (rows < self.stale))
            for data in self.data.values():
                data[left] = 0
        self.stale[:] = 0

    def choose(self, where: str, env, envs=None) -> tuple[Any, tuple[int, ...]]:
        """An index over envs, and the leading shape of arrays with an entry for each."""
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
            wanted = ("env is one index", "envs are distinct indices [k]")[axes]
            raise ValueError(
                f"{where}: {wanted}, from 0 to {self.envs - 1}; received {received!r}."
            )
        return (chosen.astype(np.int64), chosen.shape) if axes else (int(chosen), ())

    def cells(self, steps: np.ndarray, chosen) -> Any:
        """The index of row `steps[i]` of env `chosen[i]`: a plain one where that will do."""
        if isinstance(chosen, int):
            return int(steps), chosen
        if isinstance(chosen, slice):
            if (steps == steps[0]).all():
                return int(steps[0])
            chosen = np.arange(self.envs)
        return self.store.array(steps.copy()), self.store.array(chosen)

    def append(self, where: str, chosen, arrays: Mapping[str, Any]) -> None:
        """Write one row of checked `arrays` to each of the `chosen` envs."""
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

    def convert(self, where: str, given, leading, problems=(), note="") -> dict[str, Any]:
        """`given` as arrays [*leading, ...] that can be written into the columns of those names."""
        return convert_all(
            where, given, self.fields, leading, self.store, problems=problems, note=note
        )

    def forget(self, chosen) -> None:
        """Rewind the cursors of the `chosen` envs."""
        self.stale[chosen] = np.maximum(self.stale[chosen], self.lengths[chosen])
        self.lengths[chosen] = 0

    def replace(self, lengths: np.ndarray, arrays: Mapping[str, Any]) -> None:
        """Take over columns of other `lengths`, from checked `arrays` [longest, envs, ...]."""
        rows = int(lengths.max())
        for name, array in arrays.items():
            self.data[name][:rows] = array
        self.stale = np.maximum(np.maximum(self.stale, self.lengths), rows)
        self.lengths = lengths

    def gather(self, data, axis: int, batches, changes: int) -> Iterator[dict[str, Any]]:
        """Each of `batches`, indices along `axis`, of every array of `data`.

        An error once the columns have changed more than `changes` times.
        """
        self.scrub()
        for batch in batches:
            if changes != self.changes:
                raise RuntimeError(
                    f"{self.owner}: rows were added, cleared or estimated anew while batches were "
                    f"drawn. Ask for new batches after that."
                )
            indices = self.store.array(batch)
            yield unflatten(
                {name: self.store.take(array, indices, axis) for name, array in data.items()}
            )
