"""The episodic buffer: pairs of a state and a later one of the same segment, by an exact law.

Here stands what a caller sees. Below it, `episodic_rows` knows what may be added, `segments` where
rows end, `episodic_store` and `row_queue` where they lie, `episodic_draws` and `numba_episodic` how
to draw; it may import all but other buffers. Loop twin: `reference.episodic`. Tests:
`tests/replay/test_episodic.py`, `tests/replay/test_episodic_laws.py`.
"""

from collections.abc import Mapping
from typing import Any, Literal

import numpy as np

from loopless.replay.episodic_draws import EpisodicDraws
from loopless.replay.episodic_rows import mark_rows, read_flags, read_row
from loopless.replay.episodic_store import EpisodicStore
from loopless.replay.fields import flatten, parse_fields, unflatten
from loopless.replay.memory import readable_bytes
from loopless.replay.refusals import no_choice, no_count, refuse
from loopless.replay.segments import CONVENTIONS
from loopless.replay.stores import NumPyStore

LAWS = ("episode", "transition")
RESERVED = ("next_obs", "goal", "gap", "indices", "terminals", "valid")


class EpisodicReplayBuffer:
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
    Beside the data the index takes 8 bytes a step, and 32 to 64 a row.
    """

    def __init__(
        self,
        capacity: int,
        fields: Mapping[str, Any],
        *,
        terminals: Literal["double", "single", "none"] = "double",
        law: Literal["episode", "transition"] = "episode",
        seed: int = 0,
    ) -> None:
        where = "EpisodicReplayBuffer"
        problems = no_count("capacity", capacity, 1) + no_count("seed", seed, 0)
        problems += no_choice("terminals", terminals, CONVENTIONS) + no_choice("law", law, LAWS)
        if not problems and capacity >= 2**31:
            problems.append(f"capacity is below 2³¹ steps; received {capacity:,}")
        if not problems and seed >= 2**64:
            problems.append(f"seed is below 2⁶⁴; received {seed}")
        parsed, wrong = parse_fields(where, fields, NumPyStore(), RESERVED)
        if not any(name.split("/")[0] == "obs" for name in parsed):
            wrong.append('fields has no "obs"')
        refuse(where, problems + wrong)
        self.terminals, self.law = terminals, law
        self._store = EpisodicStore(where, int(capacity), parsed, int(seed))
        self._draws = EpisodicDraws(self._store, by_row=law == "episode")

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
        given = {name: np.asarray(a) for name, a in flatten(where, {"obs": obs, **fields}).items()}
        like: Any = next(iter(given.values()), np.zeros(0))
        episodes, steps = leading = like.shape[:2] if like.ndim >= 2 else (0, 0)
        problems = [
            f"{name} has shape {array.shape}, and arrays are [episodes, steps, ...], obs "
            f"{like.shape}"
            for name, array in given.items()
            if array.shape[:2] != leading
        ]
        refuse(where, problems)
        marks = read_flags("terminals", terminals, leading, problems)
        if terminals is None and convention != "none":
            problems.append(f'terminals is missing, which "{convention}" needs')
        lengths = np.full(episodes, steps) if lengths is None else np.asarray(lengths)
        if lengths.shape != (episodes,) or lengths.dtype.kind not in "iu":
            problems.append(f"lengths is no array ({episodes},) of integers")
        elif ((lengths < 0) | (lengths > steps)).any():
            problems.append(f"lengths are from 0 to {steps}")
        refuse(where, problems)
        inside = np.arange(steps) < lengths[:, None]
        lengths = lengths[lengths > 0].astype(np.int64)
        arrays = {name: array[inside] for name, array in given.items()}
        flat = None if marks is None else marks[inside]
        rows = mark_rows(where, arrays, lengths, flat, None, convention)
        total = int(lengths.sum())
        capacity = total if capacity is None else capacity
        if not no_count("capacity", capacity, 1) and capacity < total:
            refuse(where, [f"the rows have {total:,} steps, more than capacity={capacity:,}"])
        declared = {name: (array.shape[1:], array.dtype) for name, array in arrays.items()}
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
        data = self._store.data
        if name not in data:
            raise KeyError(f"EpisodicReplayBuffer has no {name!r}; it has {', '.join(data)}.")
        view = data[name].view()
        view.flags.writeable = False
        return view

    def __repr__(self) -> str:
        fields = ", ".join(f"{name} {field}" for name, field in self._store.fields.items())
        return (
            f"EpisodicReplayBuffer({self.capacity:,} steps, {readable_bytes(self.nbytes)}: "
            f"{fields}; {len(self):,} steps in {self.rows:,} rows, {self.starts:,} starts)"
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
    ) -> dict[str, Any]:
        """States "obs" and later ones "next_obs", "gap" steps on, by the law of this buffer.

        Arrays are [batch_size, ...], or [batches, batch_size, ...] in one call. "indices" are
        flat indices of the starts, where the other fields are read too. discount=0 gives the next
        step, 1 any later one of the segment alike. `max_horizon` caps n. With `episodes`, that
        many rows are drawn and batch_size / episodes starts in each, row by row. `out` maps every
        name to an array to write into.
        """
        return self._draws.draw(
            "EpisodicReplayBuffer.sample", "next_obs", batch_size, discount, max_horizon, batches,
            episodes, out,
        )  # fmt: skip

    def sample_goals(
        self,
        batch_size: int,
        *,
        discount: float,
        max_horizon: int | None = None,
        batches: int | None = None,
        episodes: int | None = None,
        out: Mapping[str, Any] | None = None,
    ) -> dict[str, Any]:
        """Steps with the "goal" that hindsight gives them: a later "obs" of the same segment.

        The draws of `sample`, under the names of goal-conditioned learning.
        """
        return self._draws.draw(
            "EpisodicReplayBuffer.sample_goals", "goal", batch_size, discount, max_horizon, batches,
            episodes, out,
        )  # fmt: skip

    def sample_starts(
        self,
        batch_size: int,
        *,
        batches: int | None = None,
        episodes: int | None = None,
        out: Mapping[str, Any] | None = None,
    ) -> dict[str, Any]:
        """The fields at starts, and "indices": the draws of `sample` without successors."""
        where = "EpisodicReplayBuffer.sample_starts"
        return self._draws.draw(where, None, batch_size, 0, None, batches, episodes, out)

    def rows_of(self, indices) -> np.ndarray:
        """Which row each flat index lies in, 0 the oldest; an error where none is stored."""
        return self._store.queue.rows_of("EpisodicReplayBuffer.rows_of", np.asarray(indices))

    def set_row_weights(self, weights) -> None:
        """Draw rows in proportion to `weights` [rows], oldest first, from 0 up; None: evenly.

        With law="transition" they weigh a row's starts, not the row. Rows added later weigh 1.
        """
        where = "EpisodicReplayBuffer.set_row_weights"
        if weights is None:
            return self._store.weigh(None)
        array = np.asarray(weights)
        if array.shape != (self.rows,) or array.dtype.kind not in "iuf":
            refuse(where, [f"weights are numbers ({self.rows},); received {weights!r}"])
        if not (array >= 0).all() or not 1e-200 < array.sum(dtype=np.float64) < 1e200:
            refuse(where, ["weights are finite numbers from 0 up, not all 0"])
        self._store.weigh(array)

    def state(self) -> dict[str, Any]:
        """Copies of all that `restore` needs to go on as if nothing had happened: arrays, ints."""
        return self._store.state() | self._declared()

    def restore(self, state: Mapping[str, Any]) -> None:
        """Take over a `state()` of a buffer declared alike; on an error nothing changes."""
        self._store.restore("EpisodicReplayBuffer.restore", state, self._declared())

    def _declared(self) -> dict[str, int]:
        return {"law": LAWS.index(self.law), "terminals": CONVENTIONS.index(self.terminals)}
