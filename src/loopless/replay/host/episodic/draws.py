"""Draw a batch from the episodic buffer: check the arguments, lay out the results, call a kernel.

The kernel, with the draw of the geometric gap, is `compiled.episodic.sample`; the layout is a
`Plan` of `replay.sampling`, made once for each shape of call.
"""

import math
from operator import index
from typing import Any

from loopless.refusals import check_count, refuse
from loopless.replay.fields import top_name
from loopless.replay.host.episodic.arena import NO_WEIGHTS, Arena
from loopless.replay.sampling import MOST_PLANS, Plan, check_draws, kernels, plan_draws

FARTHEST = 2**31  # steps, a horizon that caps nothing


class EpisodicDraws:
    """Draws batches from an `arena`."""

    def __init__(self, arena: Arena) -> None:
        self.arena = arena
        self._plans: dict[tuple, Plan] = {}

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
        out=None,
        library: str = "numpy",
    ) -> Any:
        """Return a batch; `later` is the name of the later observations, None for none."""
        counts: tuple[Any, ...] = (batch_size, batches, episodes, max_horizon)
        plan = self._plans.get((later, counts)) if _is_usual(counts, discount) else None
        if plan is None:
            counts = _read_counts(where, batch_size, batches, episodes, max_horizon, discount)
            plan = self._make_plan(later, counts)
        arena = self.arena
        if not arena.queue.rows:
            if arena.rows.storage.closed:
                raise RuntimeError(f"{where}: the buffer was closed. Open it again.")
            raise RuntimeError(f"{where}: the buffer is empty. Add an episode first.")
        block, arrays = plan.allocate(where, out, library)
        group = 1 if episodes is None else counts[0] // counts[2]  # starts in one row
        farthest = FARTHEST if max_horizon is None else min(counts[3], FARTHEST)
        kernel, row_sums = kernels().episodic, NO_WEIGHTS
        if arena.weighted:
            choice, row_sums = kernel.WEIGHTED_ROWS, arena.row_sums()
        elif arena.by_row:
            choice = kernel.EVEN_ROWS
        else:
            choice = kernel.ALL_STARTS if group == 1 else kernel.ROW_OF_A_START
        kind, log_discount = kernel.NO_GAP, 0.0
        if later is not None and 0 < discount < 1:
            kind, log_discount = kernel.GEOMETRIC, math.log(discount)
        elif later is not None:
            kind = kernel.UNIFORM if discount else kernel.NEXT_STEP
        kernel.sample(
            arena.random, choice, group, arena.queue.table, row_sums, arena.aliases, arena.pairs,
            kind, log_discount, farthest,
            block, plan.count, arena.rows.packed, arena.rows.stride, plan.table,
        )  # fmt: skip
        plan.gather_large(arena.rows, block, arrays)
        return plan.deliver(where, arrays, out, library)

    def _make_plan(self, later: str | None, counts: tuple) -> Plan:
        """Return the plan of such draws; its block begins with starts, successors and gaps."""
        plan = self._plans.get((later, counts))
        if plan is not None:
            return plan
        batch_size, batches, _, _ = counts
        fields = self.arena.fields
        indices, read = {"indices": 0}, {name: (name, 0) for name, _ in fields.items()}
        if later is not None:
            indices["gap"] = 2
            ahead = (name for name, _ in fields.items() if top_name(name) == "obs")
            read |= {f"{later}{name.removeprefix('obs')}": (name, 1) for name in ahead}
        leading = (batch_size,) if batches is None else (batches, batch_size)
        plan = plan_draws(
            self.arena.rows, leading, indices=indices, index_arrays=3, extra={}, read=read
        )
        if len(self._plans) >= MOST_PLANS:
            self._plans.clear()
        self._plans[later, counts] = plan
        return plan


def _is_usual(counts: tuple, discount) -> bool:
    """Return whether the arguments have the usual types, so that a stored plan fits them."""
    batch_size, batches, episodes, max_horizon = counts
    return (
        type(batch_size) is int
        and (batches is None or type(batches) is int)
        and (episodes is None or type(episodes) is int)
        and (max_horizon is None or type(max_horizon) is int)
        and isinstance(discount, float | int)
        and 0 <= discount <= 1
    )


def _read_counts(where: str, batch_size, batches, episodes, max_horizon, discount) -> tuple:
    """Return the counts of a call as ints or None; one error lists all that is wrong."""
    others = {"batches": batches, "episodes": episodes, "max_horizon": max_horizon}
    problems = check_count("batch_size", batch_size, 1)
    for name, count in others.items():
        problems += [] if count is None else check_count(name, count, 1)
    problems = problems or check_draws(batch_size, batches)
    if not problems and episodes is not None and batch_size % episodes:
        problems.append(f"batch_size={batch_size} is not a multiple of episodes={episodes}")
    try:
        sound = bool(0 <= discount <= 1)
    except (TypeError, ValueError):
        sound = False
    if not sound:
        problems.append(f"discount must be from 0 to 1; received {discount!r}")
    refuse(where, problems)
    numbers = (None if count is None else index(count) for count in others.values())
    return index(batch_size), *numbers
