"""Time a function beside ours, on the same large case in the same library.

Imports `bench.timing`. Tests: `tests/verify/test_verify_command.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from loopless.bench.timing import Budget, Race
from loopless.verify import layouts, libraries
from loopless.verify.calling import Caller, TimeUp, limited
from loopless.verify.contracts.contract import Contract
from loopless.verify.verdicts import Timing

BUDGET = Budget(total_s=0.4, most_samples=50)
LIMIT_S = 20.0


def measure(caller: Caller, contract: Contract, settled: Callable[[dict], dict]) -> Timing | None:
    """Seconds for a call of each, or None if theirs cannot do a case of this size in time."""
    case = settled(contract.speed(0))
    given = caller.given(case)
    if caller.plan.layout.split:
        kind, x = next((k, x) for k, x in given.values() if k not in ("number", "integer"))
        count = np.shape(x)[1 if kind in layouts.OVER_TIME else 0]
        columns = [
            caller.arguments(
                {k: (kind, layouts.parts(kind, x, i)) for k, (kind, x) in given.items()}
            )
            for i in range(count)
        ]
    else:
        columns = [caller.arguments(given)]
    library, dtype = caller.plan.library, caller.plan.dtype
    own = {name: libraries.array(library, x, dtype) for name, x in case.items()}

    def theirs() -> Any:
        return [libraries.waited(caller.invoke(dict(column))) for column in columns]

    def ours() -> Any:
        return [libraries.waited(x) for x in contract.ours(own).values()]

    try:
        with limited(LIMIT_S), caller.quiet():
            theirs()
            ours()
            race = Race({"theirs": theirs, "ours": ours}, BUDGET)
            race.run()
    except (TimeUp, Exception):  # what is wrong with it was said before
        return None
    found = race.timings()
    name = next((n for n in ("rewards", "x", "student_logits", "features", "q") if n in case), "")
    shape = np.shape(case[name]) if name else ()
    words = "×".join(str(n) for n in shape) if shape else "one case"
    return Timing(words, found["theirs"].median, found["ours"].median)
