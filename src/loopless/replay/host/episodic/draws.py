"""A call for a batch of episodic draws: its arguments checked, its arrays laid out, one kernel.

What a call of one shape looks like is worked out once and looked up from then on. Imports
`episodic_store`, `fields`, `outputs`, `refusals` and `rows`, and on the first draw
`numba_episodic`. Tests: `tests/replay/test_episodic_calls.py`.
"""

import functools
import math
from collections.abc import Mapping
from dataclasses import dataclass
from operator import index
from typing import Any

import numpy as np

from loopless.refusals import check_count, refuse
from loopless.replay.fields import flatten, unflatten
from loopless.replay.host.episodic.store import EpisodicStore
from loopless.replay.host.outputs import as_library, check_library
from loopless.replay.host.rows import LINE, Plan

FARTHEST = 2**31
NOTHING = np.zeros(0)


@dataclass(frozen=True)
class EpisodicPlan(Plan):
    """Where the results of draws of one shape stand in one block of bytes, and how they are drawn.

    The block begins with the starts, the successors and the gaps, used or not.
    """

    group: int  # how many items share a row
    max_horizon: int
    large: dict[str, tuple[str, int]]  # the stored field, and 0 at starts, 1 at successors


class EpisodicDraws:
    """Batches from a `store`."""

    def __init__(self, store: EpisodicStore) -> None:
        self.store = store
        self._plans: dict[tuple, EpisodicPlan] = {}
        self._nested = any("/" in name for name in store.fields)

    def draw(
        self,
        where: str,
        later: str | None,
        batch_size,
        discount,
        *,
        max_horizon=None,
        batches=None,
        episodes=None,
        out: Mapping[str, Any] | None = None,
        library: str = "numpy",
    ) -> Any:
        """One call: `later` is the name that successors get, None if there are to be none."""
        plan = self._plan(where, later, batch_size, discount, max_horizon, batches, episodes)
        if library != "numpy":
            check_library(where, library, out)
        store = self.store
        if not store.queue.rows:
            if store.rows.storage.closed:
                raise RuntimeError(f"{where}: the buffer was closed. Open it again.")
            raise RuntimeError(f"{where}: the buffer is empty. Add an episode first.")
        given = flatten(where, out) if isinstance(out, Mapping) else out
        if given is not None:
            store.rows.check_out(where, plan, given)
        block = np.empty(plan.nbytes, np.uint8)
        arrays: dict[str, Any] = {
            name: np.ndarray(shape, dtype, block, place)
            for name, (shape, dtype, place) in plan.places.items()
        }
        self._fill(plan, later is not None, discount, block)
        if plan.large:
            self._gather_large(plan, block, arrays if given is None else given)
        if given is not None:
            for name, array in given.items():
                if name not in plan.large:
                    array[...] = arrays[name]
            return out
        if library != "numpy":
            arrays = as_library(library, arrays)
        return unflatten(arrays) if self._nested else arrays

    def _plan(
        self, where: str, later, batch_size, discount, max_horizon, batches, episodes
    ) -> EpisodicPlan:
        """The plan for such a call; one error for all that is wrong with it."""
        usual = (
            type(batch_size) is int
            and (batches is None or type(batches) is int)
            and (episodes is None or type(episodes) is int)
            and (max_horizon is None or type(max_horizon) is int)
            and isinstance(discount, float | int)
            and 0 <= discount <= 1
        )
        counts = (batch_size, batches, episodes, max_horizon)
        plan = self._plans.get((later, counts)) if usual else None
        if plan is None:
            counts = _read_counts(where, batch_size, batches, episodes, max_horizon, discount)
            plan = self._plans.get((later, counts)) or self._lay_out(later, *counts)
            if len(self._plans) >= 64:  # a caller with ever new shapes
                self._plans.clear()
            self._plans[later, counts] = plan
        return plan

    def _lay_out(self, later: str | None, batch_size, batches, episodes, cap) -> EpisodicPlan:
        rows, fields, int64 = self.store.rows, self.store.fields, np.dtype(np.int64)
        leading = (batch_size,) if batches is None else (batches, batch_size)
        count = math.prod(leading)
        places: dict[str, tuple] = {"indices": (leading, int64, 0)}
        end = 24 * count
        if later is not None:
            places["gap"] = (leading, int64, 16 * count)
        read = {name: (name, 0) for name in fields}
        if later is not None:
            ahead = (name for name in fields if name.split("/")[0] == "obs")
            read |= {f"{later}{name.removeprefix('obs')}": (name, 1) for name in ahead}
        table = []
        for name, (field, which) in read.items():
            end += -end % LINE
            places[name] = ((*leading, *fields[field].shape), np.dtype(fields[field].dtype), end)
            if field in rows.offsets:
                table.append((rows.offsets[field], rows.widths[field], end, which))
            end += count * rows.widths[field]
        return EpisodicPlan(
            leading,
            count,
            end,
            places,
            np.array(table, np.int64).reshape(-1, 4),
            group=1 if episodes is None else batch_size // episodes,
            max_horizon=FARTHEST if cap is None else min(cap, FARTHEST),
            large={name: pair for name, pair in read.items() if pair[0] in rows.large},
        )

    def _fill(self, plan: EpisodicPlan, ahead: bool, discount, block: np.ndarray) -> None:
        """Draw, and gather the small fields."""
        compiled, store = _compiled(), self.store
        rows, row_sums = store.rows, NOTHING
        if store.weighted:
            choice, row_sums = compiled.WEIGHTED_ROWS, store.row_sums()
        elif store.by_row:
            choice = compiled.EVEN_ROWS
        else:
            choice = compiled.ALL_STARTS if plan.group == 1 else compiled.ROW_OF_A_START
        kind, log_discount = compiled.NO_GAP, 0.0
        if ahead and 0 < discount < 1:
            kind, log_discount = compiled.GEOMETRIC, math.log(discount)
        elif ahead:
            kind = compiled.UNIFORM if discount else compiled.NEXT_STEP
        compiled.sample(
            store.random, choice, plan.group, store.queue.table, row_sums, store.steps.aliases,
            store.pairs, kind, log_discount, plan.max_horizon,
            block, plan.count, rows.packed, rows.stride, plan.table,
        )  # fmt: skip

    def _gather_large(self, plan: EpisodicPlan, block: np.ndarray, arrays) -> None:
        places = block[: 16 * plan.count].view(np.int64).reshape(2, plan.count)
        rows = self.store.rows
        for name, (field, which) in plan.large.items():
            flat = arrays[name].reshape(-1).view(np.uint8)
            width = rows.widths[field]
            _compiled().numba_ring.gather(flat, 0, *rows.source(field), width, places[which])


@functools.cache
def _compiled() -> Any:
    """The samplers, imported on the first draw."""
    from loopless.compiled import episodic as numba_episodic

    return numba_episodic


def _read_counts(where: str, batch_size, batches, episodes, max_horizon, discount) -> tuple:
    """The counts of a call as ints or None; one error for all that is wrong."""
    given = {"batches": batches, "episodes": episodes, "max_horizon": max_horizon}
    problems = check_count("batch_size", batch_size, 1)
    for name, count in given.items():
        problems += [] if count is None else check_count(name, count, 1)
    if not problems and episodes is not None and batch_size % episodes:
        problems.append(f"batch_size={batch_size} is no multiple of episodes={episodes}")
    try:
        sound = bool(0 <= discount <= 1)
    except (TypeError, ValueError):
        sound = False
    if not sound:
        problems.append(f"discount lies in [0, 1]; received {discount!r}")
    refuse(where, problems)
    numbers = (None if count is None else index(count) for count in given.values())
    return index(batch_size), *numbers
