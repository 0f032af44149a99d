"""The episodic buffer: pairs of a state and a later one of the same segment, by an exact law.

This is what a caller sees. Loop twin: `reference.episodic`. Device twin: `device.episodic`.
"""

import os
from collections.abc import Mapping
from operator import index
from typing import Any, Literal, TypedDict, Unpack

import numpy as np

from loopless.refusals import check_choice, check_count, refuse
from loopless.replay.casts import NUMPY
from loopless.replay.fields import declaration, flatten, parse_fields, top_name, unflatten
from loopless.replay.host.episodic import state as saved
from loopless.replay.host.episodic.arena import Arena
from loopless.replay.host.episodic.draws import EpisodicDraws
from loopless.replay.host.episodic.episodes import (
    CONVENTIONS,
    PlainRows,
    read_padded,
    read_row,
    read_rows,
    read_weights,
)
from loopless.replay.locks import give_lock, locked
from loopless.replay.storage.file import UNCHANGED, Persistent
from loopless.replay.storage.memory import choose_storage, readable_bytes

LAWS = ("episode", "transition")
RESERVED = ("next_obs", "goal", "gap", "indices", "terminals", "valid")


class DrawOptions(TypedDict, total=False):
    """The options of `sample_goals`, which are those of `sample`."""

    max_horizon: int | None
    batches: int | None
    episodes: int | None
    out: Mapping[str, Any] | None
    library: str


class EpisodicReplayBuffer(Persistent):
    """Rows of unequal length, `capacity` steps in all; the oldest rows make room for new ones.

    `fields` declares what each step holds, "obs" included: {"obs": ((2,), np.float32), ...}. A row
    is what one `add_episode` brings. It may hold several segments, and `terminals` says how their
    ends are marked:

        terminals="double"    the acting state and the final observation are both marked
        terminals="single"    the last observation of a segment is marked
        terminals="none"      a row is one segment; marks are ignored

    The end of a row always ends a segment. A start is a step with a later one in its segment, and
    `law` says how starts are drawn:

        law="episode"         a row, then one of its starts, each uniformly
        law="transition"      one of all starts, uniformly

        buffer.add_episode(obs=..., terminals=...)
        batch = buffer.sample(256, discount=0.9)   # obs, next_obs, gap, indices, other fields

    With n steps from a start to its segment's end, P(gap) = (1−γ) γ^(gap−1) / (1−γⁿ), gap 1 … n.
    `set_row_weights` and `set_step_weights` make some rows or starts likelier than others.
    Beside the data the index takes 8 bytes a step, and 40 to 80 a row.

    With `storage="memmap"` and a new folder `path`, the data are in files there, and the index is
    in memory. `flush` makes both permanent, `close` flushes, and `EpisodicReplayBuffer.open(path)`
    goes on from the last flush, also after a crash. One process at a time may write.
    """

    def __init__(
        self,
        capacity: int,
        fields: Mapping[str, Any],
        *,
        terminals: Literal["double", "single", "none"] = "double",
        law: Literal["episode", "transition"] = "episode",
        seed: int = 0,
        storage: Literal["memory", "memmap"] = "memory",
        path: str | os.PathLike | None = None,
    ) -> None:
        where = "EpisodicReplayBuffer"
        problems = check_count("capacity", capacity, 1) + check_count("seed", seed, 0)
        problems += check_choice("terminals", terminals, CONVENTIONS)
        problems += check_choice("law", law, LAWS)
        if not problems and capacity >= 2**31:
            problems.append(f"capacity must be below 2³¹ steps; received {capacity:,}")
        parsed, of_fields = parse_fields(where, fields, NUMPY, RESERVED)
        if not any(top_name(name) == "obs" for name in parsed):
            of_fields.append('fields has no "obs"')
        refuse(where, problems, of_fields)
        self.terminals, self.law = terminals, law
        self._storage = choose_storage(where, storage, path)
        self._arena = Arena(
            where, index(capacity), parsed, seed, by_row=law == "episode", storage=self._storage
        )
        self._plain = PlainRows(parsed, terminals, index(capacity))
        self._draws = EpisodicDraws(self._arena)
        give_lock(self)

    @classmethod
    def from_padded(
        cls,
        obs,
        terminals=None,
        lengths=None,
        *,
        valid=None,
        convention: Literal["double", "single", "none"] = "double",
        capacity: int | None = None,
        law: Literal["episode", "transition"] = "episode",
        seed: int = 0,
        **fields: Any,
    ) -> "EpisodicReplayBuffer":
        """Return a buffer with the rows of arrays [episodes, steps, ...], each padded at its end.

        `lengths` [episodes] says how many steps of each row count, by default all; rows of length 0
        are skipped. Where `valid` [episodes, steps] is false a step is never drawn, and cuts its
        segment in two; without `lengths` a row ends at its last valid step. `convention` is the
        constructor's `terminals`. Shapes and dtypes are those of the arrays. The capacity is what
        the rows need, unless a larger one is passed.
        """
        where = "EpisodicReplayBuffer.from_padded"
        rows = read_padded(
            where, flatten(where, {"obs": obs, **fields}), terminals, lengths, valid, convention
        )
        total = len(rows.horizons)
        capacity = total if capacity is None else capacity
        if not check_count("capacity", capacity, 1) and capacity < total:
            refuse(where, [f"the rows have {total:,} steps, more than capacity={capacity:,}"])
        declared = {name: (array.shape[1:], array.dtype) for name, array in rows.arrays.items()}
        buffer = cls(capacity, unflatten(declared), terminals=convention, law=law, seed=seed)
        buffer._arena.write_all(rows)
        return buffer

    @property
    def capacity(self) -> int:
        """Return how many steps there is room for."""
        return self._arena.capacity

    @property
    def rows(self) -> int:
        """Return how many rows are stored."""
        return self._arena.queue.rows

    @property
    def starts(self) -> int:
        """Return how many steps can be drawn as starts."""
        return self._arena.queue.starts

    @property
    def lengths(self) -> np.ndarray:
        """Return how many steps each row has, oldest first."""
        return self._arena.queue.lengths

    @property
    def offsets(self) -> np.ndarray:
        """Return the flat index of each row's first step, oldest first."""
        return self._arena.queue.offsets

    @property
    def nbytes(self) -> int:
        """Return the bytes of data and index together."""
        return self._arena.nbytes

    def __len__(self) -> int:
        return self._arena.queue.steps

    def __getitem__(self, name: str) -> np.ndarray:
        """Return a read-only view of a field, [capacity, ...]; flat indices are along axis 0."""
        views = self._arena.rows.views
        if name not in views:
            raise KeyError(f"EpisodicReplayBuffer has no {name!r}; it has {', '.join(views)}.")
        view = views[name].view()
        view.flags.writeable = False
        return view

    def __repr__(self) -> str:
        fields = ", ".join(f"{name} {field}" for name, field in self._arena.fields.items())
        return (
            f"EpisodicReplayBuffer({self.capacity:,} steps, {readable_bytes(self.nbytes)}"
            f"{self._storage.place}: {fields}; {len(self):,} steps in {self.rows:,} rows, "
            f"{self.starts:,} starts)"
        )

    def add_episode(self, *, terminals=None, valid=None, **step: Any) -> None:
        """Add one row, [steps, ...] of each field; on an error nothing is added.

        A step is marked where `terminals`, [steps] or [steps, 1] booleans or numbers, is not 0.
        Where `valid` [steps] is false the step is never drawn, and cuts its segment in two.
        """
        arena = self._arena
        row = self._plain.read(step, terminals) if valid is None else None
        if row is None:
            where = "EpisodicReplayBuffer.add_episode"
            values, capacity = flatten(where, step), arena.capacity
            row = read_row(where, values, terminals, valid, arena.fields, self.terminals, capacity)
        lock = self._lock
        lock.acquire()  # half the cost of a `with`
        try:
            arena.write(row)
        finally:
            lock.release()

    def add_episodes(self, *, lengths, terminals=None, valid=None, **steps: Any) -> None:
        """Add many rows, laid end to end in arrays [steps, ...]; on an error nothing is added.

        `lengths` [episodes] says how many steps each row has. The buffer is then as after one
        `add_episode` for each row, in this order, and draws the same; `terminals` and `valid` mean
        the same too.
        """
        where, arena = "EpisodicReplayBuffer.add_episodes", self._arena
        values, capacity = flatten(where, steps), arena.capacity
        options = arena.fields, self.terminals, capacity
        rows = read_rows(where, values, lengths, terminals, valid, *options)
        with self._lock:
            arena.write_all(rows)

    def sample(
        self,
        batch_size: int,
        *,
        discount: float,
        max_horizon: int | None = None,
        batches: int | None = None,
        episodes: int | None = None,
        out: Mapping[str, Any] | None = None,
        library: str = "numpy",
    ) -> Any:
        """Return states "obs", and "next_obs" that come "gap" steps later, by the buffer's law.

        Arrays are [batch_size, ...], or [batches, batch_size, ...] in one call. "indices" are
        flat indices of the starts, at which the other fields are read. discount=0 gives the next
        step, discount=1 every later step of the segment with equal probability. `max_horizon` caps
        n. With `episodes`, that many rows are drawn and batch_size / episodes starts in each, row
        by row. With `out`, a dict like the result, its arrays are filled instead. `library` is
        "numpy", "torch" (sharing memory) or "jax".
        """
        lock = self._lock
        lock.acquire()  # half the cost of a `with`
        try:
            return self._draws.draw(
                "EpisodicReplayBuffer.sample", "next_obs", batch_size, discount,
                max_horizon=max_horizon, batches=batches, episodes=episodes, out=out,
                library=library,
            )  # fmt: skip
        finally:
            lock.release()

    def sample_goals(
        self, batch_size: int, *, discount: float, **options: Unpack[DrawOptions]
    ) -> Any:
        """Return steps with a "goal" in hindsight: a later "obs" of the same segment.

        The draws and the options are those of `sample`; "next_obs" is called "goal".
        """
        where = "EpisodicReplayBuffer.sample_goals"
        lock = self._lock
        lock.acquire()  # half the cost of a `with`
        try:
            return self._draws.draw(where, "goal", batch_size, discount, **options)
        finally:
            lock.release()

    def sample_starts(
        self,
        batch_size: int,
        *,
        batches: int | None = None,
        episodes: int | None = None,
        out: Mapping[str, Any] | None = None,
        library: str = "numpy",
    ) -> Any:
        """Return the fields at starts, and "indices": what `sample` draws, without later states."""
        lock = self._lock
        lock.acquire()  # half the cost of a `with`
        try:
            return self._draws.draw(
                "EpisodicReplayBuffer.sample_starts", None, batch_size, 0,
                batches=batches, episodes=episodes, out=out, library=library,
            )  # fmt: skip
        finally:
            lock.release()

    @locked
    def rows_of(self, indices) -> np.ndarray:
        """Return which row each flat index is in (0 is the oldest); raise if no step is there."""
        return self._arena.queue.rows_of("EpisodicReplayBuffer.rows_of", np.asarray(indices))

    @locked
    def set_row_weights(self, weights) -> None:
        """Draw rows in proportion to `weights` [rows], oldest first; None makes all equal.

        With law="transition" they are weights of a row's starts, not of the row. Rows added later
        get weight 1.
        """
        where = "EpisodicReplayBuffer.set_row_weights"
        array = None if weights is None else read_weights(where, weights, self.rows)
        if array is not None:
            refuse(where, self._arena.check_weights(rows=array), note=UNCHANGED)
        self._arena.weigh_rows(array)

    @locked
    def set_step_weights(self, weights) -> None:
        """Draw starts in proportion to `weights` [len(buffer)], oldest first; None makes all equal.

        Weights of steps that are no starts do not matter. With law="episode" a row is drawn as
        before, then one of its starts by weight; a row whose starts all have weight 0 is left out.
        With "transition" all starts are drawn by weight, times that of their row if rows are
        weighted. Steps added later get weight 1. While in use, weights take 24 bytes a step.
        """
        where = "EpisodicReplayBuffer.set_step_weights"
        array = None if weights is None else read_weights(where, weights, len(self))
        if array is not None:
            refuse(where, self._arena.check_weights(steps=array), note=UNCHANGED)
        self._arena.weigh_steps(array)

    @locked
    def state(self) -> dict[str, Any]:
        """Return copies of all that `restore` needs to go on from here: arrays and ints."""
        views = self._arena.rows.views
        data = {f"data/{name}": self._arena.in_order(view) for name, view in views.items()}
        return data | self._unmapped()

    @locked
    def restore(self, state: Mapping[str, Any]) -> None:
        """Take over a `state()` of the same declaration; on an error nothing changes."""
        saved.restore(self._arena, "EpisodicReplayBuffer.restore", state, self._declared())

    def _unmapped(self) -> dict[str, Any]:
        return saved.numbers_of(self._arena) | self._declared()

    def _used(self) -> int:
        older, newer = self._arena.queue.extents()
        return max(older.stop, newer.stop)

    def _reopen(self, where: str, state: dict[str, Any]) -> None:
        saved.reopen(self._arena, where, state, self._declared())

    def _forget(self) -> None:
        self._arena.forget()

    def _settings(self) -> dict[str, Any]:
        options = {"terminals": self.terminals, "law": self.law}
        return {"capacity": self.capacity, "fields": declaration(self._arena.fields), **options}

    def _declared(self) -> dict[str, int]:
        """Return the options as numbers, which a state must share."""
        return {"law": LAWS.index(self.law), "terminals": CONVENTIONS.index(self.terminals)}
