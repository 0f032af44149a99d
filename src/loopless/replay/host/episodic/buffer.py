"""The episodic buffer: pairs of a state and a later one of the same segment, by an exact law.

Here stands what a caller sees. Below it, `episodic_rows` knows what may be added, `segments` where
rows end, `episodic_store` and `row_queue` where they lie, `episodic_draws` and `numba_episodic` how
to draw, `episodic_weights` how likely, and `episodic_saved` what is kept; it may import all but
other buffers. Loop twin: `reference.episodic`. Tests: `tests/replay/test_episodic_*.py`.
"""

import os
from collections.abc import Mapping
from operator import index
from typing import Any, Literal, TypedDict, Unpack

import numpy as np

from loopless.refusals import check_choice, check_count, refuse
from loopless.replay.fields import flatten, parse_fields, unflatten
from loopless.replay.host.episodic.draws import EpisodicDraws
from loopless.replay.host.episodic.rows import read_padded, read_row
from loopless.replay.host.episodic.segments import CONVENTIONS
from loopless.replay.host.episodic.state import numbers_of, reopen, restore, state_of
from loopless.replay.host.episodic.store import EpisodicStore
from loopless.replay.host.episodic.weights import read_weights
from loopless.replay.host.rollout.stores import NumPyStore
from loopless.replay.storage.kept import Kept
from loopless.replay.storage.memory import storage_of
from loopless.replay.storage.saved import UNCHANGED
from loopless.replay.storage.size import readable_bytes

LAWS = ("episode", "transition")
RESERVED = ("next_obs", "goal", "gap", "indices", "terminals", "valid")


class DrawOptions(TypedDict, total=False):
    """What `sample` may be told beside how many and how far."""

    max_horizon: int | None
    batches: int | None
    episodes: int | None
    out: Mapping[str, Any] | None
    library: str


class EpisodicReplayBuffer(Kept):
    """Rows of unequal length, `capacity` steps in all; the oldest rows make room for new ones.

    `fields` names what each step holds, "obs" among it: {"obs": ((2,), np.float32), ...}. A row
    may hold several segments, and how their ends are marked must be said:

        terminals="double"    the acting state and the final observation are both marked
        terminals="single"    the last observation of a segment is marked
        terminals="none"      a row is one segment; marks are ignored

    The end of a row always ends a segment. A start is a step with a later one in its segment:

        law="episode"         a row, then one of its starts, each uniformly
        law="transition"      one of all starts, uniformly

        buffer.add_episode(obs=..., terminals=...)
        batch = buffer.sample(256, discount=0.9)   # obs, next_obs, gap, indices, other fields

    With n steps from a start to its segment's end, P(gap) = (1−γ) γ^(gap−1) / (1−γⁿ), gap 1 … n.
    `set_row_weights` and `set_step_weights` make some rows or starts likelier than others.
    Beside the data the index takes 8 bytes a step, and 40 to 80 a row.

    With `storage="memmap"` and a new folder `path`, the data lie in files there, and the index in
    memory. `flush` makes both permanent, `close` flushes, `EpisodicReplayBuffer.open(path)` goes
    on from the last flush, also after a crash. One process at a time writes.
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
        problems += check_choice("terminals", terminals, CONVENTIONS) + check_choice(
            "law", law, LAWS
        )
        if not problems and capacity >= 2**31:
            problems.append(f"capacity is below 2³¹ steps; received {capacity:,}")
        parsed, wrong = parse_fields(where, fields, NumPyStore(), RESERVED)
        if not any(name.split("/")[0] == "obs" for name in parsed):
            wrong.append('fields has no "obs"')
        refuse(where, problems + wrong)
        self.terminals, self.law = terminals, law
        self._storage = storage_of(where, storage, path)
        self._store = EpisodicStore(
            where, index(capacity), parsed, seed, by_row=law == "episode", storage=self._storage
        )
        self._draws = EpisodicDraws(self._store)

    @classmethod
    def from_padded(
        cls,
        obs,
        terminals=None,
        lengths=None,
        *,
        convention: Literal["double", "single", "none"] = "double",
        capacity: int | None = None,
        law: Literal["episode", "transition"] = "episode",
        seed: int = 0,
        **fields: Any,
    ) -> "EpisodicReplayBuffer":
        """A buffer of the rows of arrays [episodes, steps, ...], padded at the end of each row.

        `lengths` [episodes] says how much of each row counts, all of it if left out; rows of
        length 0 are empty slots. Shapes and dtypes are those of the arrays. The capacity is what
        the rows need, unless more is asked for.
        """
        where = "EpisodicReplayBuffer.from_padded"
        rows = read_padded(
            where, flatten(where, {"obs": obs, **fields}), terminals, lengths, convention
        )
        total = len(rows.horizons)
        capacity = total if capacity is None else capacity
        if not check_count("capacity", capacity, 1) and capacity < total:
            refuse(where, [f"the rows have {total:,} steps, more than capacity={capacity:,}"])
        declared = {name: (array.shape[1:], array.dtype) for name, array in rows.arrays.items()}
        buffer = cls(capacity, unflatten(declared), terminals=convention, law=law, seed=seed)
        buffer._store.write(rows)
        return buffer

    @property
    def capacity(self) -> int:
        """How many steps there is room for."""
        return self._store.capacity

    @property
    def rows(self) -> int:
        """How many rows are stored."""
        return self._store.queue.rows

    @property
    def starts(self) -> int:
        """How many steps can be drawn as starts."""
        return self._store.queue.starts

    @property
    def lengths(self) -> np.ndarray:
        """How many steps each row has, oldest first."""
        return self._store.queue.lengths

    @property
    def offsets(self) -> np.ndarray:
        """The flat index of each row's first step, oldest first."""
        return self._store.queue.offsets

    @property
    def nbytes(self) -> int:
        """The bytes of data and index together."""
        return self._store.nbytes

    def __len__(self) -> int:
        return self._store.queue.steps

    def __getitem__(self, name: str) -> np.ndarray:
        """The storage of a field, [capacity, ...], to look flat indices up in; not to be kept."""
        views = self._store.rows.views
        if name not in views:
            raise KeyError(f"EpisodicReplayBuffer has no {name!r}; it has {', '.join(views)}.")
        view = views[name].view()
        view.flags.writeable = False
        return view

    def __repr__(self) -> str:
        fields = ", ".join(f"{name} {field}" for name, field in self._store.fields.items())
        return (
            f"EpisodicReplayBuffer({self.capacity:,} steps, {readable_bytes(self.nbytes)}"
            f"{self._storage.place}: {fields}; {len(self):,} steps in {self.rows:,} rows, "
            f"{self.starts:,} starts)"
        )

    def add_episode(self, *, terminals=None, valid=None, **step: Any) -> None:
        """Add one row, [steps, ...] of each field; on an error nothing is added.

        `terminals` [steps] or [steps, 1] are marks by truthiness: booleans, integers, floats.
        Where `valid` [steps] is false the step is never drawn, and cuts its segment in two.
        """
        where = "EpisodicReplayBuffer.add_episode"
        store = self._store
        given = flatten(where, step)
        self._store.write(
            read_row(where, given, terminals, valid, store.fields, self.terminals, store.capacity)
        )

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
        """States "obs" and later ones "next_obs", "gap" steps on, by the law of this buffer.

        Arrays are [batch_size, ...], or [batches, batch_size, ...] in one call. "indices" are
        flat indices of the starts, where the other fields are read too. discount=0 gives the next
        step, 1 any later one of the segment alike. `max_horizon` caps n. With `episodes`, that
        many rows are drawn and batch_size / episodes starts in each, row by row. With `out`, a
        dict like the result, its arrays are written instead. `library` is "numpy", "torch"
        (sharing memory) or "jax".
        """
        return self._draws.draw(
            "EpisodicReplayBuffer.sample", "next_obs", batch_size, discount,
            max_horizon=max_horizon, batches=batches, episodes=episodes, out=out, library=library,
        )  # fmt: skip

    def sample_goals(
        self, batch_size: int, *, discount: float, **options: Unpack[DrawOptions]
    ) -> Any:
        """Steps with the "goal" that hindsight gives them: a later "obs" of the same segment.

        The draws of `sample`, and its options, under the names of goal-conditioned learning.
        """
        where = "EpisodicReplayBuffer.sample_goals"
        return self._draws.draw(where, "goal", batch_size, discount, **options)

    def sample_starts(
        self,
        batch_size: int,
        *,
        batches: int | None = None,
        episodes: int | None = None,
        out: Mapping[str, Any] | None = None,
        library: str = "numpy",
    ) -> Any:
        """The fields at starts, and "indices": the draws of `sample` without successors."""
        return self._draws.draw(
            "EpisodicReplayBuffer.sample_starts", None, batch_size, 0,
            batches=batches, episodes=episodes, out=out, library=library,
        )  # fmt: skip

    def rows_of(self, indices) -> np.ndarray:
        """Which row each flat index lies in, 0 the oldest; an error where none is stored."""
        return self._store.queue.rows_of("EpisodicReplayBuffer.rows_of", np.asarray(indices))

    def set_row_weights(self, weights) -> None:
        """Draw rows in proportion to `weights` [rows], oldest first, from 0 up; None: evenly.

        With law="transition" they weigh a row's starts, not the row. Rows added later weigh 1.
        """
        where = "EpisodicReplayBuffer.set_row_weights"
        array = None if weights is None else read_weights(where, weights, self.rows)
        if array is not None:
            refuse(where, self._store.weight_problems(rows=array), note=UNCHANGED)
        self._store.weigh_rows(array)

    def set_step_weights(self, weights) -> None:
        """Draw starts in proportion to `weights` [len(buffer)], oldest first; None: evenly.

        They are from 0 up, and those of steps that are no starts do not matter. With
        law="episode" a row is drawn as before, then one of its starts by weight; a row whose
        starts all weigh 0 is left out. With "transition" all starts are drawn by weight, times
        that of their row if rows are weighted. Steps added later weigh 1. While in use, weights
        take 24 bytes a step.
        """
        where = "EpisodicReplayBuffer.set_step_weights"
        array = None if weights is None else read_weights(where, weights, len(self))
        if array is not None:
            refuse(where, self._store.weight_problems(steps=array), note=UNCHANGED)
        self._store.weigh_steps(array)

    def state(self) -> dict[str, Any]:
        """Copies of all that `restore` needs to go on as if nothing had happened: arrays, ints."""
        return state_of(self._store) | self._declared()

    def restore(self, state: Mapping[str, Any]) -> None:
        """Take over a `state()` of a buffer declared alike; on an error nothing changes."""
        restore(self._store, "EpisodicReplayBuffer.restore", state, self._declared())

    def _beside(self) -> dict[str, Any]:
        return numbers_of(self._store) | self._declared()

    def _used(self) -> int:
        older, newer = self._store.queue.extents()
        return max(older.stop, newer.stop)

    def _reopen(self, where: str, state: dict[str, Any]) -> None:
        reopen(self._store, where, state, self._declared())

    def _forget(self) -> None:
        self._store.forget()

    def _settings(self) -> dict[str, Any]:
        """What the constructor takes, but for the seed."""
        fields = {name: (field.shape, field.dtype) for name, field in self._store.fields.items()}
        named = {"terminals": self.terminals, "law": self.law}
        return {"capacity": self.capacity, "fields": unflatten(fields), **named}

    def _declared(self) -> dict[str, int]:
        return {"law": LAWS.index(self.law), "terminals": CONVENTIONS.index(self.terminals)}
