"""How many operations PyTorch dispatches for a loss and its gradient: launches, on an accelerator.

Tensors under such a count stay tensors, so that ours takes the road of other devices. Imports
PyTorch when asked. Tests: `tests/suites/avatarl/test_bench_avatarl.py`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from loopless.bench.contest import Entry, enter
from loopless.bench.result import Measurement
from loopless.bench.targets import at_least, attach, ratio
from suites.avatarl import contenders as by
from suites.avatarl.losses import Losses

FEWER = 30  # than the loop, at many positions
CONTENDERS = (
    *(each for each in by.OURS if each.name == by.ours("PyTorch", "fixed")),
    by.ORIGINAL,
    by.FIRST,
    by.TODAY,
)


def rows(case: Losses) -> list[Measurement]:
    entries = [enter(each, "operations", case) for each in CONTENDERS]
    found = [replace(each.row, unit="operations", value=_count(each)) for each in entries]
    counts = {row.contender: row.value for row in found}
    name = by.ours("PyTorch", "fixed")
    fewer = at_least(FEWER, ratio(counts[by.LOOPED], counts[name]), f"{FEWER} × fewer than a loop")
    return attach(found, name, [fewer])


def _count(entry: Entry) -> float | None:
    if entry.call is None:
        return None
    from torch.utils._python_dispatch import TorchDispatchMode

    class Counter(TorchDispatchMode):
        count = 0

        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None):
            self.count += 1
            return func(*args, **(kwargs or {}))

    with Counter() as counter:
        entry.call()
    return counter.count
